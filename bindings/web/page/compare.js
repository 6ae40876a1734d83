// Pinned forecasts: any two side by side, and where the difference comes from (explain).

import { waterfall } from "./kit/charts.js";
import { button, element, note } from "./kit/dom.js";
import { bytes, count, percent, seconds, signed, three } from "./kit/numbers.js";
import { costOf } from "./cost.js";
import { each, interval, isTransformer, planText } from "./forecast.js";
import { jobText, same } from "./state.js";

const kRows = 12;
const kSmallest = 2e-4; // of the step: rows below stand together
const kNoise = 1e-7;    // of the step: nothing

/** The files of two states with two jobs, whose names never clash. */
function twoJobs(a, b) {
  const files = {};
  for (const [name, { state, set }] of [["a", a], ["b", b]]) {
    let text = jobText(state, set);
    for (const [file, content] of Object.entries(state.files)) {
      files[`${name}-${file}`] = content;
      text = text.replaceAll(`"./${file}"`, `"./${name}-${file}"`);
    }
    files[name + ".json"] = text;
  }
  return files;
}

/** Rows {name, delta} that matter, the rest together, float noise gone. */
function rowsOf(all, nameOf, whole) {
  const rows = all.map((r) => ({ name: nameOf(r), delta: r.delta_s })).sort((a, b) => Math.abs(b.delta) - Math.abs(a.delta));
  const big = rows.filter((r) => Math.abs(r.delta) >= kSmallest * whole).slice(0, kRows);
  const rest = rows.slice(big.length);
  const sum = rest.reduce((s, r) => s + r.delta, 0);
  if (Math.abs(sum) >= kNoise * whole) big.push({ name: `${rest.length} smaller`, delta: sum });
  return big;
}

function difference(answer, a, b) {
  const [first, last] = answer.summary.map((s) => s.kernels_only_s ?? s.step_s);
  const whole = Math.max(first, last);
  const ends = [{ name: a.name, value: first }, { name: b.name, value: last }];
  const parts = [["Change by change", rowsOf(answer.changes ?? [], (c) => c.change, whole)], ["Op by op", rowsOf(answer.rows ?? [], (r) => r.op, whole)]];
  const alone = answer.summary.some((s) => s.kernels_only_s !== undefined && Math.abs(s.step_s / s.kernels_only_s - 1) > 1e-4);
  const drawn = parts.filter(([, rows]) => rows.length > 0);
  return [drawn.length && alone ? [note("Where the difference comes from, by kernels alone: without what the framework loses between them.")] : [], ...drawn.map(([title, rows]) => [element("h3", {}, title), waterfall(rows, ...ends, `From ${a.name} to ${b.name}, ${title.toLowerCase()}`)])];
}

/** Rows of the table of two forecasts: [name, text, number, whether less is better]. */
const kFigures = [
  ["step", (p) => `${seconds(p.iteration_time_s)}`, (p) => p.iteration_time_s, true],
  ["90 % interval", (p) => interval(p).replace("90 % interval ", "")],
  ["tokens/s/GPU", (p) => (each(p) ? count(each(p)) : ""), each, false],
  ["samples/s", (p) => count(p.throughput.samples_per_s), (p) => p.throughput.samples_per_s, false],
  ["MFU", (p) => percent(p.mfu), (p) => p.mfu, false],
  ["memory", (p) => `${bytes(p.memory_bytes.total)} of ${bytes(p.memory_bytes.capacity)}${p.fits ? "" : ", out of memory"}`, (p) => p.memory_bytes.total, true],
  ["GPUs", (p) => `${count(p.job.devices)} x ${p.job.system.device?.name ?? p.job.system.name}`],
  ["plan", (p) => planText(p.job.parallel, p.job.batch, isTransformer(p))],
];

function sideBySide(a, b, run) {
  const [p, q] = [a.prediction, b.prediction];
  const rows = kFigures.map(([name, text, number, less]) => {
    const [x, y] = number ? [number(p), number(q)] : [0, 0];
    const change = number && x > 0 && y > 0 ? y / x - 1 : 0;
    const good = change === 0 ? "" : change < 0 === less ? "better" : "worse";
    return [name, text(p), text(q), Math.abs(change) >= 5e-4 ? element("span", { class: good }, signed(percent(change), change)) : ""];
  });
  const shown = { tokens: run.tokens || "1T", price: run.price || "2.50" };
  rows.push([`run of ${shown.tokens}`, costOf(p, shown), costOf(q, shown), ""]);
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Two forecasts side by side" },
    element("table", { class: "sides" }, element("caption", { class: "hidden" }, "Two forecasts side by side"),
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, element("span", { class: "hidden" }, "figure")), [a.name, b.name, "change"].map((t) => element("th", { scope: "col" }, t)))),
      element("tbody", {}, rows.filter((r) => r[1] || r[2]).map(([name, x, y, change]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, x), element("td", {}, y), element("td", { class: "number" }, change))))));
}

/** `ask(args, files)`: the engine. The panel has pin(forecast), show(forecast, run). */
export function comparePanel(ask, apply) {
  const pins = [];
  let now = null;
  let run = {};
  let asked = 0;
  const list = element("ul", { class: "pins" });
  const result = element("div");
  const first = element("select", { id: "compare-a", onchange: () => draw() });
  const second = element("select", { id: "compare-b", onchange: () => draw() });
  const chooser = element("div", { class: "row" }, element("label", { for: "compare-a" }, "compare"), first, element("label", { for: "compare-b" }, "with"), second);
  const named = (id) => (id === "now" ? { ...now, name: "now" } : pins.find((p) => p.id === id));

  function options() {
    const before = [first.value, second.value];
    for (const [select, index] of [[first, 0], [second, 1]]) {
      select.replaceChildren(...pins.map((p) => element("option", { value: p.id }, `${p.name}: ${seconds(p.prediction.iteration_time_s)}`)), element("option", { value: "now" }, "now"));
      select.value = [...select.options].some((o) => o.value === before[index]) && before[index] ? before[index] : index === 1 ? "now" : pins.at(-1)?.id ?? "now";
    }
    list.replaceChildren(...pins.map((p) => element("li", {}, element("b", {}, p.name), ` ${p.text} `, button("apply", () => apply(p.state), { class: "small", "aria-label": `apply ${p.name}` }), button("remove", () => { pins.splice(pins.indexOf(p), 1); options(); draw(); }, { class: "small", "aria-label": `remove ${p.name}` }))));
    chooser.hidden = pins.length === 0;
  }
  async function draw() {
    const mine = ++asked;
    if (pins.length === 0) {
      result.replaceChildren(note("Pin a forecast, then change something: both stand here side by side."));
      return;
    }
    const [a, b] = [named(first.value), named(second.value)];
    if (!a?.state || !b?.state) return;
    if (same(a.state, b.state) && String(a.set) === String(b.set)) {
      result.replaceChildren(note("Both are the same. Change something, or choose another."));
      return;
    }
    result.replaceChildren(sideBySide(a, b, run));
    const answer = await ask(["explain", "a.json", "b.json", "--format", "json"], twoJobs(a, b));
    if (mine !== asked) return;
    if (answer.output === "") result.append(note(answer.error));
    else result.append(...difference(JSON.parse(answer.output), a, b).flat());
  }
  const box = element("div", {}, list, chooser, result);
  box.pin = () => {
    if (!now) return;
    const letter = String.fromCharCode(65 + (pins.at(-1) ? (pins.at(-1).letter + 1) % 26 : 0));
    const p = now.prediction;
    pins.push({ ...now, id: letter, letter: letter.charCodeAt(0) - 65, name: letter, text: `${p.job.workload.name}, ${count(p.job.devices)} GPUs, ${planText(p.job.parallel, p.job.batch, isTransformer(p))}: ${seconds(p.iteration_time_s)}` });
    first.value = "";
    options();
    draw();
    return letter;
  };
  /** {state, set, prediction} that is shown now. */
  box.show = (shown, terms) => {
    now = shown;
    run = terms;
    options();
    return draw();
  };
  return box;
}
