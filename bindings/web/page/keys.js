// The keys of a job as its schema describes them: which apply to a kind of model, how a person calls them, their units.

import { kPlace } from "./state.js";

/** Names and units of the keys of the simple form, in its order; the rest stands under "advanced". */
export const kSimple = {
  "batch.global": ["global batch", "samples"],
  "batch.sequence": ["sequence", "tokens"],
  "parallel.tensor": ["TP", "tensor parallel"],
  "parallel.pipeline": ["PP", "pipeline stages"],
  "parallel.virtual_stages": ["VPP", "chunks a stage"],
  "parallel.context": ["CP", "context parallel"],
  "parallel.expert": ["EP", "expert parallel"],
  "parallel.zero": ["ZeRO", "stage"],
  "batch.micro": ["micro-batch", "sequences"],
  "parallel.recompute": ["recompute", ""],
  "formats.compute": ["precision", ""],
  framework: ["framework", ""],
  "embedding.plan": ["table plan", ""],
};
const kUnits = {
  "parallel.bucket": "bytes", "parallel.bucket_elements": "elements", "parallel.chunk_microbatches": "micro-batches", "sequence_lengths.mean": "tokens", "sequence_lengths.deviation": "tokens",
  cached: "tokens", "lora.rank": "columns", "host.issue": "an op", "embedding.sync_interval": "steps", "embedding.tower_compression": "times", "parallel.data": "replicas",
};
/** Keys that make a job literal: where none is set the engine chooses a plan. */
export const kPlanKeys = /^(parallel\.(tensor|context|expert|expert_tensor|pipeline|data|virtual_stages|schedule|sequence_parallel|zero|recompute|pipeline_split|order|overlap\..*)|batch\.micro|framework|stack|embedding\.plan)$/;

/** Keys with one value, from the schema: [{path, group, name, unit, help, usual, applies, values | low, high | text}]. */
export function keysOfSchema(schema) {
  const keys = [];
  const visit = (properties, prefix) => {
    for (const [last, p] of Object.entries(properties)) {
      const path = prefix + last;
      if (kPlace.includes(path) || path === "stepcast" || path === "stack") continue;
      const forms = p.anyOf ?? [p];
      const choices = forms.flatMap((f) => f.enum ?? []);
      const whole = forms.find((f) => f.type === "integer");
      const group = prefix ? path.split(".")[0] : "job";
      const [name, unit] = kSimple[path] ?? [path.replace(group + ".", "").replaceAll("_", " ").replace(".", ": "), kUnits[path] ?? ""];
      const key = { path, group, name, unit, simple: path in kSimple, help: p.description, usual: p.default ?? p.$comment ?? "", applies: p["x-applies-to"] ?? "" };
      if (p.type === "object") {
        if (p.properties) visit(p.properties, path + ".");
      } else if (p.type === "boolean") keys.push({ ...key, values: ["true", "false"] });
      else if (choices.length > 0 && !whole) keys.push({ ...key, values: choices });
      else if (whole && whole.maximum - whole.minimum < 8) {
        keys.push({ ...key, values: [...choices, ...Array.from({ length: whole.maximum - whole.minimum + 1 }, (_, i) => String(whole.minimum + i))] });
      } else if (whole && choices.length === 0) keys.push({ ...key, low: whole.minimum, high: whole.maximum });
      else if (whole || forms.some((f) => f.type === "string" || f.type === "number")) keys.push({ ...key, text: true });
    }
  };
  visit(schema.properties, "");
  const order = Object.keys(kSimple);
  return keys.sort((a, b) => (a.simple && b.simple ? order.indexOf(a.path) - order.indexOf(b.path) : Number(b.simple) - Number(a.simple)));
}

/** Whether a key says something of a model, by the line of facts that `list workloads` prints; `keys` are those chosen. */
export function applies(key, facts, keys = {}) {
  const tables = / tables?,/.test(facts);
  if (facts !== "") {
    if (/expert|dispatch/.test(key.path) && !/ experts/.test(facts)) return false;
    if ((key.group === "embedding" && !tables) || (key.path === "framework" && tables)) return false;
    if (/^(attention|loss|epilogues|lora|sequence_lengths|offload|graphs|parallel\.(schedule|bucket_elements|context_algorithm|order))/.test(key.path) && tables) return false;
    if (/^formats\.(embedding|all_to_all)/.test(key.path) && !tables) return false;
  }
  if (["cached", "formats.cache"].includes(key.path) && !["prefill", "decode"].includes(keys.phase)) return false;
  if (key.path === "parallel.virtual_stages" && !(Number(keys["parallel.pipeline"]) > 1)) return false;
  if (key.applies === "" || facts === "") return true;
  const kind = facts.split(",")[0];
  return key.applies.split(", ").some((to) => (to === "workloads with tables" ? tables : to === "workloads without tables" ? !tables : to === kind || to === kind + "s" || (to === "graph" && !["transformer", "dlrm"].includes(kind))));
}
