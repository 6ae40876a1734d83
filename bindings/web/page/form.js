// The form: the model, the GPUs, batch and plan; every other key of a job under "advanced".

import { cluster } from "./cluster.js";
import { applies, kPlanKeys } from "./keys.js";
import { button, element } from "./kit/dom.js";
import { kPlace } from "./state.js";

const kKinds = { transformer: "Transformers", dit: "Diffusion transformers", dlrm: "Recommendation models", dhen: "Recommendation models", wukong: "Recommendation models" };
const kGroups = { batch: "batch", parallel: "parallelism", formats: "number formats", embedding: "embedding tables", job: "other", host: "host", lora: "LoRA", sequence_lengths: "sequence lengths", offload: "offload" };

/** Options in groups, in the order in which groups come first. */
function grouped(items, groupOf, textOf) {
  const groups = new Map();
  for (const item of items) groups.set(groupOf(item), [...(groups.get(groupOf(item)) ?? []), item]);
  return [...groups].map(([name, all]) => element("optgroup", { label: name }, all.map((item) => element("option", { value: item.name }, textOf(item)))));
}
const deviceOf = (system) => / of ([\w-]+)/.exec(system.facts)?.[1] ?? system.name;
const makerOf = (system) => (/^(mi\d)/.test(deviceOf(system)) ? "AMD" : /^tpu/.test(deviceOf(system)) ? "Google" : /^trn/.test(deviceOf(system)) ? "AWS" : "NVIDIA");

/** `offer(changes, text)`: keys that the user changed, "" to forget; or a text that was pasted. */
export function form(catalogue, offer) {
  const { keys, workloads, systems } = catalogue;
  const inputs = new Map();
  const facts = (name) => workloads.find((w) => w.name === name)?.facts ?? "";
  const field = (id, label, unit, ...control) => element("div", { class: "field" }, element("label", { for: id }, label, unit ? element("small", {}, unit) : null), element("span", { class: "control" }, control));

  const factsLine = element("p", { class: "facts" });
  const own = element("option", { value: "", hidden: true }, "pasted");
  const workload = element("select", { id: "workload", onchange: () => offer({ workload: workload.value }) }, own, grouped([...workloads].sort((a, b) => kindRank(a) - kindRank(b)), (w) => kKinds[w.facts.split(",")[0]] ?? "Other models", (w) => w.name));
  const ownSystem = element("option", { value: "", hidden: true }, "pasted");
  const system = element("select", { id: "system", onchange: () => offer({ system: system.value }) }, ownSystem, grouped(systems, makerOf, (s) => `${deviceOf(s).replace(/-(sxm|80gb).*/, "").toUpperCase()} (${s.name})`));
  const devices = element("input", { id: "devices", type: "number", min: 1, max: 1048576, inputmode: "numeric", oninput: () => offer({ devices: devices.value }) });
  const now = () => Number(devices.value || devices.placeholder || 8);
  const steps = element("span", { class: "steps" },
    button("÷2", () => offer({ devices: String(Math.max(1, Math.floor(now() / 2))) }), { "aria-label": "÷2: half the GPUs" }),
    button("×2", () => offer({ devices: String(now() * 2) }), { "aria-label": "×2: twice the GPUs" }));

  for (const key of keys) {
    const id = "key-" + key.path.replaceAll(".", "-");
    const told = () => offer({ [key.path]: input.value });
    const usual = typeof key.usual === "object" ? JSON.stringify(key.usual) : String(key.usual);
    const input = key.values
      ? element("select", { id, onchange: told }, element("option", { value: "" }, usual === "" ? "default" : `${usual} (default)`), key.values.map((v) => element("option", { value: v }, v)))
      : element("input", { id, type: key.text ? "text" : "number", min: key.low, max: key.high, placeholder: usual, oninput: told });
    if (key.path === "embedding.plan") input.setAttribute("list", "known-table-plans");
    input.title = `${key.help} (${key.path})`;
    input.setAttribute("aria-describedby", id + "-help");
    const row = field(id, key.name, key.unit, input);
    row.append(element("small", { id: id + "-help", class: "hidden" }, key.help));
    inputs.set(key.path, { input, row, key });
  }
  const rows = (of) => [...inputs.values()].filter(({ key }) => of(key)).map(({ row }) => row);
  const inBatch = (key) => ["batch.global", "batch.sequence"].includes(key.path);
  const planHead = element("p", { class: "plan-head" });
  const forget = button("let stepcast choose", () => offer(Object.fromEntries([...inputs.keys(), ...unlisted].filter((k) => ofPlan(k)).map((k) => [k, ""]))), { class: "small" });
  const kPlan = (key) => key.simple && !inBatch(key);
  const groups = [...new Set(keys.filter((k) => !k.simple).map((k) => k.group))];
  const sections = groups.map((group) => element("fieldset", {}, element("legend", {}, kGroups[group] ?? group), rows((k) => !k.simple && k.group === group)));

  const text = element("textarea", { id: "paste", rows: 5, spellcheck: "false", placeholder: "config.json or link of Hugging Face, job, plan or forecast (JSON), system (JSON), arguments of Megatron-LM, list of tables (CSV)" });
  const use = () => text.value.trim() !== "" && offer(null, text.value);
  const chosen = element("input", { type: "file", id: "file", onchange: async () => {
    if (chosen.files.length === 0) return;
    text.value = await chosen.files[0].text();
    use();
  } });
  text.addEventListener("paste", () => setTimeout(use));
  const paste = element("details", {}, element("summary", {}, "paste or open a model, job or system"),
    element("label", { for: "paste", class: "hidden" }, "text of a model, job, plan or system"), text,
    element("div", { class: "row" }, button("use this text", use), element("label", { for: "file" }, "or a file"), chosen));

  let unlisted = [];
  const more = element("textarea", { id: "more", rows: 2, spellcheck: "false", placeholder: "key=value, one a line", onchange: () => {
    const changes = Object.fromEntries(unlisted.map((path) => [path, ""]));
    for (const line of more.value.split("\n").map((l) => l.trim()).filter((l) => l.includes("="))) changes[line.slice(0, line.indexOf("="))] = line.slice(line.indexOf("=") + 1);
    offer(changes);
  } });
  const clusterForm = cluster(offer);
  const advanced = element("details", {}, element("summary", {}, "advanced"), sections, element("fieldset", {}, element("legend", {}, "any key"), element("label", { for: "more", class: "hidden" }, "as for --set"), more));

  const box = element("form", { class: "controls", onsubmit: (e) => e.preventDefault(), "aria-label": "What to forecast" },
    field("workload", "model", "", workload), factsLine, paste,
    field("system", "GPU", "system", system), field("devices", "GPUs", "", devices, steps), clusterForm,
    element("fieldset", {}, element("legend", {}, "batch of a step"), rows(inBatch)),
    element("details", { open: matchMedia("(min-width: 901px)").matches }, element("summary", {}, "plan"), planHead, rows(kPlan), forget),
    advanced, element("datalist", { id: "known-table-plans" }, ["auto", "search"].map((value) => element("option", { value }))));

  /** Puts a state into the form. */
  box.show = (state) => {
    const named = workloads.some((w) => w.name === state.keys.workload);
    own.hidden = named;
    own.textContent = state.keys.workload;
    workload.value = named ? state.keys.workload : "";
    const known = systems.some((s) => s.name === state.keys.system);
    ownSystem.hidden = known;
    ownSystem.textContent = state.keys.system ?? "";
    system.value = known ? state.keys.system : "";
    if (devices.value !== (state.keys.devices ?? "")) devices.value = state.keys.devices ?? "";
    const f = facts(state.keys.workload);
    factsLine.textContent = f;
    for (const [path, { input, row, key }] of inputs) {
      const value = state.keys[path] ?? "";
      if (key.values && value !== "" && !key.values.includes(value)) input.append(element("option", { value }, value));
      if (input.value !== value) input.value = value;
      row.hidden = value === "" && !applies(key, f, state.keys);
      row.classList.toggle("set", value !== "");
    }
    clusterForm.show(state.keys);
    inputs.get("batch.global").row.querySelector("small").textContent = f === "" || f.startsWith("transformer") ? "sequences" : "samples";
    for (const section of sections) section.hidden = [...section.querySelectorAll(".field")].every((r) => r.hidden);
    unlisted = Object.keys(state.keys).filter((k) => !inputs.has(k) && !kPlace.includes(k) && !k.startsWith("system."));
    more.value = unlisted.filter((k) => state.keys[k] !== "").map((k) => `${k}=${state.keys[k]}`).join("\n");
    forget.hidden = !Object.keys(state.keys).some((k) => ofPlan(k) && state.keys[k] !== "");
  };
  /** What the keys that are not set came to in a job that was resolved; `chosen`: by the engine. */
  box.resolved = (p) => {
    for (const [path, { input, key }] of inputs) {
      const value = path === "framework" ? p.framework : path.split(".").reduce((at, part) => at?.[part], p.job);
      if (value === undefined || (typeof value === "object" && value !== null)) continue;
      const mark = p.plan_chosen && ofPlan(path) ? "chosen" : "default";
      if (key.values) input.options[0].textContent = input.value === "" ? `${value} (${mark})` : "default";
      else input.placeholder = String(value);
    }
    devices.placeholder = p.job.devices;
    planHead.textContent = p.plan_chosen ? "No field is set, so stepcast chose the plan." : "";
    planHead.hidden = !p.plan_chosen;
    clusterForm.resolved(p.job.system);
  };
  return box;
}

const ofPlan = (path) => kPlanKeys.test(path) && !["framework", "stack"].includes(path);

function kindRank(workload) {
  const kind = workload.facts.split(",")[0];
  const at = ["transformer", "dlrm", "dhen", "wukong", "dit"].indexOf(kind);
  return at < 0 ? 9 : at;
}
