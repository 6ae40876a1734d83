// Forecasts over the values of one key or two: a curve for each value of the second, and every point as a row.

const kMeasures = {
  "step time": { of: (p) => p.iteration_time_s, text: seconds },
  "tokens/s": { of: (p) => p.tokens_per_s, text: count },
  "samples/s": { of: (p) => p.samples_per_s, text: count },
  MFU: { of: (p) => p.mfu, text: percent },
  memory: { of: (p) => p.memory_bytes, text: bytes },
};

function sweepPicture(points, axes, measure) {
  const first = [...new Set(points.map((p) => written(p.set[axes[0]])))];
  const second = axes[1] ? [...new Set(points.map((p) => written(p.set[axes[1]])))] : [""];
  const known = points.filter((p) => p.iteration_time_s !== undefined && measure.of(p) > 0);
  const paint = (width) => {
    const height = 280;
    const [left, bottom, top] = [80, 58, 12];
    const most = Math.max(...known.map(measure.of)) * 1.05;
    const x = (i) => left + ((i + 0.5) / first.length) * (width - left - 16);
    const y = (v) => height - bottom - (v / most) * (height - bottom - top);
    const shapes = ticks(0, most, 5).flatMap((v) => [svg("line", { x1: left, x2: width - 12, y1: y(v), y2: y(v), class: "grid" }), svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end", class: "axis" }, measure.text(v))]);
    first.forEach((v, i) => shapes.push(svg("text", { x: x(i), y: height - bottom + 18, "text-anchor": "middle", class: "axis" }, v)));
    shapes.push(svg("text", { x: (left + width) / 2, y: height - bottom + 38, "text-anchor": "middle", class: "axis" }, axes[0]));
    second.forEach((line, n) => {
      const own = known.filter((p) => !axes[1] || written(p.set[axes[1]]) === line).map((p) => ({ p, x: x(first.indexOf(written(p.set[axes[0]]))), y: y(measure.of(p)) }));
      shapes.push(svg("polyline", { points: own.map((o) => `${o.x},${o.y}`).join(" "), fill: "none", stroke: colour(n), "stroke-width": 2 }));
      for (const o of own) shapes.push(svg("circle", { cx: o.x, cy: o.y, r: 4.5, stroke: colour(n), "stroke-width": 2, fill: o.p.fits ? colour(n) : "var(--page)" }, svg("title", {}, `${sets(o.p)}: ${measure.text(measure.of(o.p))}${o.p.fits ? "" : ", does not fit"}`)));
    });
    return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${known.length} forecasts by ${axes.join(" and ")}; the table below has them` }, shapes);
  };
  const legend = axes[1] ? element("ul", { class: "legend" }, second.map((v, n) => element("li", {}, element("i", { style: `background:${colour(n)}` }), element("span", {}, `${axes[1]}=${v}`)))) : null;
  return [responsive(paint), legend].filter(Boolean);
}

const sets = (p) => Object.entries(p.set).map(([k, v]) => `${k}=${written(v)}`).join(" ");

/** The panel: `state()` what is chosen, `keys` their paths, `take(changes)` puts a point into it. */
function sweepPanel(state, keys, take) {
  const list = element("datalist", { id: "sweep-keys" }, ["workload", "system", "devices", ...keys.map((k) => k.path)].map((path) => element("option", { value: path })));
  const axis = (number, key, values) => ({
    key: element("input", { id: `sweep-key-${number}`, list: "sweep-keys", value: key, spellcheck: "false" }),
    values: element("input", { id: `sweep-values-${number}`, value: values, placeholder: "values, with commas between", spellcheck: "false" }),
  });
  const axes = [axis(1, "devices", "8,16,32,64"), axis(2, "", "")];
  const measure = element("select", { id: "sweep-measure", onchange: draw }, Object.keys(kMeasures).map((name) => element("option", {}, name)));
  const picture = element("div");
  const table = element("div");
  let shown = null;
  function draw() {
    if (shown) picture.replaceChildren(...sweepPicture(shown.points, shown.axes, kMeasures[measure.value]));
  }
  const task = longTask({
    start: "sweep",
    running: "forecasting",
    stopped: "The sweep was stopped.",
    beside: [element("label", { for: "sweep-measure" }, "draw"), measure],
    args() {
      const asked = structuredClone(state());
      const used = axes.filter((a) => a.key.value.trim() !== "" && a.values.value.trim() !== "");
      for (const a of used) asked.keys[a.key.value.trim()] = a.values.value.trim();
      return { args: ["sweep", ...overridesOf(asked), "--jobs", "1", "--format", "json"], files: asked.files, axes: used.map((a) => a.key.value.trim()), line: commandLine("sweep", asked) };
    },
    show(found, asked, answer) {
      shown = { points: found.points, axes: asked.axes.length ? asked.axes : Object.keys(found.points[0].set) };
      draw();
      const fastest = found.points.filter((p) => p.fits).sort((a, b) => a.iteration_time_s - b.iteration_time_s)[0];
      const text = (measureOf) => (p) => (p.iteration_time_s === undefined ? "" : kMeasures[measureOf].text(kMeasures[measureOf].of(p)));
      const column = (name) => ({ title: name, of: text(name), sort: (p) => kMeasures[name].of(p) ?? Infinity, number: true });
      table.replaceChildren(
        sortableTable([{ title: "point", of: sets }, { title: "status", of: (p) => p.status, exact: (p) => p.reason }, ...Object.keys(kMeasures).map(column),
          { title: "take over", of: (p) => element("button", { type: "button", onclick: () => take(Object.fromEntries(Object.entries(p.set).map(([k, v]) => [k, written(v)]))) }, "use"), sort: () => 0 }], found.points, "Points of the sweep"),
        element("p", { class: "row" }, element("button", { type: "button", onclick: () => download("sweep.json", answer.output, "application/json") }, "download sweep.json"), element("code", {}, asked.line)));
      return `${found.points.length} forecasts in ${seconds(answer.milliseconds / 1000)}${fastest ? `; the fastest that fits: ${sets(fastest)}, ${seconds(fastest.iteration_time_s)}` : "; none fits"}.`;
    },
  });
  const row = (a, number) => element("div", { class: "row" }, element("label", { for: a.key.id }, number === 0 ? "key" : "and key"), a.key, element("label", { for: a.values.id }, "values"), a.values);
  return element("div", {}, list, axes.map(row), task, picture, table);
}
