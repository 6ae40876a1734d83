// What the user chose: a workload, a system, devices, keys of a job by their dotted path, and texts that stand for files.
// It lives in the address, so that a link is the forecast.

const kFirst = { workload: "llama3-8b", system: "dgx-h100", devices: "64" };
const kPlace = ["workload", "system", "devices"];

/** {keys: {path: text}, files: {name: text}} */
function stateOf(hash) {
  const state = { keys: {}, files: {} };
  for (const [key, value] of new URLSearchParams(hash.replace(/^#/, ""))) {
    if (key.startsWith("file:")) state.files[key.slice(5)] = value;
    else state.keys[key] = value;
  }
  if (!("workload" in state.keys)) Object.assign(state.keys, kFirst);
  return state;
}

function hashOf(state) {
  const all = new URLSearchParams();
  for (const [key, value] of Object.entries(state.keys)) all.append(key, value);
  for (const [name, text] of Object.entries(state.files)) all.append("file:" + name, text);
  return "#" + all.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
}

/** --set KEY=VALUE, place first. */
function overridesOf(state) {
  const keys = [...kPlace.filter((k) => k in state.keys), ...Object.keys(state.keys).filter((k) => !kPlace.includes(k))];
  return keys.filter((k) => state.keys[k] !== "").flatMap((k) => ["--set", `${k}=${state.keys[k]}`]);
}

const quoted = (word) => (/^[\w./:=+,@%-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);
const commandLine = (command, state, more = []) => ["stepcast", command, ...overridesOf(state), ...more].map(quoted).join(" ");

/** A value as --set takes it: JSON, else a text. */
function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** job.json: the same keys as objects. */
function jobOf(state) {
  const job = { stepcast: 1 };
  for (const [path, text] of Object.entries(state.keys)) {
    if (text === "") continue;
    const parts = path.split(".");
    let at = job;
    for (const part of parts.slice(0, -1)) {
      if (typeof at[part] !== "object" || at[part] === null) at[part] = {};
      at = at[part];
    }
    at[parts.at(-1)] = valueOf(text);
  }
  return job;
}

const jobText = (state) => JSON.stringify(jobOf(state), null, 2) + "\n";
const same = (a, b) => JSON.stringify([a.keys, a.files]) === JSON.stringify([b.keys, b.files]);
