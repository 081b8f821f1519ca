// The panels of the boards from Grafana's own React components.
import React from 'react';
import { PanelPlugin, cacheFieldDisplayNames, getFieldDisplayValues, identityOverrideProcessor } from '@grafana/data';
import { BigValue, TimeSeries, VizRepeater, useTheme2 } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { Heatmap } from './heatmap.jsx';
import { fieldOption } from './registries.js';

const LINES = {
  drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, lineStyle: undefined, fillOpacity: 0,
  gradientMode: 'none', pointSize: 5, showPoints: 'auto', spanNulls: false, stacking: { mode: 'none', group: 'A' },
  thresholdsStyle: { mode: 'off' }, axisPlacement: 'auto', axisLabel: undefined, axisSoftMin: undefined,
  axisSoftMax: undefined, axisCenteredZero: false, axisColorMode: 'text', axisBorderShow: false, axisGridShow: undefined,
  scaleDistribution: { type: 'linear' }, hideFrom: { legend: false, tooltip: false, viz: false }, barAlignment: 0,
};
const CELLS = { align: 'auto', width: undefined, cellOptions: { type: 'auto' }, inspect: false, filterable: false, hidden: false };

// A panel without data shows the board's own words for it.
const orNothing = (Panel) => function PanelOrNothing(props) {
  if (props.data.series.some((frame) => frame.length)) {
    return <Panel {...props} />;
  }
  const style = { display: 'flex', alignItems: 'center', justifyContent: 'center', height: '100%' };
  return <div style={style} data-nothing>{props.fieldConfig.defaults.noValue ?? 'No data'}</div>;
};

// As Grafana's panel does it: what is no finite number is a gap.
function withGaps(frame) {
  const fields = frame.fields.map((field) => (field.type === 'number'
    ? { ...field, values: field.values.map((v) => (Number.isFinite(v) ? v : null)) } : field));
  return { ...frame, fields };
}

function Lines({ data, width, height, timeRange, timeZone, options }) {
  const frames = React.useMemo(() => data.series.map(withGaps), [data.series]);
  return (
    <TimeSeries
      frames={frames} structureRev={data.structureRev} width={width} height={height} timeRange={timeRange}
      timeZone={timeZone} legend={options.legend} options={options}
    />
  );
}

function Numbers({ data, width, height, options, fieldConfig, replaceVariables, timeZone }) {
  const theme = useTheme2();
  const getValues = () => getFieldDisplayValues({
    fieldConfig, replaceVariables, theme, timeZone, data: data.series, reduceOptions: options.reduceOptions,
    sparkline: options.graphMode !== 'none',
  });
  const renderValue = ({ value, count, width: w, height: h }) => (
    <BigValue
      value={value.display} sparkline={value.sparkline} count={count} width={w} height={h} theme={theme}
      colorMode={options.colorMode} graphMode={options.graphMode} justifyMode={options.justifyMode ?? 'auto'}
      textMode={options.textMode ?? 'auto'} text={options.text} disableWideLayout={!(options.wideLayout ?? true)}
    />
  );
  return (
    <VizRepeater
      getValues={getValues} renderValue={renderValue} source={data} renderCounter={0} width={width} height={height}
      itemSpacing={3} orientation={options.orientation ?? 'auto'}
    />
  );
}

function Rows({ data, width, height, timeRange, options, fieldConfig }) {
  cacheFieldDisplayNames(data.series);
  return (
    <TableNG
      data={data.series[0]} width={width} height={height} noHeader={!options.showHeader} initialSortBy={options.sortBy}
      structureRev={data.structureRev} timeRange={timeRange} fieldConfig={fieldConfig} getActions={() => []}
    />
  );
}

function plugin(id, component, color, custom) {
  const useCustomConfig = (builder) => Object.entries(custom).forEach(([key, value]) =>
    builder.addCustomEditor(fieldOption(key, 'Custom', identityOverrideProcessor, value)));
  const made = new PanelPlugin(component).useFieldConfig({
    standardOptions: { color: { defaultValue: { mode: color } } }, useCustomConfig,
  });
  made.meta = { id, name: id, info: { logos: {}, version: '1' }, module: '', baseUrl: '', type: 'panel', sort: 1 };
  return made;
}

export const PLUGINS = {
  timeseries: plugin('timeseries', orNothing(Lines), 'palette-classic', LINES),
  stat: plugin('stat', Numbers, 'thresholds', {}),
  table: plugin('table', orNothing(Rows), 'thresholds', CELLS),
  heatmap: plugin('heatmap', orNothing(Heatmap), 'palette-classic', { hideFrom: LINES.hideFrom, scaleDistribution: LINES.scaleDistribution }),
};
