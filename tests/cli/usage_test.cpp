// Commands that users type and what they get: exit codes, one document on standard output, whole
// files or none.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "command_line.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const Words kSmall = "--set workload=rm1 --set system=dgx-h100";

Words predict(const Words& more) { return "predict" + kSmall + more; }

}  // namespace

TEST_CASE("JSON output by --format json is one document and nothing else", "[cli]") {
  const json prediction = answer(predict({}));
  for (const char* key :
       {"stepcast", "job", "iteration_time_s", "in_calibrated_range", "throughput", "flops", "mfu",
        "hfu", "time_s", "memory_bytes", "fits", "warnings"}) {
    INFO(key);
    CHECK(prediction.contains(key));
  }
  double sum = 0;
  for (const auto& part : prediction["time_s"]) {
    sum += part.get<double>();
  }
  CHECK(sum == Approx(prediction["iteration_time_s"].get<double>()).epsilon(1e-9));
  for (const char* what : {"workloads", "systems", "devices", "formats", "models"}) {
    INFO(what);
    CHECK_FALSE(answer({"list", what}).empty());
  }
}

TEST_CASE("predict exits with 1 when the job does not fit, and still predicts", "[cli]") {
  const Words large = "predict gpt3-175b --set system=dgx-h100 --as-is --format json";
  const Outcome outcome = call(large);
  CHECK(outcome.code == 1);
  CHECK(json::parse(outcome.out)["fits"] == false);
  CHECK_FALSE(json::parse(outcome.out)["fixes"].empty());
  succeeded(large + "--allow-oom");
  succeeded(predict({}));  // fits
}

TEST_CASE("predict exits with 1 and a fix when the job is over by what few forecasts err by",
          "[cli]") {
  const Words job = "predict llama3-8b -n 8 --zero 1 --gbs 8 --seq 4k --format json";
  const double total = document(call(job)).at("memory_bytes").at("total");
  const Words over =  // by 2 %
      job + Words{"--set", fmt::format("system.device.memory={:.0f} B", total / 1.02)};
  const Outcome outcome = call(over);
  CHECK(outcome.code == 1);
  const json said = json::parse(outcome.out);
  CHECK(said["fit"] == "likely");
  CHECK_THAT(said["warnings"][0].get<std::string>(), Contains("unlikely to fit"));
  CHECK_FALSE(said["fixes"].empty());
  succeeded(over + "--allow-oom");
}

namespace {

/// Commands after "stepcast " in a text whose lines were wrapped, up to two spaces, "`" or "(".
std::vector<std::string> suggested(std::string text) {
  text = std::regex_replace(text, std::regex("\n {2,}(--)"), " $1");
  std::vector<std::string> all;
  const std::regex command("stepcast ([^`\n]*?)(?=  |`|\n| +\\()");
  for (std::sregex_iterator at(text.begin(), text.end(), command), end; at != end; ++at) {
    all.push_back((*at)[1]);
  }
  return all;
}

/// True of commands of built-in models alone.
bool needs_no_file(const std::string& command) {
  const auto words = words_of(command);
  return std::any_of(words.begin(), words.end(),
                     [](const std::string& word) { return word.find("llama3") == 0; });
}

}  // namespace

TEST_CASE("every command that the tool suggests works", "[cli]") {
  const Folder folder;
  std::set<std::string> all;
  std::vector<Outcome> said{call({})};
  for (const char* command : {"predict", "sweep", "diff", "show", "plan"}) {
    said.push_back(call({"help", command}));
  }
  for (const char* job : {"llama3-8b -n 8", "llama3-70b -n 16", "llama3-8b -n 8 --tp 2"}) {
    said.push_back(call(words_of(job), "", 300));
  }
  for (const Outcome& outcome : said) {
    for (const std::string& command : suggested(outcome.out)) {
      if (needs_no_file(command)) {
        all.insert(command);
      }
    }
  }
  CHECK(all.size() > 10);
  for (const std::string& command : all) {
    Words words = words_of(command);
    for (std::string& word : words) {
      if (word == "train.sh" || word == "out.html") {
        word = folder / word;
      }
    }
    const Outcome outcome = call(words, "", 600);
    CAPTURE(command, outcome.err);
    CHECK(outcome.code == 0);
  }
}

TEST_CASE("decoding says what is cached", "[cli]") {
  const Words job = "llama3-8b -n 8 --set phase=decode";
  CHECK_THAT(call(job).out, Contains(", 0 cached") && Contains("0 cached tokens"));
  CHECK_THAT(call(job + "--set cached=8k --gbs 64").out,
             Contains(", 8192 cached") && !Contains("0 cached tokens"));
}

TEST_CASE("a number of devices and a setting are taken as they are typed, or said how", "[cli]") {
  CHECK(call("llama3-8b --devices 8 --json").out == call("llama3-8b -n 8 --json").out);
  rejected("predict workload=llama3-8b", "--set workload=llama3-8b");
}

TEST_CASE("wrong usage exits with 2 and says what was wrong", "[cli]") {
  struct Case {
    Words arguments;
    const char* message;
  };
  const std::vector<Case> cases{
      {"predict --frmat json", "--frmat"},
      {predict("--format xml"), "xml"},
      {predict("--set devices"), "devices"},
      {predict("--set =8"), "--set"},
      {"predict", "say which model"},
      {"predict no-such-job.json", "no-such-job.json"},
      {"run --ranks 0", "--ranks"},
      {"run --ranks 2 --steps many", "--steps"},
      {"list planets", "planets"},
      {"plan --time-limit 0", "--time-limit: found '0', expected a number above 0"},
      {"convert no-such-trace out.json", "no-such-trace"},
      {"convert a b --to tarot", "tarot"},
  };
  for (const Case& c : cases) {
    const Outcome outcome = call(c.arguments);
    rejected(outcome, c.message);
    CHECK(outcome.err.rfind("stepcast: ", 0) == 0);  // one line in one style
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  }
}

TEST_CASE("a missing GPU backend exits with 3", "[cli]") {
  const Outcome outcome =
      call("run --set workload=rm1 --set system=dgx-h100 --backend cuda --ranks 2");
  CHECK(outcome.code == 3);
  CHECK(outcome.out.empty());
  CHECK_THAT(outcome.err,
             Contains("cuda") && (Contains("--backend cpu") || Contains("-DSTEPCAST_CUDA=ON")));
}

TEST_CASE("profile says what keeps it from capturing", "[cli]") {
  // Without modules, without a driver, or with both but a command that uses no CUDA.
  const Folder folder;
  const std::string out = folder / "trace";
  const Outcome outcome = call({"profile", "--out", out, "--", "true"});
  INFO(outcome.err);
  CHECK(outcome.code == 3);
  CHECK(outcome.out.empty());
  CHECK_THAT(outcome.err, Contains("CUDA"));
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE("a job comes from a file, from standard input or from --set alone", "[cli]") {
  const Folder folder;
  const std::string text = R"({"workload": "rm1", "system": "dgx-h100", "devices": 4})";
  const std::string from_file =
      call({"predict", folder.file("job.json", text), "--format", "json"}).out;
  const std::string from_input = call("predict - --format json", text).out;
  const std::string from_set = call(predict("--set devices=4 --format json")).out;
  CHECK(json::parse(from_file)["job"]["devices"] == 4);
  CHECK(from_file == from_input);
  CHECK(from_file == from_set);
  rejected(call("predict -", R"({"workload": "rm1")"), "standard input", "truncated");
}

TEST_CASE("the job that is printed predicts the same again", "[cli]") {
  const json first = answer(predict({}));
  const json again = document(call("predict - --format json", first["job"].dump()));
  CHECK(again == first);
}

TEST_CASE("two predictions are equal byte by byte", "[cli]") {
  const Folder folder;
  const auto once = [&folder](const std::string& timeline) {
    const Words job = "llama2-7b --set system=dgx-a100-80gb -n 16 --tp 8 --gbs 8 --format json";
    return call(job + Words{"--timeline", folder / timeline}).out;
  };
  const std::string first = once("a.json");
  CHECK(json::accept(first));
  CHECK(first == once("b.json"));
  const std::string timeline = text_of(folder / "a.json");
  CHECK(json::parse(timeline)["traceEvents"].size() > 100);
  CHECK(timeline == text_of(folder / "b.json"));
}

TEST_CASE("an output file that cannot be written leaves nothing behind", "[cli]") {
  const Folder folder;
  rejected(predict({"--timeline", folder / "missing/timeline.json"}), "missing/timeline.json",
           "folder exists");
  CHECK(fs::is_empty(folder.path()));
  // A folder stands where the file should go.
  fs::create_directory(folder / "taken");
  rejected(predict({"--timeline", folder / "taken"}), "taken");
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
  // A file that stands there already is replaced as a whole.
  folder.file("timeline.json", "old");
  succeeded(predict({"--timeline", folder / "timeline.json"}));
  CHECK(json::accept(text_of(folder / "timeline.json")));
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 2);
}

TEST_CASE("a place that cannot be written to is refused before the input is looked at", "[cli]") {
  const Folder folder;
  const std::string out = folder / "none/out.json";
  for (const char* command :
       {"plan none.json --out", "predict none.json --timeline", "fit none.csv --device p4 --out",
        "fit --transfer none --device p4 --out", "calibrate --emulate none --out",
        "report none.json --html", "replay none --update-baseline", "hitcurve none.bin --histogram",
        "validate runtime --predictions"}) {
    rejected(command + Words{out}, "none/out.json: cannot be written");
  }
  CHECK(fs::is_empty(folder.path()));
  // Files that were written are told.
  const Outcome told = call(predict({"--timeline", folder / "t.json"}));
  CHECK_THAT(told.err, Contains("t.json written"));
}

TEST_CASE("steps that no trace can have are refused", "[cli][malformed]") {
  const Folder folder;
  const std::string trace = std::string(STEPCAST_SOURCE_DIR) + "/traces/recorded/dlrm-2";
  for (const std::string steps : {"0:99999999999", "4294967296:4294967297", "-1:2", "2:2", "1:2:3",
                                  "1", ":2", "1:", " 1:2"}) {
    INFO(steps);
    rejected({"convert", trace, folder / "out.json", "--steps=" + steps}, "--steps",
             "'" + steps + "'");
    rejected({"profile", "--out", folder / "out", "--steps=" + steps, "--", "true"}, "--steps",
             "'" + steps + "'");
  }
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("converted into the folder of an older trace, a trace replaces it", "[cli]") {
  const Folder folder;
  fs::copy(fs::path(STEPCAST_SOURCE_DIR) / "traces/recorded/dlrm-2", folder / "run");
  const std::string kineto = folder.file("k.json", R"({"traceEvents": [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]})");
  succeeded({"convert", kineto, folder / "run", "--to", "native"});
  CHECK_THAT(text_of(fs::path(folder / "run") / "trace.json"), Contains("aten::mm"));
  CHECK_FALSE(fs::exists(fs::path(folder / "run") / "rank-1.csv"));
}

TEST_CASE("help and version exit with 0", "[cli]") {
  CHECK_THAT(call("--help").out, Contains("predict") && Contains("calibrate"));
  succeeded("predict --help");
  CHECK_THAT(succeeded("--version").out, Contains("0.1.0"));
}

TEST_CASE("what cannot be printed is no success", "[cli]") {
  const Folder folder;
  const std::string text = folder.file("text", "");
  // Standard output open for reading: every write to it fails.
  for (const char* what :
       {"list formats", "--help", "predict --set workload=rm1 --set system=dgx-h100"}) {
    const Outcome outcome = execute(
        "/bin/sh", {"-c", "exec \"$0\" " + std::string(what) + " 1< " + text, STEPCAST_EXECUTABLE});
    INFO(what << outcome.err);
    CHECK(outcome.code == 4);  // not 1: nothing was checked, so nothing said no
    CHECK_THAT(outcome.err, Contains("standard output"));
  }
  const Outcome full = call(predict("--timeline /dev/full"));
  CHECK(full.code == 4);
  CHECK_THAT(full.err, Contains("/dev/full"));
}

TEST_CASE("a step longer than the clock is refused, and the op is named", "[cli]") {
  const Words gpt = "workload=gpt3-175b system=dgx-h100 batch.global=8";
  for (const std::string slow :
       {"batch.sequence=67108864", "system.fabric[0].bandwidth=1 B/s",
        "system.device.bandwidth=1 B/s", "system.device.peak.bf16=1 FLOP/s"}) {
    INFO(slow);
    const Words split = slow.starts_with("system.fabric") ? "parallel.tensor=8" : "";
    rejected(with_sets("predict", gpt + Words{slow} + split), "days");
  }
}

TEST_CASE("a prediction is one screen, and its details are asked for", "[cli]") {
  const auto lines = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  const Words set =
      "workload=llama3-8b system=dgx-h100 batch.global=8 batch.micro=1 parallel.zero=3";
  const Outcome screen = succeeded(with_sets("predict", set, "--tokens 15T --price 2.5"));
  CHECK(lines(screen.out) <= 20);
  for (const char* said : {"s/step", "tokens/s/GPU", "MFU", "  memory ", "days", "device-hours",
                           "90 % interval", "compute", "fits", "ZeRO-3 DP8"}) {
    INFO(said);
    CHECK_THAT(screen.out, Contains(said));
  }
  CHECK_THAT(screen.out, !Contains("e+") && !Contains("kernels alone"));
  const Outcome all = call(with_sets("predict", set, "--details"));
  CHECK(lines(all.out) > 30);
  CHECK_THAT(all.out, Contains("bound by") && Contains("kernels alone") && Contains("TFLOP/s/GPU"));
  for (const char* without : {"list", "sweep rm1 -n 8,16", "plan rm1 -n 8"}) {
    rejected(without + Words{"--details"}, "--details");
  }
}

TEST_CASE("a sweep prices whole runs", "[cli][sweep]") {
  const Words set =
      "workload=llama3-8b system=dgx-h100 devices=8,16 batch.global=16 batch.micro=1 "
      "parallel.zero=3";
  const Outcome text = succeeded(with_sets("sweep", set, "--tokens 1T --price 2"));
  CHECK_THAT(text.out, Contains("days") && Contains("cost") && !Contains("e+"));
  const json j = answer(with_sets("sweep", set, "--tokens 1T --price 2"));
  for (const json& point : j.at("points")) {
    const json& run = point.at("run");
    const double tokens = point.at("tokens_per_s");
    CHECK(run.at("days").get<double>() == Approx(1e12 / tokens / 86400).epsilon(1e-4));
    CHECK(run.at("cost").get<double>() ==
          Approx(2 * run.at("device_hours").get<double>()).epsilon(1e-9));
  }
  rejected(with_sets("sweep", set, "--price 2"));
}

TEST_CASE("values that mean nothing are refused in a sentence", "[cli]") {
  const Folder folder;
  const auto rejected = [](const Words& arguments, const std::string& what) {
    const Outcome outcome = call(arguments);
    stepcast::cli_test::rejected(outcome, what);
    CHECK(outcome.err.size() < 400);
  };
  for (const char* tokens : {"nan", "-5", "0", "inf", "many"}) {
    rejected(predict({"--tokens", tokens}), "'" + std::string(tokens) + "'");
  }
  rejected(predict({"--timeline", ""}), "--timeline");
  rejected({"predict", folder.file("empty.json", "")}, "empty.json: is empty");
  rejected("predict -", "standard input");
  rejected({"predict", folder.file("job.json", R"({"workload": "rm1", "system": "./nope.json"})")},
           "no file " + (folder / "nope.json"));
  rejected("predict --set workload=rm1 --set system=./nope.json", "no file nope.json");
  rejected("predict --set workload=rm1 --set system=local-cpu", "stepcast calibrate");
  rejected(predict("--set stepcast=2"), "found 2, expected 1");
  rejected({"convert", folder.file("config.json", R"({"model_type": "gpt2"})"), folder / "x",
            "--to", "kineto"},
           "--to");
  rejected({"run", "docs/none.json", "--trace", folder.file("taken", "")}, "taken");
}

TEST_CASE("errors name what was typed", "[cli]") {
  rejected(predict("--set paralel.tensor=8"), "--set paralel.tensor: unknown key",
           "did you mean \"parallel\"?");
  rejected(predict("--set workload=llama3-70b --set workload.hidden=8191"),
           "heads (together with --set workload.hidden)", "divisor");
  rejected(predict("--set system=h10"), "--set system", "did you mean \"dgx-h100\"?");
  rejected(predict("--set formats.compute=bfloat16"), "formats.compute", "did you mean \"bf16\"?");
  rejected(predict("--format yaml"), "--format: found 'yaml'", "expected text, json or csv");
  rejected(predict("--hbm '20 GB'"), "--hbm: is no option of predict", "--help");
  rejected(predict("--schedule gpipe"), "--schedule: is no option of predict",
           "--set parallel.schedule=...");
  rejected("sweep --workload=rm1", "--workload=rm1: is no option", "--set workload=...");
  rejected("plan", "say which model", "`stepcast list models`");
  rejected(predict("--set tensor=8"), "--set tensor: is a key of parallel", "parallel.tensor");
  rejected(predict("--set foo=1"), "--set foo: unknown key", "stack");
  rejected(predict("--interval"), "--interval: is no option", "did you mean --intervals?");
  rejected("hitcurve none.bin --rows -3", "--rows: found '-3'", "at least 1");
}

TEST_CASE("a job is not a recording and not an embedding plan, and a workload alone is one",
          "[cli]") {
  const Folder folder;
  const std::string trace = folder.file("trace.json", R"({"schemaVersion": 1, "traceEvents": []})");
  rejected({"plan", trace}, trace + ": is a recording, not a job", "stepcast job " + trace);
  const std::string plan = folder.file("plan.json", R"({"kind": "embedding", "workload": "rm1",
    "system": "dgx-h100", "devices": 8, "tables": []})");
  rejected({"predict", plan}, plan + ": is an embedding plan, not a job",
           "--set embedding.plan=" + plan);
  const std::string models = std::string(STEPCAST_SOURCE_DIR) + "/models/";
  const std::string system = models + "systems/dgx-h100.json";
  rejected({system}, system + ": is a system, not a job", "--on " + system);
  rejected({models + "devices/h100-sxm-80gb.json"}, ".json: is a device, not a job");
  const std::string workload = std::string(STEPCAST_SOURCE_DIR) + "/workloads/zoo/rm1.json";
  const json alone = answer({"predict", workload, "--set", "system=dgx-h100"});
  CHECK(alone == answer(predict({})));
}

TEST_CASE("show tells what a file of ours is", "[cli][show]") {
  const Folder folder;
  const std::string root = STEPCAST_SOURCE_DIR;
  const json system = answer({"show", root + "/models/systems/dgx-h100.json"});
  CHECK(system.at("system").at("device") == "h100-sxm-80gb");
  bool measured = false;
  for (const json& m : system.at("kernels")) {
    measured = measured ||
               (m.at("model").get<std::string>().starts_with("gemm") && m.at("rows").is_number());
  }
  CHECK(measured);
  const json device = answer({"show", root + "/models/devices/p4.json"});
  CHECK(device.at("device").at("peak_fp32") == 5.5e12);
  CHECK(answer("show dgx-h100") == system);
  CHECK(answer("show p4") == device);
  CHECK(call("show rm1 --flops").out ==
        call("show --set workload=rm1 --set system=dgx-h100 --flops").out);
  const std::string plan = folder / "plan.json";
  succeeded("plan --no-row-replication --device-memory-only" + kSmall + Words{"--out", plan});
  const json shown = answer({"show", plan});
  CHECK(shown.at("plan").at("workload") == "rm1");
  CHECK(shown.at("plan").at("parallel.dlrm_pipeline") == "none");  // what it was made for
  // Every shard of the file, with its ranks.
  std::size_t shards = 0;
  const json written = json::parse(text_of(plan));
  for (const json& table : written.at("tables")) {
    for (const json& shard : table.at("shards")) {
      const json& line = shown.at("shards").at(shards++);
      CHECK(line.at("table") == table.at("name"));
      CHECK(line.at("ranks") == shard.at("groups"));
    }
  }
  CHECK(shards == shown.at("shards").size());
  const std::string printed = folder.file("p.json", call(predict("--format json")).out);
  rejected({"show", printed}, "is a prediction, which `stepcast report` reads");
}

TEST_CASE("explain takes a job of --set alone, and says when nothing differs", "[cli][explain]") {
  const Outcome alone = succeeded("explain --with batch.global=4096" + kSmall);
  CHECK_THAT(alone.out, Contains("the job of --set") && Contains("batch.global"));
  const Folder folder;
  const std::string job = folder.file("j.json", R"({"workload": "rm1", "system": "dgx-h100"})");
  CHECK_THAT(call({"explain", job, job}).out, Contains("No difference."));
  rejected("explain --with devices=4", "--set workload=");
}

TEST_CASE("sweep names the winner by tokens where lengths differ, and writes files",
          "[cli][sweep]") {
  const Folder folder;
  const std::string out = folder / "rows.csv";
  const Words sweep = "sweep llama2-7b --set system=dgx-h100 --gbs 16 --tp 8 --seq 1024,4096";
  CHECK_THAT(call(sweep).out, Contains("most tokens/s: batch.sequence=4096"));
  const Outcome written = succeeded(sweep + Words{"--format", "csv", "--out", out});
  CHECK(written.out.empty());
  CHECK_THAT(written.err, Contains("rows.csv written"));
  CHECK(text_of(out) == call(sweep + "--format csv").out);
}

TEST_CASE("validate memory tells bytes", "[cli]") {
  const Folder folder;
  folder.file("golden.csv",
              "memory_usable,type,mem_max_allocated_GiB,platform,attention_backend,"
              "nvte_nondet,environment,origin_date,args_file,gpus,pp,large,heldout,"
              "shape_in_shared,cuda_graph\n"
              "1,gpt,1.5,dgx_a100,auto,1,dev,2025-12,none.args,8,1,0,0,,\n");
  const Words command{"validate", "memory", "--data", folder.path().string()};
  CHECK_THAT(call(command).out, Contains("1.50 GiB") && Contains("none.args"));
  CHECK_THAT(call(command + "--format csv").out,
             Contains("measured_bytes") && !Contains("measured_s"));
  const Folder empty;
  rejected({"validate", "memory", "--data", empty.path().string()},
           "--data: " + empty.path().string() + " has no golden.csv", "cases/");
}

TEST_CASE("columns of validate have a name each, and what was not measured is empty", "[cli]") {
  const Folder folder;
  folder.file("broken.json", R"({"traceEvents": [{"ph": "X"}]})");
  fs::copy(std::string(STEPCAST_SOURCE_DIR) + "/traces/recorded/gpt-2", folder.path() / "gpt",
           fs::copy_options::recursive);
  const std::string out =
      call({"validate", "traces", "--data", folder.path().string(), "--csv"}).out;
  std::vector<std::vector<std::string>> rows;
  std::istringstream text(out);
  for (std::string line; std::getline(text, line);) {
    rows.emplace_back();
    for (std::size_t from = 0, comma = 0; comma != std::string::npos; from = comma + 1) {
      comma = line.find(',', from);
      rows.back().push_back(line.substr(from, comma - from));
    }
  }
  REQUIRE(rows.size() >= 2);
  const std::set<std::string> names(rows[0].begin(), rows[0].end());
  CHECK(names.size() == rows[0].size());
  CHECK(names.contains("next_step_error"));
  for (const auto& row : rows) {
    CHECK(row.at(2) != "0");
    CHECK((row.at(1) != "broken.json" || row.at(2).empty()));
  }
}

TEST_CASE("stages that Megatron-LM starts with a layout only are told", "[cli]") {
  const auto said = [](const Words& more) { return call("llama3-8b -n 20 --gbs 20" + more).out; };
  CHECK_THAT(said("--pp 5"), Contains("warning: 32 layers are no multiple of 5 stages"));
  CHECK_THAT(said("--pp 4"), !Contains("no multiple"));
  CHECK_THAT(said("--pp 5 --framework torchtitan"), !Contains("no multiple"));
  CHECK_THAT(call("plan llama3-8b -n 20 --gbs 20 --pp 5 --tp 1 --set parallel.virtual_stages=1 "
                  "--set parallel.pipeline_split.head=0 --set parallel.pipeline_split.embedding=0")
                 .out,
             Contains("warning: plan 1: 32 layers are no multiple of 5 stages"));
}

TEST_CASE("a plan of tables says where its optimizer is another", "[cli][plan]") {
  const auto said = [](const Words& more) {
    return call("plan mlperf-dlrm-v2 -n 16 --top 1 --effort quick" + more).out;
  };
  const std::string note = "they learn a little otherwise";
  CHECK_THAT(said("--set optimizer.embedding=rowwise_adagrad"),
             Contains("column_wise") && Contains(note));
  CHECK_THAT(said("--set optimizer.embedding=sgd"), Contains("column_wise") && !Contains(note));
}

TEST_CASE("predict says what adapters stand on, sweep what steps lie between", "[cli]") {
  const Outcome adapters =
      call(with_sets("predict",
                     {"workload=llama2-7b", "system=dgx-h100", "devices=1", "batch.global=8",
                      "batch.micro=1", R"(lora={"rank": 8})", "formats.frozen=nf4"},
                     {}));
  CHECK_THAT(adapters.out, Contains("LoRA rank 8 on nf4 weights"));
  const Words job =
      "workload=llama3-8b system=dgx-h100 devices=8,16 batch.global=64 parallel.zero=3";
  CHECK_THAT(call(with_sets("sweep", job, {})).out, Contains("90 % interval"));
  CHECK_THAT(call(with_sets("sweep", job + "stack=none")).out, !Contains("90 % interval"));
}
