// The form: workload, system, devices, and the keys of a job as the job's schema describes them.

/** Keys with one value, from the schema: [{path, group, help, usual, applies, values | low, high | text}]. */
function keysOfSchema(schema) {
  const keys = [];
  const visit = (properties, prefix) => {
    for (const [name, p] of Object.entries(properties)) {
      const path = prefix + name;
      if (kPlace.includes(path) || path === "stepcast") continue;
      const forms = p.anyOf ?? [p];
      const words = forms.flatMap((f) => f.enum ?? []);
      const whole = forms.find((f) => f.type === "integer");
      const key = { path, group: prefix ? path.split(".")[0] : "job", help: p.description, usual: p.default ?? p.$comment ?? "", applies: p["x-applies-to"] ?? "" };
      if (p.type === "object") {
        if (p.properties) visit(p.properties, path + ".");
      } else if (p.type === "boolean") keys.push({ ...key, values: ["true", "false"] });
      else if (words.length > 0 && !whole) keys.push({ ...key, values: words });
      else if (whole && whole.maximum - whole.minimum < 8) {
        const all = Array.from({ length: whole.maximum - whole.minimum + 1 }, (_, i) => String(whole.minimum + i));
        keys.push({ ...key, values: [...words, ...all] });
      } else if (whole && words.length === 0) keys.push({ ...key, low: whole.minimum, high: whole.maximum });
      else if (whole || forms.some((f) => f.type === "string" || f.type === "number")) keys.push({ ...key, text: true });
    }
  };
  visit(schema.properties, "");
  return keys;
}

/** Whether a key says something of a workload, by the line of facts that `list workloads` prints. */
function applies(key, facts) {
  if (key.applies === "" || facts === "") return true;
  const kind = facts.split(",")[0];
  const tables = / tables,/.test(facts);
  return key.applies.split(", ").some((to) => to === "workloads with tables" ? tables : to === "workloads without tables" ? !tables : to === kind || to === kind + "s" || (to === "graph" && !["transformer", "dlrm"].includes(kind)));
}

const kFirstGroups = ["batch", "parallel"];

function controls(catalogue, offer) {
  const { keys, workloads, systems } = catalogue;
  const inputs = new Map();
  const wide = matchMedia("(min-width: 901px)").matches;
  const groups = new Map();
  const facts = (name) => workloads.find((w) => w.name === name)?.facts ?? "";

  const factsLine = element("p", { class: "facts" });
  const own = element("option", { value: "", hidden: true }, "pasted");
  const workload = element("select", { id: "workload", onchange: () => offer({ workload: workload.value }) }, own,
    workloads.map((w) => element("option", { value: w.name }, w.name)));
  const system = element("select", { id: "system", onchange: () => offer({ system: system.value }) }, systems.map((s) => element("option", { value: s.name }, s.name)));
  const devices = element("input", { id: "devices", type: "number", min: 1, max: 1048576, inputmode: "numeric", oninput: () => devices.value && offer({ devices: devices.value }) });
  const steps = element("span", { class: "steps" },
    element("button", { type: "button", "aria-label": "÷2: half the devices", onclick: () => offer({ devices: String(Math.max(1, Math.floor(devices.value / 2))) }) }, "÷2"),
    element("button", { type: "button", "aria-label": "×2: twice the devices", onclick: () => offer({ devices: String(devices.value * 2) }) }, "×2"));
  const field = (id, label, ...control) => element("div", { class: "field" }, element("label", { for: id }, label), element("span", { class: "control" }, control));

  for (const key of keys) {
    const id = "key-" + key.path.replaceAll(".", "-");
    const told = () => offer({ [key.path]: input.value });
    const usual = typeof key.usual === "object" ? JSON.stringify(key.usual) : String(key.usual);
    const input = key.values
      ? element("select", { id, onchange: told }, element("option", { value: "" }, usual === "" ? "as usual" : `${usual} (usual)`), key.values.map((v) => element("option", { value: v }, v)))
      : element("input", { id, type: key.text ? "text" : "number", min: key.low, max: key.high, placeholder: usual, oninput: told });
    input.title = key.help;
    input.setAttribute("aria-describedby", id + "-help");
    const name = key.path.startsWith(key.group + ".") ? key.path.slice(key.group.length + 1) : key.path;
    const row = element("div", { class: "field" }, element("label", { for: id, title: key.help }, name.replaceAll("_", " ").replace(".", ": ")), element("span", { class: "control" }, input), element("small", { id: id + "-help", class: "hidden" }, key.help));
    inputs.set(key.path, { input, row, key });
    if (!groups.has(key.group)) groups.set(key.group, []);
    groups.get(key.group).push(row);
  }
  const sections = [...groups].map(([name, rows]) =>
    element("details", { open: wide && kFirstGroups.includes(name) }, element("summary", {}, name === "job" ? "other keys" : name), element("div", { class: "fields" }, rows)));

  // A text of the user's: a job of ours replaces all choices; another tool's file becomes the workload.
  const text = element("textarea", { id: "paste", rows: 6, spellcheck: "false", placeholder: "job.json, plan.json, config.json of Hugging Face, arguments of Megatron-LM, a table list (CSV)" });
  const use = () => {
    if (text.value.trim() !== "") offer(null, text.value);
  };
  const chosen = element("input", { type: "file", id: "file", onchange: async () => {
    if (chosen.files.length === 0) return;
    text.value = await chosen.files[0].text();
    use();
  } });
  const paste = element("details", {}, element("summary", {}, "paste or open a file"),
    element("label", { for: "paste", class: "hidden" }, "text of a workload or job"), text,
    element("div", { class: "row" }, element("button", { type: "button", onclick: use }, "use this text"), element("label", { for: "file" }, "or open a file"), chosen));

  const more = element("textarea", { id: "more", rows: 2, spellcheck: "false", placeholder: "key=value, one a line", onchange: () => {
    const lines = text_lines(more.value);
    const changes = {};
    for (const path of unlisted) changes[path] = "";
    for (const line of lines) changes[line.slice(0, line.indexOf("="))] = line.slice(line.indexOf("=") + 1);
    offer(changes);
  } });
  let unlisted = [];
  const text_lines = (t) => t.split("\n").map((l) => l.trim()).filter((l) => l.includes("="));

  const form = element("form", { class: "controls", onsubmit: (e) => e.preventDefault(), "aria-label": "What to forecast" },
    field("workload", "workload", workload), factsLine, paste,
    field("system", "system", system), field("devices", "devices", devices, steps),
    sections,
    element("details", {}, element("summary", {}, "any key"), element("label", { for: "more" }, "as for --set"), more),
    element("button", { type: "button", onclick: () => offer(Object.fromEntries([...inputs.keys(), ...unlisted].map((k) => [k, ""]))) }, "forget the plan"));

  /** Puts a state into the form. */
  form.show = (state) => {
    const named = workloads.some((w) => w.name === state.keys.workload);
    own.hidden = named;
    own.textContent = state.keys.workload;
    workload.value = named ? state.keys.workload : "";
    system.value = state.keys.system ?? "";
    if (devices.value !== state.keys.devices) devices.value = state.keys.devices ?? "";
    const f = facts(state.keys.workload);
    factsLine.textContent = f;
    for (const [path, { input, row, key }] of inputs) {
      const value = state.keys[path] ?? "";
      if (key.values && value !== "" && !key.values.includes(value)) input.append(element("option", { value }, value));
      if (input.value !== value) input.value = value;
      row.hidden = value === "" && !applies(key, f);
      row.classList.toggle("set", value !== "");
    }
    for (const section of sections) section.hidden = [...section.querySelectorAll(".field")].every((r) => r.hidden);
    unlisted = Object.keys(state.keys).filter((k) => !inputs.has(k) && !kPlace.includes(k));
    more.value = unlisted.filter((k) => state.keys[k] !== "").map((k) => `${k}=${state.keys[k]}`).join("\n");
  };
  /** What the keys that are not set came to in a job that was resolved. */
  form.resolved = (job) => {
    for (const [path, { input, key }] of inputs) {
      const value = path.split(".").reduce((at, part) => at?.[part], job);
      if (value === undefined || (typeof value === "object" && value !== null)) continue;
      if (key.values) input.options[0].textContent = `${value} (usual)`;
      else input.placeholder = String(value);
      if (input.value !== "" && key.values) input.options[0].textContent = "as usual";
    }
  };
  return form;
}

/** The choices that a pasted text stands for, on top of `state`. */
function pasted(text, state) {
  let object = null;
  try {
    object = JSON.parse(text);
  } catch {
    // no JSON: what it is is for the engine to say
  }
  if (object?.kind === "parallel" && object.job) object = object.job; // a plan of a transformer is its job
  if (object?.kind === "embedding" && object.tables) {
    const { workload, system, devices, made_for: made } = object;
    const keys = { workload, system, devices: String(devices), ...(made?.["batch.global"] ? { "batch.global": String(made["batch.global"]) } : {}) };
    return { keys: { ...keys, "embedding.plan": "./plan.json" }, files: { "plan.json": text } };
  }
  if (object && typeof object === "object" && "workload" in object) {
    const keys = {};
    const files = {};
    const visit = (value, path) => {
      const leaf = typeof value !== "object" || value === null || Array.isArray(value) || ["workload", "system"].includes(path);
      if (!leaf) {
        for (const [k, v] of Object.entries(value)) visit(v, path ? path + "." + k : k);
      } else if (path !== "stepcast") keys[path] = typeof value === "string" ? value : JSON.stringify(value);
    };
    visit(object, "");
    for (const place of ["workload", "system"]) {
      if (typeof object[place] === "object") {
        files[place + ".json"] = JSON.stringify(object[place]);
        keys[place] = "./" + place + ".json";
      }
    }
    return { keys, files };
  }
  const name = object ? "config.json" : /^\s*(--|\S+=|#!)|--\w/m.test(text) ? "arguments.sh" : "tables.csv";
  const keep = Object.fromEntries(kPlace.filter((k) => k !== "workload").map((k) => [k, state.keys[k]]));
  return { keys: { workload: "./" + name, ...keep }, files: { [name]: text } };
}
