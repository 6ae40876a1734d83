// The search of plans: in a worker of its own, with its progress; the front as a picture; each plan is applied as it is shown.

import { Engine } from "./engine.js";
import { points } from "./kit/charts.js";
import { button, download, element, note, sortableTable } from "./kit/dom.js";
import { axisSeconds, bytes, count, percent, seconds, three } from "./kit/numbers.js";
import { planText } from "./forecast.js";
import { kPlanKeys } from "./keys.js";
import { changesOf, commandLine, overridesOf } from "./state.js";
import { longTask } from "./task.js";

export const written = (v) => (typeof v === "object" ? JSON.stringify(v) : String(v));

/** Keys of a point of the front, on the framework of the plans. */
function keysOfPoint(p, framework) {
  const keys = { ...framework, devices: p.devices, "batch.micro": p.micro };
  for (const k of ["tensor", "context", "expert", "pipeline", "virtual_stages", "schedule", "sequence_parallel", "zero", "recompute", "pipeline_split"]) {
    if (k in p) keys["parallel." + k] = p[k];
  }
  return Object.fromEntries(Object.entries(keys).map(([k, v]) => [k, written(v)]));
}

function frontPicture(found, take, framework, now) {
  const capacity = found.plans[0].memory_bytes.capacity / 2 ** 30;
  const best = Math.min(...found.front.map((p) => p.step_s));
  const point = (p) => ({ x: p.memory_bytes / 2 ** 30, y: p.step_s, title: `${seconds(p.step_s)}, ${bytes(p.memory_bytes)}: ${planText(p)}`, name: p.step_s === best ? planText(p).split(",")[0] : "", take: () => take(keysOfPoint(p, framework)) });
  const front = [...found.front].sort((a, b) => a.step_s - b.step_s).map(point);
  const groups = [{ colour: "var(--c1)", joined: true, points: front }];
  if (now) groups.push({ colour: "var(--c2)", points: [{ x: now.memory_bytes.total / 2 ** 30, y: now.iteration_time_s, mark: true, name: "now", title: `now: ${seconds(now.iteration_time_s)}, ${bytes(now.memory_bytes.total)}` }] });
  return points(groups, { title: "memory of the fullest GPU, GiB", text: (v) => v.map(three) }, { title: "step", text: axisSeconds, log: true }, "Plans than which none is both faster and smaller", { x: capacity, name: "capacity" });
}

/** `ask(args, files)`; `state()` what is chosen; `take(changes, files)` applies a plan; `now()` the forecast shown. */
export function planPanel({ ask, state, take, now, frameworks }) {
  const result = element("div");
  const keep = element("input", { type: "checkbox", id: "keep-keys" });
  const framework = element("select", { id: "plan-export" }, frameworks.map((name) => element("option", {}, name)));

  /** A plan as the page applies it: the whole of its own `set`, in place of every key of a plan. */
  const setOf = (p, asked) => (p.set ? changesOf(p.set) : { ...asked.plain, "embedding.plan": "./plan.json" });

  function table(found, asked) {
    const parallel = found.plans[0].kind === "parallel";
    const filesOf = (p) => (parallel ? {} : { "plan.json": JSON.stringify(p) });
    const use = (p) => take(parallel ? setOf(p, asked) : { "embedding.plan": "./plan.json" }, filesOf(p), kPlanKeys);
    const script = async (p) => {
      const on = structuredClone(asked.state);
      const answer = await ask(["export", "--to", framework.value, ...overridesOf(on, p.set)], on.files);
      if (answer.output === "") alertLine.textContent = answer.error;
      else download(framework.value === "megatron" ? "train.sh" : `${framework.value}.${/^\s*\{/.test(answer.output) ? "json" : /^\s*\[/.test(answer.output) ? "toml" : "yaml"}`, answer.output);
    };
    const alertLine = element("p", { class: "facts", role: "status" });
    const columns = [
      { title: "step", of: (p) => seconds(p.predicted_step_s), sort: (p) => p.predicted_step_s, number: true, exact: (p) => `${p.predicted_step_s} s` },
      { title: "90 % interval", of: (p) => (p.interval_s ? `${three(p.interval_s.p5)} to ${seconds(p.interval_s.p95)}` : ""), sort: (p) => p.interval_s?.p95 ?? 0, number: true },
      ...(parallel
        ? [{ title: "plan", of: (p) => planText(p.job?.parallel ?? p.plan, p.job?.batch ?? p.plan), class: "name" },
          { title: "framework", of: (p) => p.framework ?? found.framework ?? "" },
          { title: "MFU", of: (p) => percent(p.mfu), sort: (p) => p.mfu, number: true },
          { title: "memory", of: (p) => bytes(p.memory_bytes.total), sort: (p) => p.memory_bytes.total, number: true }]
        : [{ title: "found by", of: (p) => p.planner }, { title: "tables by sharding", of: (p) => Object.entries(p.mix ?? {}).map(([k, n]) => `${n} ${k}`).join(", ") }]),
      { title: "above the bound", of: (p) => (p.gap === null ? "" : percent(p.gap)), sort: (p) => p.gap ?? 9, number: true },
      { title: "apply", of: (p) => element("span", { class: "control" }, button("use", () => use(p)), parallel ? button("script", () => script(p)) : null), sort: () => 0 },
    ];
    return [sortableTable(columns, found.plans, "Fastest plans"), alertLine];
  }

  function show(found, asked, answer, took) {
    result.replaceChildren();
    if (answer.code > 1) return answer.error;
    if (!found.plans?.length) return found.infeasible ?? found.reason ?? answer.error ?? "No plan fits.";
    const front = element("div");
    if (asked.front) drawFront(front, found, asked);
    result.replaceChildren(
      ...table(found, asked),
      ...(found.plans[0].warnings ?? found.warnings ?? []).map((w) => note(`Plan 1: ${w}.`)),
      front,
      element("p", { class: "row" }, button("download plans.json", () => download("plans.json", JSON.stringify(found, null, 2), "application/json")), element("code", {}, asked.line)),
    );
    const within = found.bound.gap > 5e-4 ? `; the fastest is within ${percent(found.bound.gap)} of the lower bound` : "";
    return `${count(found.search.space)} plans searched in ${seconds(took)}${found.bound.proven ? "; optimal in the searched space" : within}.`;
  }
  /** The front takes longer than the plans: it is asked for once they stand there. */
  async function drawFront(box, found, asked) {
    box.replaceChildren(note("Step time against memory: searching ..."));
    frontEngine?.stop();
    const own = (frontEngine = new Engine());
    try {
      const answer = await own.ask([...asked.args, "--front", "--same-devices"], asked.files);
      const { front } = JSON.parse(answer.output);
      const named = Object.entries(changesOf(found.plans[0].set ?? [])).filter(([k]) => ["framework", "stack"].includes(k));
      box.replaceChildren(element("h3", {}, "Step time against memory"), note("In closed form; click a plan to apply it."), frontPicture({ ...found, front }, (changes) => take(changes, {}, kPlanKeys), Object.fromEntries(named), now()));
    } catch (e) {
      if (own === frontEngine) box.replaceChildren(note(`No front: ${e.message}`));
    }
    own.stop();
  }
  let frontEngine = null;
  const beside = element("span", { class: "row" }, keep, element("label", { for: "keep-keys" }, "keep the plan keys I set"), element("label", { for: "plan-export" }, "scripts for"), framework);
  const task = longTask({
    start: "search plans",
    running: "searching",
    stopped: "The search was stopped.",
    beside: [beside],
    args() {
      const asked = structuredClone(state());
      asked.keys.devices ??= String(now()?.job.devices ?? 8);
      if (!keep.checked) for (const key of Object.keys(asked.keys)) if (kPlanKeys.test(key) && !["framework", "stack"].includes(key)) delete asked.keys[key];
      const parallel = now()?.job.workload.kind === "transformer";
      frontEngine?.stop();
      result.replaceChildren();
      return { args: ["plan", ...overridesOf(asked), ...(parallel ? ["--jobs", "1"] : []), "--format", "json"], front: parallel, files: asked.files, state: asked, line: commandLine("plan", asked) };
    },
    show,
  });
  return element("div", {}, task, result);
}
