// Brings the page to life: fetches it anew every few seconds, swaps its tables and draws the charts.
"use strict";
(() => {
  const EVERY = 5000, PATIENCE = 10000, HEIGHT = 176;
  const MINUTES = [1, 2, 5, 10, 15, 30, 60].map((minutes) => 60 * minutes);
  const status = document.getElementById("status");
  const charts = new Map();
  let data = JSON.parse(document.getElementById("data").textContent);
  let timer = 0, lastGood = new Date();

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const percent = (v) => (v == null ? "–" : `${+(100 * v).toFixed(1)} %`);
  const plain = (v) => {
    if (v == null) return "–";
    const [size, prefix] = v >= 1e9 ? [1e9, " G"] : v >= 1e6 ? [1e6, " M"] : v >= 1e3 ? [1e3, " k"] : [1, ""];
    return `${+(v / size).toPrecision(3)}${prefix}`;
  };
  const seconds = (v) => (v == null ? "–" : v < 1 ? `${+(1000 * v).toPrecision(3)} ms` : `${+v.toPrecision(3)} s`);

  // Each chart: what it is of, its series as [label, colour, values' column or phase, scale], and how axes write values.
  const overTime = (of, columns, scales) => ({
    of, rows: () => [data.history.at, ...columns.map(([, , column]) => data.history[column])],
    series: columns, x: { time: true, range: minutes }, xText: null, scales,
  });
  const shares = (of, source, names) => ({
    of, rows: () => joined(names.map((name) => data[source][name])),
    series: names.map((name) => [name, name, name, "share"]),
    x: { time: false, distr: 3 }, xText: seconds,
    scales: { share: { range: [0, 1], text: percent } },
  });
  const OUTCOMES = ["full", "partial", "miss"];
  const KINDS = {
    hits: overTime(["engines", "requests"], [
      ["tokens, engines", "blue", "token_hit_ratio", "share"],
      ["requests, engines", "green", "request_hit_ratio", "share"],
      ["tokens, logs", "purple", "log_token_hit_ratio", "share"],
      ["requests, logs", "orange", "log_request_hit_ratio", "share"],
    ], { share: { range: [0, 1], text: percent } }),
    outcomes: shares(["ttft"], "outcomes", OUTCOMES),
    phases: shares(["engines"], "phases", ["cold", "warm"]),
    p95: overTime(["ttft"], OUTCOMES.map((name) => [name, name, `${name}_ttft_p95_at_most_seconds`, "wait"]),
      { wait: { distr: 3, text: seconds } }),
    pressure: overTime(["engines", "events"], [
      ["preemptions/s", "red", "preemptions_per_second", "requests"],
      ["evicted tokens/s", "orange", "evicted_tokens_per_second", "tokens"],
      ["evicted blocks/s", "purple", "evicted_blocks_per_second", "blocks"],
      ["re-warmed blocks/s", "blue", "rewarmed_blocks_per_second", "blocks"],
    ], {
      requests: { text: plain, label: "requests/s" },
      tokens: { text: plain, label: "tokens/s" },
      blocks: { text: plain, label: "blocks/s" },
    }),
    usage: overTime(["engines"], [
      ["fullest cache", "blue", "usage_ratio", "share"],
      ["running", "gray", "running_requests", "requests"],
      ["waiting", "red", "waiting_requests", "requests"],
    ], { share: { range: [0, 1], text: percent }, requests: { text: plain, label: "requests" } }),
  };

  // Cumulative shares of several histograms, their edges need not be the same, over one axis.
  function joined(found) {
    const edges = [...new Set(found.flatMap((each) => (each ? each.edges_seconds : [])))].sort((a, b) => a - b);
    const lines = found.map((each) => {
      const at = new Map();
      let below = 0;
      if (each) each.edges_seconds.forEach((edge, i) => at.set(edge, (below += each.counts[i]) / each.count));
      return edges.map((edge) => (at.has(edge) ? at.get(edge) : null));
    });
    return [edges, ...lines];
  }

  // A logarithmic axis from decade to decade, also when there is one value only.
  function decades(_, low, high) {
    if (low == null || low <= 0) return [0.01, 10];
    return [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high * 1.0001))];
  }

  const powers = (_, __, low, high) => {
    const found = [];
    for (let power = Math.round(Math.log10(low)); power <= Math.round(Math.log10(high)); power++) found.push(10 ** power);
    return found;
  };

  const utc = (at) => uPlot.tzDate(new Date(at * 1e3), "Etc/UTC");
  const clock = (at) => uPlot.fmtDate("{HH}:{mm}")(utc(at));

  // Of a history of one moment uPlot would make years.
  function minutes(chart, low, high) {
    const at = chart.data[0];
    if (!at.length) return [low, high];
    return [Math.min(at[0], at[at.length - 1] - 300), at[at.length - 1]];
  }
  function fromZero(_, __, high) { return [0, high > 0 ? high * 1.1 : 1]; }

  // `shown` are those of the chart's series that have values: the others would be empty axes and words.
  function options(kind, shown, width) {
    const text = color("muted"), grid = { stroke: color("border"), width: 1 }, font = "11px system-ui, sans-serif";
    const scales = { x: kind.x.distr ? { ...kind.x, range: decades } : kind.x };
    const axes = [{ stroke: text, grid, ticks: grid, font, size: 28,
      ...(kind.xText ? { splits: powers } : { incrs: MINUTES, space: 52 }),
      values: (_, at) => at.map((v) => (v == null ? "" : (kind.xText || clock)(v))) }];
    const used = Object.entries(kind.scales).filter(([name]) => shown.some((each) => each[3] === name));
    used.forEach(([name, scale], place) => {
      const { text: write, label, ...rest } = scale;
      scales[name] = { ...rest, range: rest.range || (rest.distr ? decades : fromZero) };
      axes.push({ scale: name, side: place ? 1 : 3, stroke: text, font, size: label ? 44 : 58, ticks: grid,
        ...(label ? { label, labelFont: font, labelSize: 16, labelGap: 0 } : {}),
        ...(rest.distr ? { splits: powers, space: 16 } : {}), grid: place ? { show: false } : grid, values: (_, at) => at.map((v) => (v == null ? "" : write(v))) });
    });
    return {
      width, height: HEIGHT, scales, axes, tzDate: utc,
      hooks: { ready: [(chart) => newest(chart, kind)], setCursor: [(chart) => newest(chart, kind)] }, legend: { live: true },
      cursor: { drag: { x: false, y: false }, ...(kind.xText ? {} : { sync: { key: "history" } }) },
      series: [
        { label: kind.xText ? "within" : "UTC", value: kind.xText ? (_, v) => (v == null ? "" : kind.xText(v)) : "{HH}:{mm}:{ss}" },
        ...shown.map(([label, name, , scale]) => ({ label, scale, stroke: color(name), width: 1.5,
          spanGaps: Boolean(kind.xText), points: { show: kind.xText ? true : undefined, size: 4 },
          value: (_, v) => (v == null && kind.xText ? "" : kind.scales[scale].text(v)) })),
      ],
    };
  }

  function draw() {
    for (const [name, kind] of Object.entries(KINDS)) {
      const host = document.getElementById(`chart-${name}`);
      host.parentElement.hidden = !kind.of.some((source) => data.has[source]);
      const [x, ...columns] = kind.rows(), seen = columns.map((column) => column.some((v) => v != null));
      const shown = kind.series.filter((_, i) => seen[i]), rows = [x, ...columns.filter((_, i) => seen[i])];
      const labels = shown.map(([label]) => label).join();
      let chart = charts.get(name);
      if (chart && chart.labels !== labels) { chart.destroy(); charts.delete(name); chart = null; }
      if (!shown.length) {
        host.innerHTML = '<p class="empty">no values yet</p>';
      } else if (chart) {
        chart.setData(rows);
      } else {
        host.textContent = "";
        chart = new uPlot(options(kind, shown, host.clientWidth), rows, host);
        chart.labels = labels;
        charts.set(name, chart);
      }
      newest(chart, kind);
    }
  }

  // While nobody points at a chart over time, its legend shows the newest values.
  function newest(chart, kind) {
    if (chart && !kind.xText && chart.cursor.left < 0) chart.setLegend({ idx: chart.data[0].length - 1 }, false);
  }

  // The arrow keys move through a chart's points as a pointer does.
  function step(event, chart) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!chart || !by) return;
    const x = chart.data[0], from = chart.cursor.left < 0 ? (by < 0 ? x.length : -1) : chart.cursor.idx;
    const place = Math.min(x.length - 1, Math.max(0, from + by));
    chart.setCursor({ left: chart.valToPos(x[place], "x"), top: 0 });
    event.preventDefault();
  }

  function listen(name) {
    const host = document.getElementById(`chart-${name}`);
    host.tabIndex = 0;
    host.addEventListener("keydown", (event) => step(event, charts.get(name)));
    host.addEventListener("blur", () => charts.get(name)?.setCursor({ left: -10, top: -10 }));
  }

  function redraw() {
    charts.forEach((chart) => chart.destroy());
    charts.clear();
    draw();
  }

  // What has the focus keeps it; what is being selected is left alone.
  function swap(fresh) {
    const selection = getSelection();
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = fresh.getElementById(part.id);
      if (!other || other.innerHTML === part.innerHTML) continue;
      if (!selection.isCollapsed && selection.containsNode(part, true)) continue;
      const focused = part.contains(document.activeElement) ? document.activeElement : null;
      const places = focused && [...part.querySelectorAll("a, [tabindex]")];
      const scrolled = [...part.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
      part.innerHTML = other.innerHTML;
      part.querySelectorAll(".scroll").forEach((each, i) => { each.scrollLeft = scrolled[i] || 0; });
      if (focused) refocus(part, focused, places.indexOf(focused));
    }
  }

  function refocus(part, focused, place) {
    const all = [...part.querySelectorAll("a, [tabindex]")];
    const same = all.find((each) => each.href && each.href === focused.href);
    (same || all[place] || document.getElementById("main")).focus({ preventScroll: true });
  }

  function say(kind, text) {
    if (status.textContent !== text) status.textContent = text;
    status.className = kind;
    document.body.classList.toggle("stale", kind === "stale");
  }

  async function refresh() {
    clearTimeout(timer);
    if (document.hidden) { say("", "Paused"); return; }
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
      if (!answer.ok) throw new Error(`the exporter answers ${answer.status}`);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      data = JSON.parse(fresh.getElementById("data").textContent);
      swap(fresh);
      draw();
      lastGood = new Date();
      say("live", "Live");
    } catch (error) {
      const why = /answers/.test(error.message) ? error.message : "the exporter cannot be reached";
      say("stale", `Stale since ${lastGood.toISOString().slice(11, 19)} UTC: ${why}`);
    }
    timer = setTimeout(refresh, EVERY);
  }

  document.documentElement.classList.add("scripted");
  Object.keys(KINDS).forEach(listen);
  draw();
  say("live", "Live");
  timer = setTimeout(refresh, EVERY);
  document.addEventListener("visibilitychange", refresh);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(() => charts.forEach((chart, name) => {
    const width = document.getElementById(`chart-${name}`).clientWidth;
    if (width && width !== chart.width) chart.setSize({ width, height: HEIGHT });
  })).observe(document.body);
})();
