// What the user chose: a model, a system, GPUs, keys of a job by their dotted path, texts that stand for files, and the
// length and price of a run. It lives in the address, so that a link is the forecast.

const kFirst = { workload: "llama3-8b", system: "dgx-h100" };
export const kPlace = ["workload", "system", "devices"];
const kRun = ["tokens", "price"];

/** {keys: {path: text}, files: {name: text}, run: {tokens, price}} */
export function stateOf(hash) {
  const state = { keys: {}, files: {}, run: {} };
  for (const [key, value] of new URLSearchParams(hash.replace(/^#/, ""))) {
    if (key.startsWith("file:")) state.files[key.slice(5)] = value;
    else if (kRun.includes(key)) state.run[key] = value;
    else state.keys[key] = value;
  }
  if (!("workload" in state.keys)) Object.assign(state.keys, kFirst);
  return state;
}

export function hashOf(state) {
  const all = new URLSearchParams();
  for (const [key, value] of [...Object.entries(state.keys), ...Object.entries(state.run)]) all.append(key, value);
  for (const [name, text] of Object.entries(state.files)) all.append("file:" + name, text);
  return "#" + all.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
}

/** Keys in the order in which overrides are read: place first. */
const orderedKeys = (state) => [...kPlace.filter((k) => k in state.keys), ...Object.keys(state.keys).filter((k) => !kPlace.includes(k))].filter((k) => state.keys[k] !== "");

/** --set KEY=VALUE of a state, and of a set that comes on top, such as that of a chosen plan. */
export const overridesOf = (state, set = []) => [...orderedKeys(state).map((k) => `${k}=${state.keys[k]}`), ...set].flatMap((s) => ["--set", s]);

/** What a list of KEY=VALUE changes. */
export const changesOf = (set) => Object.fromEntries(set.map((s) => [s.slice(0, s.indexOf("=")), s.slice(s.indexOf("=") + 1)]));

const quoted = (word) => (/^[\w./:=+,@%-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

// Flags of the command line in place of --set.
const kFlags = {
  system: "--on", devices: "-n", "parallel.tensor": "--tp", "parallel.pipeline": "--pp", "parallel.virtual_stages": "--vpp", "parallel.context": "--cp",
  "parallel.expert": "--ep", "parallel.data": "--dp", "parallel.zero": "--zero", "batch.global": "--gbs", "batch.micro": "--mbs", "batch.sequence": "--seq",
  "parallel.recompute": "--recompute", "formats.compute": "--precision", framework: "--framework",
};

export function commandLine(command, state, more = []) {
  const words = ["stepcast", ...(command === "predict" ? [] : [command]), state.keys.workload];
  for (const key of orderedKeys(state)) {
    if (key === "workload") continue;
    const value = state.keys[key];
    words.push(...(kFlags[key] && !/[[{]/.test(value) && (command === "sweep" || !value.includes(",")) ? [kFlags[key], value] : ["--set", `${key}=${value}`]));
  }
  if (command === "predict" && state.run.tokens) words.push("--tokens", state.run.tokens, ...(state.run.price ? ["--price", state.run.price] : []));
  return [...words, ...more].map(quoted).join(" ");
}

/** A value as --set takes it: JSON, else a text. */
function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** job.json: the same keys as objects; `set` on top. */
export function jobText(state, set = []) {
  const job = { stepcast: 1 };
  for (const [path, text] of Object.entries({ ...state.keys, ...changesOf(set) })) {
    if (text === "") continue;
    const parts = path.split(".");
    let at = job;
    for (const part of parts.slice(0, -1)) {
      if (typeof at[part] !== "object" || at[part] === null) at[part] = {};
      at = at[part];
    }
    at[parts.at(-1)] = valueOf(text);
  }
  return JSON.stringify(job, null, 2) + "\n";
}

export const same = (a, b) => JSON.stringify([a.keys, a.files]) === JSON.stringify([b.keys, b.files]);
