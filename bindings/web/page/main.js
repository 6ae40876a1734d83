// The page: every change of the choices asks the engine again; the answer before stays until the new one is there.

import { comparePanel } from "./compare.js";
import { costPanel } from "./cost.js";
import { Engine, latestOnly } from "./engine.js";
import { forecast, memoryOfRanks, opTable, section } from "./forecast.js";
import { form } from "./form.js";
import { gpuGrid, layout } from "./grid.js";
import { applies, keysOfSchema, kPlanKeys } from "./keys.js";
import { standaloneSvg } from "./kit/charts.js";
import { button, copyable, download, element, note } from "./kit/dom.js";
import { bytes, seconds } from "./kit/numbers.js";
import { pasted } from "./paste.js";
import { openInPerfetto } from "./perfetto.js";
import { loadPicture, placementPicture } from "./placement.js";
import { planPanel } from "./plan.js";
import { changesOf, commandLine, hashOf, jobText, overridesOf, same, stateOf } from "./state.js";
import { sweepPanel } from "./sweep.js";
import { timelinePicture } from "./timeline.js";

const kFrameworks = ["megatron", "nemo", "torchtitan", "deepspeed"];

async function start() {
  const status = document.getElementById("status");
  const results = document.getElementById("results");
  const fresh = document.getElementById("forecast");
  const engine = new Engine();
  const began = performance.now();
  const ask = async (args) => JSON.parse((await engine.ask(args)).output);
  const [workloads, systems, schema] = await Promise.all([ask(["list", "workloads", "--format", "json"]), ask(["list", "systems", "--format", "json"]), ask(["list", "schema"])]);
  const opened = performance.now() - began;

  let state = stateOf(location.hash);
  let shown = null; // {state, set, prediction} that is drawn
  const keys = keysOfSchema(schema);
  const controls = form({ workloads, systems, keys }, edit);
  document.getElementById("choices").append(controls);

  const boxes = Object.fromEntries(["grid", "ranks", "timeline", "placement", "ops"].map((name) => [name, element("div")]));
  const cost = costPanel((run) => {
    state.run = Object.fromEntries(Object.entries(run).filter(([, v]) => v !== ""));
    history.replaceState(null, "", hashOf(state));
    tellCommand();
    if (shown) cost.show(shown.prediction, state.run);
  });
  const compare = comparePanel((args, files) => engine.ask(args, files), (other) => apply(structuredClone(other)));
  const plans = planPanel({ ask: (args, files) => engine.ask(args, files), state: () => state, take: applyPlan, now: () => shown?.prediction, frameworks: kFrameworks });
  const sweeps = sweepPanel(() => state, keys, (changes) => change(changes));
  const placementSection = section("Placement of the tables", boxes.placement);
  placementSection.hidden = true;
  const gridSection = section("GPUs", boxes.grid);
  const ranksSection = section("Memory by rank", boxes.ranks);
  const command = element("code", { id: "command" });
  const scriptBox = element("div");
  const framework = element("select", { id: "export-for" }, kFrameworks.map((name) => element("option", {}, name)));
  const exports = element("div", { class: "row" }, element("label", { for: "export-for" }, "configuration for"), framework, button("show", showScript));
  const told = element("p", { class: "facts", role: "status" });
  const withPlan = () => overridesOf(shown.state, shown.set);
  const trace = async () => (await engine.ask(["predict", ...withPlan(), "--timeline", "timeline.json"], shown.state.files)).written["timeline.json"];
  const answerOf = async (format) => (await engine.ask(["predict", ...overridesOf(state), "--format", format], state.files)).output;
  results.append(
    gridSection, ranksSection,
    section("Cost", cost),
    section("Timeline of the step", boxes.timeline),
    placementSection,
    section("Plans", plans),
    section("Compare", compare),
    section("Sweep", sweeps),
    section("Ops", boxes.ops),
    section("Export and share", element("p", {}, "The same on a command line:"), copyable(command), exports, scriptBox,
      element("div", { class: "row downloads" },
        button("job.json", () => download("job.json", jobText(state), "application/json")),
        button("CSV", async () => download("ops.csv", await answerOf("csv"), "text/csv")),
        button("JSON", async () => download("forecast.json", await answerOf("json"), "application/json")),
        button("HTML report", async () => download("forecast.html", (await engine.ask(["predict", ...overridesOf(state), "--html", "forecast.html"], state.files)).written["forecast.html"], "text/html")),
        button("SVG of the timeline", () => download("timeline.svg", standaloneSvg(boxes.timeline.querySelector("svg.timeline")), "image/svg+xml")),
        button("Perfetto trace", async () => download("timeline.json", await trace(), "application/json")),
        button("open in Perfetto", () => openInPerfetto(trace(), document.title).catch((e) => (told.textContent = e.message))),
        button("link", async (event) => {
          await navigator.clipboard.writeText(location.href);
          event.target.textContent = "link copied";
        })), told),
  );
  document.getElementById("pin").append(button("compare with ...", () => tell(`Pinned as ${compare.pin()}. Change something: both stand side by side under Compare.`), { id: "pin-now", title: "Pins this forecast: it stands beside later ones under Compare" }));

  async function showScript() {
    const answer = await engine.ask(["export", "--to", framework.value, ...withPlan()], shown.state.files);
    scriptBox.replaceChildren(answer.output === "" ? note(answer.error) : copyable(element("code", {}, answer.output)));
  }

  function tellCommand() {
    command.textContent = commandLine("predict", state);
  }

  function apply(next) {
    state = next;
    history.replaceState(null, "", hashOf(state));
    update();
  }

  /** `changes`: keys to set, "" to forget; or a text that the user pasted. */
  function change(changes, text, files) {
    if (text) {
      take(text).catch((e) => {
        tell(e.message, true);
        document.body.dataset.state = "refused";
      });
      return;
    }
    const before = state.keys.workload;
    const next = structuredClone(state);
    for (const [key, value] of Object.entries(changes)) {
      if (value === "") delete next.keys[key];
      else next.keys[key] = value;
    }
    Object.assign(next.files, files);
    if (next.keys.workload !== before) forgetWhatDoesNotApply(next);
    if ("system" in changes) for (const key of Object.keys(next.keys)) if (key.startsWith("system.")) delete next.keys[key];
    const named = Object.values(next.keys).join(" ");
    for (const name of Object.keys(next.files)) if (!named.includes(name)) delete next.files[name];
    tell("");
    apply(next);
  }

  /** What the form offers. A key of the plan that is set first comes on top of the plan that was chosen, not in its place. */
  function edit(changes, text) {
    if (text) return change(null, text);
    const sets = Object.entries(changes).some(([key, value]) => value !== "" && kPlanKeys.test(key));
    const open = !Object.keys(state.keys).some((key) => kPlanKeys.test(key) && key !== "framework");
    const chosen = sets && open && shown && same(shown.state, state) ? changesOf(shown.set) : {};
    change({ ...chosen, ...changes });
  }

  /** A pasted text becomes the choices that it stands for. */
  async function take(text) {
    let found = pasted(text, state, workloads);
    if (found.foreign) {
      const answer = await engine.ask(["described", found.foreign], found.files);
      if (answer.output === "") throw new Error(answer.error);
      found = { ...pasted(answer.output, state, workloads), what: found.what };
    }
    tell(`Taken as ${found.what}.${found.assumed ? ` Assumed: ${found.assumed.join("; ")}. Change it in the form.` : ""}`);
    apply({ keys: found.keys, files: found.files, run: state.run });
  }

  /** A plan or a fix as it was shown: its own keys, all of them, in place of those that match `instead`. */
  function applyPlan(changes, files = {}, instead) {
    const all = { ...changes };
    if (instead) for (const key of Object.keys(state.keys)) if (instead.test(key) && !(key in all)) all[key] = "";
    change(all, null, files);
  }

  function tell(text, bad = false) {
    const box = document.getElementById("told");
    box.hidden = text === "";
    box.className = bad ? "status refused" : "told";
    box.textContent = text;
  }

  /** Another model has another batch, plan and tables; keys of its kind of model stay. */
  function forgetWhatDoesNotApply(next) {
    const facts = workloads.find((w) => w.name === next.keys.workload)?.facts ?? "";
    for (const key of keys) {
      if (key.group === "batch" || key.path === "embedding.plan" || !applies(key, facts, next.keys)) delete next.keys[key.path];
    }
  }

  const forecastOf = latestOnly(async (asked, last) => {
    try {
      await drawForecast(asked, last);
    } catch (e) { // mostly for want of memory
      document.body.dataset.state = "broken";
      status.className = "status refused";
      status.textContent = `the forecast or its pictures ended with an error (${e.message}); pictures below may be of the choices before; try fewer micro-batches`;
      results.classList.add("old");
    }
  });

  async function drawForecast(asked, last) {
    const answer = await engine.ask(["forecast", ...overridesOf(asked)], asked.files);
    if (answer.output === "") {
      status.className = "status refused";
      status.textContent = answer.error;
      results.classList.add("old");
      results.classList.toggle("other", shown?.state.keys.workload !== asked.keys.workload); // nothing of another model
      document.body.dataset.state = "refused";
      return;
    }
    const prediction = JSON.parse(answer.output);
    shown = { state: asked, set: prediction.set ?? [], prediction };
    fresh.replaceChildren(...forecast(prediction).filter(Boolean));
    controls.resolved(prediction);
    boxes.ops.replaceChildren(opTable(prediction));
    boxes.grid.replaceChildren(...gpuGrid(prediction).filter(Boolean));
    gridSection.hidden = !(layout(prediction).ranks === prediction.job.devices && prediction.job.devices > 1);
    exports.hidden = prediction.job.workload.kind !== "transformer";
    scriptBox.replaceChildren();
    cost.show(prediction, asked.run);
    results.classList.remove("old", "other");
    status.className = "status";
    status.textContent = `forecast in ${Math.round(answer.milliseconds)} ms; opened in ${seconds(opened / 1000)}`;
    document.title = `${prediction.job.workload.name}: ${seconds(prediction.iteration_time_s)} a step - stepcast`;
    Object.assign(document.body.dataset, { state: "shown", hash: hashOf(asked), step: prediction.iteration_time_s, milliseconds: answer.milliseconds, opened });
    if (!prediction.fits && last()) await offerFixes(asked);
    if (!last()) return;
    await drawStep(shown);
    if (last()) await compare.show(shown, asked.run);
    document.body.dataset.state = "drawn";
  }

  /** Changes that would fit: the longer search, once the forecast is there. A button applies the whole of a fix. */
  async function offerFixes(asked) {
    const answer = await engine.ask(["predict", ...overridesOf(asked), "--format", "json"], asked.files);
    const p = JSON.parse(answer.output);
    shown.prediction = { ...shown.prediction, fixes: p.fixes, warnings: p.warnings };
    fresh.replaceChildren(...forecast(shown.prediction).filter(Boolean));
    const fixes = p.fixes ?? [];
    fresh.querySelector(".fixes").replaceChildren(...fixes.map((f, i) => element("p", { class: "fix" }, button(`${i === 0 ? "fix" : "or"}: ${f.set.join(" ")}`, () => applyPlan(changesOf(f.set)), { class: i === 0 ? "primary" : "" }),
      ` ${[f.step_s ? `${seconds(f.step_s)} a step` : "", f.memory_bytes ? bytes(f.memory_bytes) : ""].filter(Boolean).join(", ")}`)));
  }

  async function drawStep({ state: asked, set, prediction }) {
    const slowest = prediction.critical_rank;
    const answer = await engine.ask(["timeline", ...overridesOf(asked, set), "--rank", String(slowest)], asked.files);
    if (answer.output === "") return;
    const t = JSON.parse(answer.output);
    const { stageOf } = layout(prediction);
    boxes.timeline.firstChild?.ended?.();
    boxes.timeline.replaceChildren(timelinePicture(t, prediction, stageOf));
    ranksSection.hidden = t.ranks.length < 2;
    ranksSection.firstChild.textContent = (prediction.job.parallel?.pipeline ?? 1) > 1 ? "Memory by stage" : "Memory by rank";
    boxes.ranks.replaceChildren(...memoryOfRanks(t, prediction, stageOf).filter(Boolean));
    placementSection.hidden = !t.placement;
    if (t.placement) boxes.placement.replaceChildren(placementPicture(t.placement), element("h3", {}, "Busy time of each rank, by kind of op"), ...loadPicture(t.placement));
  }

  function update() {
    controls.show(state);
    tellCommand();
    document.body.dataset.state = "asked";
    forecastOf(structuredClone(state));
  }

  addEventListener("hashchange", () => {
    state = stateOf(location.hash);
    tell("");
    update();
  });
  document.getElementById("load").remove();
  document.getElementById("page").hidden = false;
  update();
}

function themeButton() {
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.style.colorScheme ? root.style.colorScheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.style.colorScheme = dark ? "light" : "dark";
  });
}

themeButton();
start().catch((e) => {
  document.body.dataset.state = "broken";
  const load = document.getElementById("load") ?? document.getElementById("status");
  load.textContent = `stepcast cannot start in this browser: ${e.message}. It needs Chromium 123, Firefox 120, Safari 17.5 or newer.`;
});
