// A board's JSON as a scene: variables, rows and panels where the board puts them.
import {
  DataSourceVariable, EmbeddedScene, QueryVariable, SceneControlsSpacer, SceneDataTransformer, SceneGridItem,
  SceneGridLayout, SceneGridRow, SceneQueryRunner, SceneTimePicker, SceneTimeRange, SceneVariableSet,
  VariableValueSelectors, VizPanel, sceneGraph,
} from '@grafana/scenes';

export function sceneOf(board, from, to) {
  return new EmbeddedScene({
    $timeRange: new SceneTimeRange({ from: from ?? board.time.from, to: to ?? board.time.to }),
    $variables: new SceneVariableSet({ variables: board.templating.list.map(variable) }),
    controls: [new VariableValueSelectors({}), new SceneControlsSpacer(), new SceneTimePicker({})],
    body: new SceneGridLayout({ children: rows(board.panels) }),
  });
}

// What each panel shows: { title, state, errors, values }, for whoever drives the browser.
export function panelStates(scene) {
  return sceneGraph.findAllObjects(scene, (object) => object instanceof VizPanel).map((panel) => {
    const data = panel.state.$data.state.data;
    const numbers = (data?.series ?? []).flatMap((frame) => frame.fields.filter((field) => field.type === 'number'));
    return {
      title: panel.state.title,
      state: data?.state ?? 'NotStarted',
      errors: (data?.errors ?? []).map((error) => error.message),
      values: numbers.reduce((n, field) => n + [...field.values].filter(Number.isFinite).length, 0),
    };
  });
}

function variable(v) {
  const shared = { name: v.name, label: v.label };
  if (v.type === 'datasource') {
    return new DataSourceVariable({ ...shared, pluginId: v.query });
  }
  return new QueryVariable({
    ...shared, datasource: v.datasource, query: v.query, refresh: v.refresh, sort: v.sort, regex: v.regex,
    isMulti: v.multi, includeAll: v.includeAll, allValue: v.allValue, value: v.current.value, text: v.current.text,
  });
}

function rows(panels) {
  const children = [];
  for (const panel of panels) {
    const row = children.at(-1);
    if (panel.type === 'row') {
      children.push(new SceneGridRow({ title: panel.title, y: panel.gridPos.y, children: [] }));
    } else if (row instanceof SceneGridRow) {
      row.setState({ children: [...row.state.children, item(panel)] });
    } else {
      children.push(item(panel));
    }
  }
  return children;
}

function item({ gridPos, title, description, type, options, fieldConfig, transformations, ...panel }) {
  const runner = new SceneQueryRunner({
    datasource: panel.datasource, queries: panel.targets, maxDataPoints: panel.maxDataPoints, minInterval: panel.interval,
  });
  const $data = transformations ? new SceneDataTransformer({ $data: runner, transformations }) : runner;
  return new SceneGridItem({
    x: gridPos.x, y: gridPos.y, width: gridPos.w, height: gridPos.h,
    body: new VizPanel({ title, description, pluginId: type, options: options ?? {}, fieldConfig, $data }),
  });
}
