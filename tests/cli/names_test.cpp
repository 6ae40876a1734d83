// Words that people type: models by name, keys by options of their own, answers into files.
#include <unistd.h>
#include <algorithm>
#include <catch2/catch.hpp>

#include <csignal>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "command_line.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const std::string kTrace = std::string(STEPCAST_SOURCE_DIR) + "/traces/recorded/dlrm-2";

std::string printed(const Words& arguments) { return succeeded(arguments).out; }

}  // namespace

TEST_CASE("the verb is predict, and a recording is shown", "[cli][names]") {
  const std::string full =
      printed("predict --set workload=rm1 --set system=dgx-h100 --set devices=4 --format json");
  CHECK(printed("rm1 -n 4 --json") == full);
  CHECK(printed("RM1 --gpus 4 --on H100 --json") == full);
  CHECK(printed("predict rm1 --set n=4 --json") == full);
  CHECK(printed("--set model=rm1 --set gpus=4 --set on=h100 --json") == full);
  const std::string shown = printed({"show", kTrace});
  CHECK(printed({kTrace}) == shown);
  CHECK(printed({"predict", kTrace}) == shown);
}

TEST_CASE("options of keys are their keys byte by byte", "[cli][names]") {
  const Words keys = with_sets(
      "predict",
      "workload=llama2-7b system=dgx-h100 devices=16 parallel.tensor=2 parallel.pipeline=2 "
      "parallel.virtual_stages=2 parallel.context=2 parallel.data=2 parallel.zero=1 "
      "parallel.recompute=full batch.global=16 batch.micro=1 batch.sequence=4096 "
      "formats.compute=bf16 framework=megatron-core",
      "--format json");
  const Words options =
      "Llama-2-7B --on h100 -n 16 --tp 2 --pp 2 --vpp 2 --cp 2 --dp 2 --zero 1 --recompute full -b "
      "16 --mbs 1 --seq 4k --precision bf16 --framework megatron-core --json";
  const Words aliases = with_sets(
      "predict",
      "model=llama2-7b on=h100 gpus=16 tp=2 pp=2 vpp=2 cp=2 dp=2 zero=1 recompute=full gbs=16 "
      "mbs=1 seq=4k precision=bf16 framework=megatron-core",
      "--json");
  const std::string full = printed(keys);
  CHECK(printed(options) == full);
  CHECK(printed(aliases) == full);
  // A sweep over options and aliases names the keys in full.
  CHECK(printed("sweep rm1 -n 4,8 -b 64k,128k --csv") ==
        printed("sweep rm1 --set devices=4,8 --set batch.global=65536,131072 --format csv"));
}

TEST_CASE("a part of the system is set whatever option names the system", "[cli][names]") {
  const std::string part = "system.fabric[0].bandwidth=100 GB/s";
  CHECK(answer({"llama3-8b", "--on", "dgx-h100", "-n", "8", "--set", part}) ==
        answer({"llama3-8b", "--set", "system=dgx-h100", "-n", "8", "--set", part}));
}

TEST_CASE("wrong values of options name the option", "[cli][names][malformed]") {
  rejected("llama3-8b --tp abc", "--tp: found \"abc\"", "integer from 1");
  rejected("llama3-8b --tp 0", "--tp: found 0");
  rejected("llama3-8b --tp -1", "--tp: found -1");
  rejected({"llama3-8b", "--tp", ""}, "--tp");
  rejected("llama3-8b --tp", "--tp");
  rejected("llama3-8b --tp 2 --tp 4", "--tp");
  rejected("llama3-8b --set tp=abc", "--set tp: found \"abc\"");
  rejected("llama3-8b --set parallel.tensor=abc", "--set parallel.tensor: found");
  rejected("llama3-8b --zero 4", "--zero");
  rejected("llama3-8b --seq 8kk", "--seq: found \"8kk\"");
  rejected("llama3-8b --gpus 1e9", "--gpus: found");
  rejected("llama3-8b --precision bf61", "--precision", "did you mean \"bf16\"?");
  rejected("llama3-8b --framework megatorn", "megatorn");
  rejected("llama3-8b --on h1000", "--on: ", "h1000");
  rejected("llama3-8b --recompute sometimes", "--recompute", "sometimes");
  rejected("llama3-8b --zero 0 --set zero=2", "--zero: found 0, and --set zero=2");
  rejected("H100", "\"H100\" is a system, not a model", "--on H100");
  rejected("llama3-8b --on Llama3-70B", "\"Llama3-70B\" is a model, not a system");
  rejected("run rm1 --ranks 1 --emulate nope", "stepcast: --emulate: no system");
  rejected("llama9-8b", "llama9-8b", "did you mean \"llama3-8b\"?");
  rejected("predikt", "predikt: is no command, model or file", "did you mean predict?");
  rejected("help predikt", "did you mean predict?");
  rejected("rm1 --color pink", "--color");
  rejected({"rm1", "-o", ""}, "-o");
  for (const char* file : {"--resume", "--data", "--emulate", "--trace"}) {
    rejected({"run", "rm1", file, ""}, file + std::string(": found '', expected "));
  }
  for (const char* number : {"nan", "0", "-1", "inf", "1x"}) {
    rejected({"run", "rm1", "--timeout", number},
             "--timeout: found '" + std::string(number) + "', expected a number from 1 to 3600");
  }
  rejected("run rm1 --steps 0", "--steps: found '0', expected a whole number from 1 to");
  rejected("run rm1 --seed -1", "--seed: found '-1'");
  rejected("rm1 -o none/out.json", "none/out.json: cannot be written");
  rejected("rm1 -o a.json --html b.html", "name one file");
  CHECK_FALSE(fs::exists("a.json"));
}

TEST_CASE("answers go to files by their extension", "[cli][names]") {
  const Folder folder;
  const auto written = [&](const std::string& name) {
    const Outcome outcome = succeeded({"rm1", "-o", folder / name});
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err, Contains(name + " written"));
    return text_of(folder / name);
  };
  CHECK(written("a.json") == printed("rm1 --json"));
  CHECK(written("a.csv") == printed("rm1 --csv"));
  CHECK(written("a.txt") == printed("rm1"));
  CHECK(written("answer") == printed("rm1"));
  CHECK_THAT(written("a.html"), Contains("<html") && Contains("rm1"));
  CHECK(printed({"rm1", "--html", folder / "b.html"}).empty());
  CHECK(text_of(folder / "b.html").size() > 1000);
  CHECK(printed("rm1 -o -") == printed("rm1"));
  for (const std::string page : {"list", "doctor"}) {
    CHECK(printed({page, "--html", folder / (page + ".html")}).empty());
    CHECK_THAT(text_of(folder / (page + ".html")), Contains("<table"));
  }
  rejected({"list", "schema", "--html", folder / "l.html"}, "l.html: no page is made");
  CHECK_FALSE(fs::exists(folder / "l.html"));
  const Outcome quiet = call({"rm1", "-q", "-o", folder / "c.json"});
  CHECK(quiet.err.empty());
  CHECK(text_of(folder / "c.json") == text_of(folder / "a.json"));
  CHECK_THAT(call("rm1 -q --tp x").err, Contains("--tp"));  // errors are told
  // An answer is a job again, a plan's its best.
  CHECK(json::parse(printed({folder / "a.json", "--json"}))["iteration_time_s"] ==
        json::parse(text_of(folder / "a.json"))["iteration_time_s"]);
}

TEST_CASE("a model of Hugging Face needs no more than its file or folder", "[cli][names]") {
  const Folder folder;
  const std::string config = folder.file("config.json", R"({"model_type": "llama",
    "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16,
    "num_key_value_heads": 4, "intermediate_size": 4096, "vocab_size": 32000,
    "max_position_embeddings": 2048, "hidden_act": "silu"})");
  const json file = answer({config, "--zero", "1"});
  CHECK(file["job"]["system"] == "dgx-h100");
  CHECK(file["job"]["batch"]["sequence"] == 2048);  // as long as the model's
  CHECK(file["job"]["batch"]["global"] == 2048);    // 4 Mi tokens of 2,048
  CHECK(answer({folder.path().string(), "--zero", "1"}) == file);
  const json longer = answer({config, "--zero", "1", "--seq", "4k", "-b", "64"});
  CHECK(longer["job"]["batch"]["sequence"] == 4096);
  CHECK(longer["job"]["batch"]["global"] == 64);
}

TEST_CASE("help leads the way", "[cli][names]") {
  const std::string tour = printed({});
  CHECK(std::count(tour.begin(), tour.end(), '\n') == 10);
  CHECK_THAT(tour, Contains("stepcast llama3-8b"));
  const auto narrow = [](const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      CHECK(line.size() <= 80);
    }
  };
  narrow(tour);
  CHECK(printed("help") == printed("--help"));
  CHECK(printed("help plan") == printed("plan --help"));
  // Lines fit a terminal of 80 characters; every command has an example, which begins with its
  // name.
  std::set<std::string> commands;
  for (const json& command : answer("list commands")) {
    commands.insert(command.at("name"));
  }
  CHECK(commands.size() > 20);
  for (const std::string& command : commands) {
    const std::string help = printed({"help", command});
    INFO(help);
    CHECK_THAT(help, Contains("EXAMPLES:\n  stepcast "));
    narrow(help.substr(0, help.find("EXAMPLES")));
  }
  CHECK_THAT(printed("list"), Contains("models") && Contains("systems"));
  CHECK_THAT(printed("list models"), Contains("llama3-8b"));
}

TEST_CASE("diff changes the left side by what follows --", "[cli][names]") {
  const json by_options = document(call("diff llama2-7b -n 8 --zero 3 --json -- --tp 2"));
  const json by_keys =
      answer("explain", "workload=llama2-7b devices=8 parallel.zero=3", "--with parallel.tensor=2");
  CHECK(by_options["rows"] == by_keys["rows"]);
  CHECK(by_options["changes"] == by_keys["changes"]);
  CHECK(answer("diff rm1 rm2")["rows"] == document(call("diff rm1 --json -- rm2"))["rows"]);
  rejected("diff rm1 -- --bogus", "--bogus");
  rejected("diff rm1 rm2 rm3", "rm3");
}

TEST_CASE("guard compares runs with runs as replay does with their baseline", "[cli][names]") {
  const Folder folder;
  const std::string baseline = folder / "base.json";
  succeeded({"replay", kTrace, kTrace, "--update-baseline", baseline});
  const Outcome file = call({"guard", kTrace, kTrace, "--baseline", baseline, "--json"});
  const Outcome runs = call({"guard", kTrace, kTrace, "--baseline", kTrace, kTrace, "--json"});
  const Outcome replay = call({"replay", kTrace, kTrace, "--baseline", baseline, "--json"});
  INFO(runs.err);
  CHECK(file.code == replay.code);
  CHECK(runs.code == file.code);
  CHECK(json::parse(file.out) == json::parse(replay.out));
  CHECK(json::parse(runs.out)["guard"] == json::parse(file.out)["guard"]);
  rejected({"guard", kTrace}, "--baseline");
  rejected("guard", "now");
}

TEST_CASE("words complete", "[cli][names]") {
  const auto completes = [](const Words& words) {
    std::istringstream out(printed("__complete" + words));
    std::set<std::string> lines;
    for (std::string line; std::getline(out, line);) {
      lines.insert(line);
    }
    return lines;
  };
  using Set = std::set<std::string>;
  CHECK(completes("pre") == Set{"predict"});
  CHECK(completes("llama3-8") == Set{"llama3-8b"});
  CHECK(completes("plan LLAMA3-8") == Set{"llama3-8b"});
  CHECK(completes("llama3-8b --rec") == Set{"--recompute"});
  CHECK(completes({"llama3-8b", "--recompute", ""}).contains("full"));
  CHECK(completes("llama3-8b --on h20").contains("h200"));
  CHECK(completes("llama3-8b --set parallel.ten") == Set{"parallel.tensor="});
  CHECK(completes("llama3-8b --set tp") == Set{"tp="});
  CHECK(completes("llama3-8b --set recompute=f") == Set{"recompute=full"});
  CHECK(completes("llama3-8b --set recompute = f") == Set{"recompute=full"});  // bash
  CHECK(completes("llama3-8b --set model =").contains("model=rm1"));
  CHECK(completes({"calibrate", "--backend", ""}) == Set{"cpu", "cuda"});
  CHECK(completes("list mod") == Set{"models"});
  CHECK(completes("help gua") == Set{"guard"});
  CHECK(completes("replay no-such").empty());
  CHECK(completes({""}).contains("plan"));
  CHECK(completes({}).empty());
}

namespace {

Outcome interrupted(const Words& arguments, unsigned seconds) {
  Outcome outcome = call(arguments, "", 120, [seconds](pid_t process) {
    sleep(seconds);
    kill(process, SIGINT);
  });
  INFO(outcome.err);
  CHECK(outcome.code == 130);
  return outcome;
}

}  // namespace

TEST_CASE("an interrupted search of an embedding plan answers with what it has",
          "[cli][names][long]") {
  const Outcome outcome = interrupted("plan mlperf-dlrm-v2 -n 64 --effort thorough --json", 3);
  CHECK_THAT(outcome.err, Contains("interrupted; the best plans so far"));
  CHECK(json::parse(outcome.out)["plans"][0]["predicted_step_s"] > 0);
}

TEST_CASE("an interrupted search answers with what it has", "[cli][names][long]") {
  const Outcome outcome = interrupted("plan deepseek-v3 -n 2048 --jobs 1 --json", 8);
  CHECK_THAT(outcome.err, Contains("interrupted"));
  if (!outcome.out.empty()) {
    CHECK(json::parse(outcome.out)["plans"][0]["predicted_step_s"] > 0);
  }
}
