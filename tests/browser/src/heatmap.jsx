// A plain heatmap of bucket counts: Grafana's own heatmap panel is not on npm.
import React from 'react';
import { dateTimeFormat, formattedValueToString, getValueFormat } from '@grafana/data';

const LEFT = 64;
const BOTTOM = 20;

export function Heatmap({ data, width, height, options, timeRange }) {
  const canvas = React.useRef();
  React.useEffect(() => draw(canvas.current, data.series[0], width, height, options, timeRange), [data, width, height]);
  return <canvas ref={canvas} width={width} height={height} />;
}

function draw(canvas, frame, width, height, options, timeRange) {
  const pen = canvas.getContext('2d');
  pen.clearRect(0, 0, width, height);
  const rows = frame.fields.filter((field) => field.type === 'number');
  const times = frame.fields.find((field) => field.type === 'time').values;
  const [from, to] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  const most = Math.max(...rows.flatMap((row) => [...row.values].filter(Number.isFinite)), 0) || 1;
  const [high, step] = [(height - BOTTOM) / rows.length, (times[1] ?? times[0] + 1) - times[0]];
  const x = (at) => LEFT + ((at - from) / (to - from)) * (width - LEFT);
  rows.forEach((row, i) => times.forEach((at, k) => {
    const share = Math.sqrt(Math.max(row.values[k] || 0, 0) / most);
    if (share) {
      pen.fillStyle = `hsl(${40 - 25 * share}, 90%, ${20 + 50 * share}%)`;
      pen.fillRect(x(at), height - BOTTOM - (i + 1) * high, Math.max(x(at + step) - x(at), 1), Math.max(high - 1, 1));
    }
  }));
  pen.fillStyle = '#ccccdc';
  pen.font = '11px sans-serif';
  const every = Math.ceil(14 / high);
  rows.forEach((row, i) => i % every || pen.fillText(bound(row, options.yAxis?.unit), 4, height - BOTTOM - i * high - 2));
  for (let part = 0; part < 5; part += 1) {
    const at = from + (part / 5) * (to - from);
    pen.fillText(dateTimeFormat(at, { format: 'HH:mm:ss' }), x(at), height - 5);
  }
}

function bound(row, unit) {
  const name = row.config?.displayNameFromDS ?? row.name;
  const value = Number(name);
  return Number.isFinite(value) ? formattedValueToString(getValueFormat(unit)(value)) : name;
}
