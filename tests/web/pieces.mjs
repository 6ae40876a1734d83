// Pieces of the page that need no browser: numbers, what a pasted text is, where ranks lie, what a link holds.
import assert from "node:assert/strict";
import { layout } from "../../bindings/web/page/grid.js";
import { amount, axisSeconds, seconds, ticks } from "../../bindings/web/page/kit/numbers.js";
import { pasted } from "../../bindings/web/page/paste.js";
import { commandLine, hashOf, jobText, overridesOf, stateOf } from "../../bindings/web/page/state.js";

assert.equal(seconds(0.0000125), "12.5 µs");
assert.equal(seconds(54.26), "54.3 s");
assert.deepEqual([amount("15T"), amount("1.5e9"), amount("300B")], [15e12, 1.5e9, 300e9]);

// Neighbours on an axis differ, however short the span: 100 ns at 1.96 s.
for (const span of [1e-7, 1e-5, 1e-3, 0.1, 3]) {
  const marks = ticks(1.96, 1.96 + span, 6);
  assert.equal(new Set(axisSeconds(marks)).size, marks.length, `${span}: ${axisSeconds(marks)}`);
}
assert.deepEqual(axisSeconds([0, 0.5, 1]), ["0", "0.5 s", "1.0 s"]);

const state = { keys: { workload: "llama3-8b", system: "dgx-h100", devices: "16", "parallel.tensor": "2" }, files: {}, run: {} };
const models = [{ name: "llama3-8b" }, { name: "qwen3-32b" }];
const of = (text) => pasted(typeof text === "string" ? text : JSON.stringify(text), state, models);
assert.equal(of("https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct").keys.workload, "llama3-8b");
assert.equal(of("Qwen/Qwen3-32B").keys.workload, "qwen3-32b");
const system = of({ name: "mine", fabric: [], device: "h100-sxm-80gb" });
assert.deepEqual([system.keys.system, system.keys.workload, system.keys["parallel.tensor"]], ["./system.json", "llama3-8b", "2"]);
const config = of({ model_type: "llama", hidden_size: 64, max_position_embeddings: 131072 });
assert.deepEqual([config.keys["batch.sequence"], config.keys["batch.global"], config.keys["parallel.tensor"], config.keys.devices], ["8192", "512", undefined, "16"]);
assert.equal(of("--num-layers 2 \\\n --hidden-size 64").foreign, "arguments.sh");
assert.equal(of("name,rows,dim\na,10,8\n").keys["batch.global"], String(8192 * 16));
assert.equal(of({ workload: "qwen3-32b", parallel: { tensor: 4 } }).keys.system, "dgx-h100");
for (const [text, said] of [['{"a": 1,\n "b": ', /line 2/], ["hello", /none of/], ["https://example.org/x", /fetches nothing/], ["[1]", /list/], [{ memory: "80 GiB", bandwidth: "3 TB/s" }, /device/]]) {
  assert.throws(() => of(text), said);
}

const job = (parallel, order) => ({ job: { devices: 16, workload: { kind: "transformer" }, parallel: { tensor: 2, context: 1, pipeline: 4, data: 2, order } } });
const inside = layout(job({}, "tensor-context-pipeline-data")); // a replica's stages lie side by side
assert.deepEqual([inside.stageOf(0), inside.stageOf(2), inside.stageOf(7), inside.stageOf(8)], [0, 1, 3, 0]);
const outside = layout(job({}, "tensor-context-expert-data-pipeline"));
assert.deepEqual([outside.stageOf(3), outside.stageOf(4), outside.rankOf({ tensor: 1, data: 1, pipeline: 2 })], [0, 1, 11]);

assert.deepEqual(stateOf(hashOf({ ...state, run: { tokens: "15T" } })), { ...state, run: { tokens: "15T" } });
assert.equal(commandLine("predict", state), "stepcast llama3-8b --on dgx-h100 -n 16 --tp 2");
assert.deepEqual(overridesOf(state, ["parallel.zero=1"]).slice(-2), ["--set", "parallel.zero=1"]);
assert.equal(JSON.parse(jobText(state, ["parallel.zero=1"])).parallel.zero, 1);
console.log("the pieces of the page are right");
