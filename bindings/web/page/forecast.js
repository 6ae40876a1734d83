// One forecast: what a document of predict says, as numbers, bars and a table.

import { barRows, ofKind, stackedBar } from "./kit/charts.js";
import { element, note, sortableTable } from "./kit/dom.js";
import { bytes, count, percent, seconds, three } from "./kit/numbers.js";

const kNames = { compute: "compute", exposed_communication: "exposed communication", bubble: "pipeline bubble", host: "host", other: "other" };
const words = (key) => kNames[key] ?? key.replaceAll("_", " ");

/** Bytes by the words of the vocabulary, largest first. */
const memoryParts = (memory) => Object.entries(memory).filter(([key, value]) => !["total", "capacity", "free"].includes(key) && value > 0).sort((a, b) => b[1] - a[1]);

function fact(title, value, small, exact, bad) {
  return element("div", { class: bad ? "fact bad" : "fact" }, element("dt", {}, title), element("dd", { title: exact }, value, small ? element("small", {}, small) : null));
}

export const interval = (p) => (p.interval_s ? `90 % interval ${three(p.interval_s.p5)} to ${seconds(p.interval_s.p95)}` : "");
export const each = (p) => p.throughput.tokens_per_s / p.job.devices || 0;
export const frameworkOf = (p) => p.framework ?? "";
export const capacityText = (p) => `${bytes(p.memory_bytes.total)} of ${bytes(p.memory_bytes.capacity)}`;

function headline(p) {
  const step = p.iteration_time_s;
  const { total, capacity } = p.memory_bytes;
  const fits = p.fit === "likely" ? "unlikely to fit" : p.fits ? `fits, ${bytes(capacity - total)} free` : "out of memory";
  return element("dl", { class: "facts-row" },
    fact("step", seconds(step), interval(p), `${step} s`),
    p.throughput.tokens_per_s > 0
      ? fact("tokens/s/GPU", count(each(p)), `${count(p.throughput.tokens_per_s)} tokens/s in all`, each(p))
      : fact("samples/s", count(p.throughput.samples_per_s), `${count(p.throughput.samples_per_s / p.job.devices)} a GPU`, p.throughput.samples_per_s),
    fact("MFU", percent(p.mfu), `HFU ${percent(p.hfu)}, of ${p.flops.peak_format} peak`, p.mfu),
    fact("memory", bytes(total), `of ${bytes(capacity)}: ${fits}`, `${total} B`, !p.fits));
}

/** "TP2 PP4 (VPP2) DP2, ZeRO-1, micro-batch 1, 1F1B" */
export function planText(parallel, batch, transformer = true) {
  const d = (name, v) => (v > 1 ? `${name}${v}` : "");
  const q = parallel ?? {};
  const degrees = [d("TP", q.tensor) + (q.tensor > 1 && q.sequence_parallel ? "+SP" : ""), d("CP", q.context), d("EP", q.expert), d("PP", q.pipeline) + (q.virtual_stages > 1 ? ` (VPP${q.virtual_stages})` : ""), q.data >= 1 ? `DP${q.data}` : ""].filter(Boolean).join(" ");
  const micro = batch?.micro ?? q.micro;
  const recompute = typeof q.recompute === "object" ? "recompute in part" : q.recompute && q.recompute !== "none" ? `recompute ${q.recompute}` : "";
  const zero = typeof q.zero === "object" ? "sharded" : q.zero > 0 ? `ZeRO-${q.zero}` : "";
  return [degrees, zero, transformer && micro ? `micro-batch ${micro}` : "", q.pipeline > 1 ? String(q.schedule ?? "").toUpperCase() : "", recompute].filter(Boolean).join(", ");
}

export const isTransformer = (p) => p.job.workload.kind === "transformer";

/** The lines above the figures: the job, its plan, who chose it. */
export function title(p) {
  const { job } = p;
  const device = job.system.device?.name ?? job.system.device ?? "";
  const batch = job.batch.sequence ? `${count(job.batch.global)} x ${count(job.batch.sequence)} tokens` : `${count(job.batch.global)} samples`;
  const framework = frameworkOf(p) ? `${frameworkOf(p)}${p.framework_implied ? " (default)" : ""}` : "kernels alone, no framework";
  const plan = planText(job.parallel, job.batch, isTransformer(p));
  return element("div", { class: "title" },
    element("h2", {}, `${job.workload.name} on ${count(job.devices)} x ${device}`),
    element("p", {}, [job.system.name, framework, job.formats?.compute, `global batch ${batch}`].filter(Boolean).join(" · ")),
    element("p", {}, element("b", {}, plan || "one GPU"), p.plan_chosen ? ` chosen by stepcast: best of ${p.plans_tried} tried; "search plans" below searches all` : ""));
}

// A job without stages has no pipeline bubble: its ranks wait for each other at exchanges.
const partOf = (p) => (key) => (key === "bubble" && !(p.job.parallel?.pipeline > 1) ? "waits for other ranks" : words(key));

const timeParts = (p, time) => Object.entries(time).filter(([, value]) => value >= 5e-4 * p.iteration_time_s).map(([key, value]) => ({ name: partOf(p)(key), value, colour: ofKind(key), text: `${seconds(value)} (${percent(value / p.iteration_time_s)})` }));

export function opTable(p) {
  const whole = p.iteration_time_s;
  const parts = p.ops.map((o) => {
    const [, name, phase] = /^(.*) \[(.*)\]$/.exec(o.name) ?? [null, o.name, ""];
    return { ...o, short: name, phase };
  });
  return sortableTable(
    [
      { title: "op", of: (o) => o.short, class: "name" },
      { title: "time", of: (o) => seconds(o.time_s), sort: (o) => o.time_s, exact: (o) => `${o.time_s} s`, number: true },
      { title: "of the step", of: (o) => percent(o.time_s / whole), sort: (o) => o.time_s, number: true },
      { title: "wait", of: (o) => (o.wait_s > 0 ? seconds(o.wait_s) : ""), sort: (o) => o.wait_s, number: true },
      { title: "bound by", of: (o) => o.bound },
      { title: "times", of: (o) => count(o.executions), sort: (o) => o.executions, number: true },
      { title: "phase", of: (o) => o.phase.replaceAll("_", " ") },
      { title: "kind", of: (o) => o.kind.replaceAll("_", " ") },
      { title: "measured", of: (o) => (o.in_calibrated_range ? "yes" : "no"), sort: (o) => Number(o.in_calibrated_range), exact: (o) => o.model },
    ],
    parts,
    `Ops of rank ${p.critical_rank}, longest first`,
    (o) => `${o.name} ${o.kind} ${o.bound}`.toLowerCase(),
  );
}

export const section = (name, ...children) => element("section", {}, element("h2", {}, name), children);

const kMisfit = /^(does not fit|out of memory)/i;

/** Warnings but for those that a fix or the headline says. */
function notes(p) {
  const all = (p.warnings ?? []).filter((w) => !p.fixes?.length || !kMisfit.test(w));
  return all.length > 0 ? element("ul", { class: all.some((w) => kMisfit.test(w)) ? "warnings misfit" : "warnings" }, all.map((w) => element("li", {}, w))) : null;
}

export function forecast(p) {
  return [
    title(p),
    headline(p),
    element("div", { class: "fixes" }),
    notes(p),
    section(`Time, critical path (rank ${p.critical_rank})`, stackedBar(timeParts(p, p.time_s), p.iteration_time_s, "Time of a step")),
    section(`Memory, fullest GPU (rank ${p.fullest_rank})`,
      stackedBar(memoryParts(p.memory_bytes).map(([key, value]) => ({ name: key, value, colour: ofKind(key), text: bytes(value) })), p.memory_bytes.capacity, `Memory of ${bytes(p.memory_bytes.capacity)}`, p.memory_bytes.capacity),
      note(p.fit === "likely" ? `${bytes(p.memory_bytes.total)} needed, ${bytes(p.memory_bytes.capacity)} available: 1 forecast in 100 is so much too high.` : p.fits ? "" : `${bytes(p.memory_bytes.total)} needed, ${bytes(p.memory_bytes.capacity)} available${p.fixes?.length ? "; see the fix above" : ""}.`)),
  ];
}

const kMostRanks = 8;

/** Memory of a rank of each kind that is drawn, the fullest first where there are no stages. */
export function memoryOfRanks(t, p, stageOf) {
  const stages = (p.job.parallel?.pipeline ?? 1) > 1;
  const total = (r) => Object.values(r.memory_bytes).reduce((sum, v) => sum + v, 0);
  const all = stages ? t.ranks : [...t.ranks].sort((a, b) => total(b) - total(a));
  const shown = all.slice(0, stages ? 64 : kMostRanks);
  const rest = all.slice(shown.length).map(total);
  const rows = shown.map((r) => ({
    name: stages ? `stage ${stageOf(r.rank)}, rank ${r.rank}` : `rank ${r.rank}`,
    title: r.alike > 1 ? `rank ${r.rank} (same as ${r.alike - 1} others)` : `rank ${r.rank}`,
    parts: Object.entries(p.memory_bytes).filter(([kind]) => r.memory_bytes[kind] > 0).map(([kind]) => ({ kind, value: r.memory_bytes[kind] })), // in one order
    mark: p.memory_bytes.capacity,
  }));
  return [barRows(rows, bytes, "Memory by rank"), rest.length ? note(`${rest.length} more kinds of ranks: ${bytes(Math.min(...rest))} to ${bytes(Math.max(...rest))}.`) : null];
}
