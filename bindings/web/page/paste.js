// Texts of the user's: what they are, which choices they stand for, what was assumed because they do not say it.

import { count } from "./kit/numbers.js";
import { kPlace } from "./state.js";

const kLongest = 8192; // assumed of a model that could read more
const kTokens = 2 ** 22; // of a step

/** Errors: a message for the user. */
class NoChoice extends Error {}

function brokenJson(text, error) {
  const at = Number(/position (\d+)/.exec(error.message)?.[1] ?? text.length);
  const before = text.slice(0, at).split("\n");
  return new NoChoice(`This text begins as JSON but is broken at line ${before.length}, column ${before.at(-1).length + 1}: ${error.message.replace(/ in JSON.*| \(line.*/, "")}.`);
}

/** Keys of a job that was written as objects; parts with documents of their own become files. */
function ofJob(job) {
  const keys = {};
  const files = {};
  const visit = (value, path) => {
    const leaf = typeof value !== "object" || value === null || Array.isArray(value) || ["workload", "system"].includes(path);
    if (!leaf) {
      for (const [k, v] of Object.entries(value)) visit(v, path ? path + "." + k : k);
    } else if (path !== "stepcast") keys[path] = typeof value === "string" ? value : JSON.stringify(value);
  };
  visit(job, "");
  for (const place of ["workload", "system"]) {
    if (typeof job[place] === "object") {
      files[place + ".json"] = JSON.stringify(job[place]);
      keys[place] = "./" + place + ".json";
    }
  }
  return { keys, files, what: "a job" };
}

function ofTables(plan, text) {
  const { workload, system, devices, made_for: made } = plan;
  const batch = made?.["batch.global"];
  return { keys: { workload, system, devices: String(devices), ...(batch ? { "batch.global": String(batch) } : {}), "embedding.plan": "./plan.json" }, files: { "plan.json": text }, what: "a plan of embedding tables" };
}

/** Where the model is to run: what was chosen before. */
const placeOf = (state) => Object.fromEntries(kPlace.filter((k) => k !== "workload" && state.keys[k]).map((k) => [k, state.keys[k]]));

function ofModel(config, text, state) {
  const longest = config.max_position_embeddings ?? config.n_positions ?? config.text_config?.max_position_embeddings;
  const sequence = Math.min(longest ?? 4096, kLongest);
  const global = Math.max(1, 2 ** Math.floor(Math.log2(kTokens / sequence)));
  const name = config._name_or_path || config.architectures?.[0] || config.model_type || "a model";
  return {
    keys: { workload: "./config.json", ...placeOf(state), "batch.global": String(global), "batch.sequence": String(sequence) },
    files: { "config.json": text },
    what: `a model of Hugging Face (${name})`,
    assumed: [`sequences of ${count(sequence)} tokens${longest > sequence ? ` (the model reads up to ${count(longest)})` : longest ? "" : ", as the config names no longest one"}`, `a global batch of ${global} sequences (${count(global * sequence)} tokens)`],
  };
}

/** What is left of a name once letters, digits and the order of a family are all that counts. */
const plain = (name) => name.toLowerCase().replace(/instruct|base|chat|-hf|meta-|v0\.\d/g, "").replace(/llama-?3\.1|llama-?3\.3/g, "llama3").replace(/[^a-z0-9]/g, "");

function ofLink(link, state, workloads) {
  const named = /huggingface\.co\/([\w.-]+\/[\w.-]+)/.exec(link)?.[1] ?? /^([\w.-]+\/[\w.-]+)$/.exec(link)?.[1];
  const model = (named ?? link).split("/").at(-1);
  const found = workloads.find((w) => plain(w.name) === plain(model));
  if (found) return { keys: { workload: found.name, ...placeOf(state) }, files: {}, what: `the link of a model that is built in: ${found.name}`, assumed: ["the batch and sequence that come with it"] };
  throw new NoChoice(named
    ? `${named} is not built in, and this page fetches nothing. Open https://huggingface.co/${named}/raw/main/config.json and paste its text here.`
    : "This page fetches nothing: open the link and paste the text that it shows.");
}

function ofObject(object, text, state) {
  if (object.kind === "parallel" && object.job) return { ...ofJob(object.job), what: "a plan" };
  if (object.iteration_time_s !== undefined && object.job) return { ...ofJob(object.job), what: "a forecast; its job" };
  if (Array.isArray(object.plans) && object.plans[0]) return ofObject(object.plans[0], JSON.stringify(object.plans[0]), state);
  if (object.kind === "embedding" && object.tables) return ofTables(object, text);
  if ("workload" in object) {
    const found = ofJob(object);
    return "system" in object ? found : { ...found, keys: { ...placeOf(state), ...found.keys } };
  }
  if ("fabric" in object) {
    return { keys: { ...state.keys, system: "./system.json" }, files: { ...state.files, "system.json": text }, what: `a system (${object.name ?? "without a name"})`, assumed: [`the model that was chosen${object.fitted ? "" : "; collectives at the limits of its links, for it has no measured constants"}`] };
  }
  if (object.model_type || object.architectures || object.hidden_size || object.n_embd || object.text_config) return ofModel(object, text, state);
  if (object.kind) return { keys: { workload: "./workload.json", ...placeOf(state) }, files: { "workload.json": text }, what: `a workload (${object.kind})` };
  if (object.memory && object.bandwidth) throw new NoChoice("This is a device. A system has it with the fabric around it: {\"name\": .., \"device\": {..}, \"fabric\": [..], \"host\": {..}}.");
  throw new NoChoice(`This JSON has the keys ${Object.keys(object).slice(0, 6).join(", ")}; a job has workload, a system fabric, a model of Hugging Face model_type, a workload or plan kind.`);
}

/** The choices that a pasted text stands for: {keys, files, what, assumed}; with `foreign` the engine has to read that file. Errors: NoChoice. */
export function pasted(given, state, workloads) {
  const found = recognised(given, state, workloads);
  if (found.keys?.system === "./system.json") found.files["system.json"] ??= state.files["system.json"];
  return found;
}

function recognised(given, state, workloads) {
  const text = given.trim();
  if (/^https?:\/\/\S+$/.test(text) || /^[\w.-]+\/[\w.-]+$/.test(text)) return ofLink(text, state, workloads);
  const exact = workloads.find((w) => plain(w.name) === plain(text));
  if (exact) return { keys: { workload: exact.name, ...placeOf(state) }, files: {}, what: `the name of a model that is built in: ${exact.name}` };
  if (/^[[{]/.test(text)) {
    let object;
    try {
      object = JSON.parse(text);
    } catch (e) {
      if (!(e instanceof SyntaxError)) throw e;
      throw brokenJson(text, e);
    }
    if (Array.isArray(object)) throw new NoChoice("This JSON is a list; a job, a system, a model or a plan is an object.");
    return ofObject(object, text, state);
  }
  if (/--num-layers/.test(text)) return { foreign: "arguments.sh", files: { "arguments.sh": text }, what: "arguments of Megatron-LM" };
  const [head, ...rows] = text.split(/\r?\n/);
  if (rows.length > 0 && /rows|num_embeddings|hash_size|cardinality/i.test(head) && /[,;\t]/.test(head)) {
    const each = 8192;
    return {
      keys: { workload: "./tables.csv", ...placeOf(state), devices: state.keys.devices ?? "8", "batch.global": String(each * (state.keys.devices ?? 8)) },
      files: { "tables.csv": text },
      what: `a list of ${rows.filter((r) => r.trim()).length} embedding tables`,
      assumed: [`${count(each)} samples a GPU and step`, "no dense layers"],
    };
  }
  throw new NoChoice(`This text is none of: a job, a plan or a forecast of stepcast (JSON), config.json or a link of Hugging Face, arguments of Megatron-LM (--hidden-size ...), a system (JSON with "fabric"), a list of tables (CSV with rows and dim).`);
}
