// Forecasts over the values of one key or two: a curve for each value of the second, and every point as a row.

import { colour, points } from "./kit/charts.js";
import { button, download, element, legend, sortableTable } from "./kit/dom.js";
import { axisSeconds, bytes, count, percent, seconds } from "./kit/numbers.js";
import { written } from "./plan.js";
import { commandLine, overridesOf } from "./state.js";
import { longTask } from "./task.js";

const kMeasures = {
  "step time": { of: (p) => p.iteration_time_s, text: seconds, axis: axisSeconds, low: (p) => p.interval_s?.p5, high: (p) => p.interval_s?.p95 },
  "tokens/s": { of: (p) => p.tokens_per_s, text: count },
  "samples/s": { of: (p) => p.samples_per_s, text: count },
  MFU: { of: (p) => p.mfu, text: percent },
  memory: { of: (p) => p.memory_bytes, text: bytes },
};
const sets = (p) => Object.entries(p.set).map(([k, v]) => `${k}=${written(v)}`).join(" ");

function sweepPicture(all, axes, measure) {
  const first = [...new Set(all.map((p) => written(p.set[axes[0]])))];
  const second = axes[1] ? [...new Set(all.map((p) => written(p.set[axes[1]])))] : [""];
  const known = all.filter((p) => p.iteration_time_s !== undefined && measure.of(p) > 0);
  const numbers = first.every((v) => v !== "" && Number(v) > 0) && first.length > 1;
  const place = (v) => (numbers ? Number(v) : first.indexOf(v));
  const groups = second.map((line, n) => ({
    colour: colour(n), joined: true,
    points: known.filter((p) => !axes[1] || written(p.set[axes[1]]) === line)
      .map((p) => ({ x: place(written(p.set[axes[0]])), y: measure.of(p), low: measure.low?.(p), high: measure.high?.(p), hollow: !p.fits, title: `${sets(p)}: ${measure.text(measure.of(p))}${p.fits ? "" : ", out of memory"}` }))
      .sort((a, b) => a.x - b.x),
  }));
  const xAxis = { title: axes[0] === "devices" ? "GPUs" : axes[0], ticks: first.map(place), text: (v) => v.map((x) => (numbers ? String(x) : first[x])), log: numbers };
  return [points(groups, xAxis, { title: "", text: measure.axis ?? ((v) => v.map(measure.text)), zero: true }, `${known.length} forecasts by ${axes.join(" and ")}; the table below has them`),
    ...(axes[1] ? [legend(second.map((v, n) => [`${axes[1]}=${v}`, colour(n)]))] : [])];
}

/** `state()` what is chosen, `keys` their paths, `take(changes)` puts a point into it. */
export function sweepPanel(state, keys, take) {
  const choices = [["devices", "GPUs"], ["system", "system"], ["workload", "model"], ...keys.filter((k) => k.simple).map((k) => [k.path, k.name]), ...keys.filter((k) => !k.simple).map((k) => [k.path, k.path])];
  const axis = (number, key, values, none) => ({
    key: element("select", { id: `sweep-key-${number}` }, none ? element("option", { value: "" }, "none") : null, choices.map(([path, name]) => element("option", { value: path, selected: path === key }, name))),
    values: element("input", { id: `sweep-values-${number}`, value: values, placeholder: "values, with commas between", spellcheck: "false" }),
  });
  const axes = [axis(1, "devices", "8,16,32,64"), axis(2, "", "", true)];
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
      const used = axes.filter((a) => a.key.value !== "" && a.values.value.trim() !== "");
      for (const a of used) asked.keys[a.key.value] = a.values.value.trim();
      return { args: ["sweep", ...overridesOf(asked), "--jobs", "1", "--format", "json"], files: asked.files, axes: used.map((a) => a.key.value), line: commandLine("sweep", asked) };
    },
    show(found, asked, answer, took) {
      shown = { points: found.points, axes: asked.axes.length ? asked.axes : Object.keys(found.points[0].set) };
      draw();
      const fastest = found.points.filter((p) => p.fits).sort((a, b) => a.iteration_time_s - b.iteration_time_s)[0];
      const text = (measureOf) => (p) => (p.iteration_time_s === undefined ? "" : kMeasures[measureOf].text(kMeasures[measureOf].of(p)));
      const column = (name) => ({ title: name, of: text(name), sort: (p) => kMeasures[name].of(p) ?? Infinity, number: true });
      table.replaceChildren(
        sortableTable([{ title: "point", of: sets }, { title: "status", of: (p) => p.status, exact: (p) => p.reason }, ...Object.keys(kMeasures).map(column),
          { title: "apply", of: (p) => button("use", () => take(Object.fromEntries(Object.entries(p.set).map(([k, v]) => [k, written(v)])))), sort: () => 0 }], found.points, "Points of the sweep"),
        element("p", { class: "row" }, button("download sweep.json", () => download("sweep.json", answer.output, "application/json")), element("code", {}, asked.line)));
      return `${found.points.length} forecasts in ${seconds(took)}${fastest ? `; the fastest that fits: ${sets(fastest)}, ${seconds(fastest.iteration_time_s)}` : "; none fits"}.`;
    },
  });
  const row = (a, number) => element("div", { class: "row" }, element("label", { for: a.key.id }, number === 0 ? "over" : "and"), a.key, element("label", { for: a.values.id, class: "hidden" }, "values"), a.values);
  return element("div", {}, axes.map(row), task, picture, table);
}
