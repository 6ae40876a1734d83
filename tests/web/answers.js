// answers.js BUILD STEPCAST [--times]: what the module of scripts/web answers is what the executable prints, byte for byte,
// but for the revision that made it (bounds of plans to 1e-12, where two C libraries round exp and log apart): a forecast of every workload of the zoo, plans, an explanation, a foreign file, an error.
"use strict";
const fs = require("fs");
const os = require("os");
const path = require("path");
const { spawnSync } = require("child_process");

const [build, named, times] = process.argv.slice(2);
const executable = path.resolve(named);
const module_ = path.resolve(build, "stepcast_web.js");
if (!fs.existsSync(module_) || !fs.existsSync(path.join(build, "data.json"))) {
  console.log(`skipped: no ${module_}; scripts/web builds it`);
  process.exit(77);
}
const openEngine = new Function(fs.readFileSync(path.join(__dirname, "../../bindings/web/page/worker.js"), "utf8") + "; return openEngine;")();

const config = JSON.stringify({ model_type: "llama", architectures: ["LlamaForCausalLM"], hidden_size: 1024, intermediate_size: 2816, num_hidden_layers: 8, num_attention_heads: 16, num_key_value_heads: 4, vocab_size: 32000, max_position_embeddings: 2048, hidden_act: "silu", tie_word_embeddings: false, rms_norm_eps: 1e-5, rope_theta: 10000, torch_dtype: "bfloat16" });
const tables = "name,rows,dim,pooling\na,1000000,64,10\nb,50000,64,1\nc,2000,32,4\n";

/** Do two texts differ only in numbers, and these in what the last digits of exp and log may do? */
function close(a, b) {
  const number = /-?\d+(?:\.\d+)?(?:e[-+]?\d+)?/g;
  if (a.replace(number, "#") !== b.replace(number, "#")) return false;
  const [x, y] = [a.match(number), b.match(number)];
  return x.every((v, i) => v === y[i] || Math.abs(v - y[i]) <= 1e-12 * Math.abs(v));
}

/** What may differ: who made it, how long that took, how many plans a search priced before their bounds ruled them out, and digits past the 12th, which are the math library's. */
const told = (text) => text.replace(/-?\d+\.\d{10,}(e[-+]?\d+)?/g, (x) => Number(Number(x).toPrecision(12)).toFixed(13)).replace(/"git": "[^"]*"/, '"git"').replace(/"(seconds|simulation_seconds|fewer_devices_seconds|evaluations|bounded)": [^,\n]*/g, '"$1"');
const set = (...keys) => keys.flatMap((k) => ["--set", k]);

(async () => {
  const call = await openEngine(require(module_), fs.readFileSync(path.join(build, "stepcast_web.wasm")), JSON.parse(fs.readFileSync(path.join(build, "data.json"), "utf8")), () => {});
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "stepcast-web-"));
  let compared = 0;
  const failures = [];
  function compare(args, files = {}, equal = (a, b) => a === b) {
    for (const [name, text] of Object.entries(files)) fs.writeFileSync(path.join(folder, name), text);
    const own = spawnSync(executable, args, { cwd: folder, encoding: "utf8", maxBuffer: 1 << 28 });
    const page = call(args, files);
    compared++;
    const [expected, found] = [own.stdout, page.output].map(told);
    const what = args.join(" ");
    if (own.status !== page.code) failures.push(`${what}: exit code ${page.code}, the executable's is ${own.status}: ${page.error}`);
    else if (!equal(expected, found)) {
      const [a, b] = [expected.split("\n"), found.split("\n")];
      const line = a.findIndex((l, i) => l !== b[i]);
      failures.push(`${what}: line ${line + 1}: ${b[line]}, the executable prints ${a[line]}`);
    } else if (own.status === 2 && !own.stderr.includes(page.error)) failures.push(`${what}: says ${page.error}, the executable ${own.stderr}`);
    return page;
  }
  const workloads = JSON.parse(call(["list", "workloads", "--format", "json"]).output);
  for (const { name } of workloads) {
    const page = compare(["predict", ...set(`workload=${name}`, "system=dgx-h100"), "--format", "json"]);
    if (times) console.log(`${name}: ${page.milliseconds.toFixed(0)} ms`);
  }
  const systems = JSON.parse(call(["list", "systems", "--format", "json"]).output);
  for (const { name } of systems) compare(["predict", ...set("workload=llama3-8b", `system=${name}`, "parallel.tensor=2", "parallel.zero=3"), "--format", "json"]);
  compare(["predict", ...set("workload=llama3-70b", "system=dgx-h100", "devices=512", "parallel.tensor=8", "parallel.pipeline=4"), "--format", "csv"]);
  compare(["predict", ...set("workload=./config.json", "system=dgx-a100-80gb", "batch.global=64", "batch.micro=1", "batch.sequence=2048"), "--format", "json"], { "config.json": config });
  compare(["predict", ...set("workload=./tables.csv", "system=dgx-a100-80gb", "batch.global=4096"), "--format", "json"], { "tables.csv": tables });
  compare(["sweep", ...set("workload=llama3-8b", "system=dgx-h100", "devices=8,16", "parallel.tensor=1,2,16"), "--format", "json"]);
  compare(["plan", ...set("workload=llama3-8b", "system=dgx-h100", "devices=8"), "--front", "--same-devices", "--jobs", "1", "--format", "json"], {}, close);
  compare(["plan", ...set("workload=dlrm-default", "system=dgx-a100-80gb", "devices=8"), "--format", "json"], {}, close);
  compare(["explain", "a.json", "b.json", "--format", "json"], {
    "a.json": '{"workload": "llama2-7b", "system": "dgx-a100-80gb"}',
    "b.json": '{"workload": "llama2-7b", "system": "dgx-a100-80gb", "parallel": {"tensor": 4}}',
  });
  compare(["predict", ...set("workload=llama9", "system=dgx-h100"), "--format", "json"]);
  fs.rmSync(folder, { recursive: true });
  failures.forEach((f) => console.log(f));
  console.log(`${compared} answers compared, ${failures.length} differ`);
  if (workloads.length < 40 || systems.length < 20) {
    console.log("the library of the page is not whole");
    process.exit(1);
  }
  process.exit(failures.length === 0 ? 0 : 1);
})();
