// The part of Grafana's server that the Prometheus data source needs: queries and resources, asked of /prom.
const PROMETHEUS = '/prom';
export const SCRAPE_SECONDS = 1;

export async function query({ data }) {
  const results = {};
  await Promise.all(data.queries.map(async (q) => {
    try {
      results[q.refId] = { status: 200, frames: await frames(q, +data.from / 1000, +data.to / 1000) };
    } catch (error) {
      results[q.refId] = { status: 400, error: error.message, frames: [] };
    }
  }));
  return { data: { results } };
}

async function frames(q, from, to) {
  const step = Math.max(1, Math.ceil((q.intervalMs || 15000) / 1000));
  const expr = interpolated(q.expr, step, to - from);
  const instant = q.instant && !q.range;
  const answer = instant
    ? await ask('/api/v1/query', { query: expr, time: to })
    : await ask('/api/v1/query_range', { query: expr, start: from, end: to, step });
  return answer.result.map((series) => frame(q, series, answer.resultType, step));
}

function interpolated(expr, step, range) {
  const values = {
    __rate_interval: `${Math.max(step + SCRAPE_SECONDS, 4 * SCRAPE_SECONDS)}s`,
    __interval: `${step}s`,
    __range: `${Math.round(range)}s`,
  };
  return expr.replace(/\$\{?(__rate_interval|__interval|__range)\}?/g, (_, name) => values[name]);
}

function frame(q, { metric, value, values = [value] }, resultType, step) {
  const name = legend(q.legendFormat, metric);
  return {
    schema: {
      refId: q.refId,
      name,
      meta: { type: 'timeseries-multi', custom: { resultType } },
      fields: [
        { name: 'Time', type: 'time', config: { interval: step * 1000 } },
        { name: 'Value', type: 'number', labels: metric, config: { displayNameFromDS: name } },
      ],
    },
    data: { values: [values.map((v) => v[0] * 1000), values.map((v) => Number(v[1]))] },
  };
}

function legend(format, metric) {
  if (format && format !== '__auto') {
    return format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => metric[label] ?? '');
  }
  const labels = Object.entries(metric).filter(([key]) => key !== '__name__').map(([k, v]) => `${k}="${v}"`);
  return `${metric.__name__ ?? ''}{${labels.join(', ')}}`;
}

export async function resource({ url, params, data }) {
  const { pathname, searchParams } = new URL(url.replace(/^.*resources\/?/, '/'), location.origin);
  const asked = params ?? data ?? {};
  const pairs = typeof asked === 'string' ? [...new URLSearchParams(asked)] : Object.entries(asked);
  for (const [key, value] of pairs) {
    [value].flat().filter((v) => v !== undefined).forEach((v) => searchParams.append(key, v));
  }
  const answer = await fetch(`${PROMETHEUS}${pathname}?${searchParams}`);
  return { data: await answer.json() };
}

async function ask(path, parameters) {
  const answer = await (await fetch(`${PROMETHEUS}${path}`, { method: 'POST', body: new URLSearchParams(parameters) })).json();
  if (answer.status !== 'success') {
    throw new Error(answer.error);
  }
  return answer.data;
}
