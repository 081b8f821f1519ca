// Grafana's runtime services, as far as scenes and the Prometheus data source ask for them.
import { from, map, of, catchError, firstValueFrom } from 'rxjs';
import { EventBusSrv, LoadingState, dataFrameFromJSON } from '@grafana/data';
import { PrometheusDatasource } from '@grafana/prometheus';
import * as runtime from '@grafana/runtime';
import { sceneGraph } from '@grafana/scenes';
import { SCRAPE_SECONDS, query, resource } from './prometheus.js';

const SETTINGS = {
  id: 1, uid: 'prometheus', name: 'Prometheus', type: 'prometheus', access: 'proxy', url: '/prom', isDefault: true,
  readOnly: true,
  jsonData: { timeInterval: `${SCRAPE_SECONDS}s`, httpMethod: 'GET', prometheusType: 'Prometheus' },
  meta: {
    id: 'prometheus', name: 'Prometheus', type: 'datasource', metrics: true, module: '', baseUrl: '',
    info: { logos: { small: '', large: '' } },
  },
};

// `currentScene` gives the board on which variables are looked up.
export function startRuntime(plugins, currentScene) {
  runtime.setBackendSrv(backend());
  const templates = {
    getVariables: () => [],
    containsTemplate: (text) => /\$|\[\[/.test(text ?? ''),
    updateTimeRange() {},
    replace(text, scoped, format) {
      const scene = scoped?.__sceneObject?.value?.valueOf?.() ?? currentScene();
      return text && scene ? sceneGraph.interpolate(scene, text, scoped, format) : text;
    },
  };
  runtime.setTemplateSrv(templates);
  const source = Object.assign(new PrometheusDatasource(SETTINGS, templates), SETTINGS);
  runtime.setDataSourceSrv({
    get: async () => source,
    getList: () => [SETTINGS],
    getInstanceSettings: () => SETTINGS,
    reload() {},
    registerRuntimeDataSource() {},
  });
  runtime.setRunRequest(runRequest);
  runtime.setPluginImportUtils({
    importPanelPlugin: async (id) => plugins[id],
    getPanelPluginFromCache: (id) => plugins[id],
  });
  runtime.setEchoSrv({ addEvent() {}, addBackend() {}, flush() {} });
  runtime.setAppEvents(new EventBusSrv());
  runtime.setPluginComponentHook?.(() => ({ component: null, isLoading: false }));
  runtime.setPluginComponentsHook?.(() => ({ components: [], isLoading: false }));
  runtime.setPluginLinksHook?.(() => ({ links: [], isLoading: false }));
  runtime.setPluginFunctionsHook?.(() => ({ functions: [], isLoading: false }));
  runtime.setReturnToPreviousHook?.(() => () => {});
  runtime.setChromeHeaderHeightHook?.(() => 0);
}

function backend() {
  const answer = async (request) => {
    const found = request.url.includes('/api/ds/query') ? query(request)
      : request.url.includes('/resources') ? resource(request) : { data: {} };
    return { status: 200, ok: true, ...(await found) };
  };
  return {
    fetch: (request) => from(answer(request)),
    get: async (url, params) => (await answer({ url, params })).data,
    post: async (url, data) => (await answer({ url, data })).data,
    datasourceRequest: (request) => firstValueFrom(from(answer(request))),
    resolveCancelerIfExists() {},
    chunked: () => of(),
  };
}

function runRequest(source, request, queryFunction) {
  const asked = (queryFunction ?? source.query.bind(source))(request);
  return from(asked).pipe(
    map((answer) => ({
      state: answer.state ?? LoadingState.Done,
      series: answer.data.map((frame) => (frame.schema ? dataFrameFromJSON(frame) : frame)),
      timeRange: request.range,
      request,
      errors: answer.errors,
      error: answer.error ?? answer.errors?.[0],
    })),
    catchError((error) => of({
      state: LoadingState.Error, series: [], timeRange: request.range, request, error: { message: String(error?.message ?? error) },
    })),
  );
}
