// `stepcast run --backend cuda` from end to end on a machine without a GPU: the real executable and
// the real profiler, the backend's module over the stand-in, a CUPTI that sees the stand-in's work.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <tuple>
#include <vector>

#include "tests/cli/command_line.h"
#include "traces/native/native_trace.h"

using namespace stepcast;
using Catch::Matchers::Contains;
using cli_test::Outcome;
using fixtures::Folder;
namespace fs = std::filesystem;

namespace {

constexpr const char* kDlrm = R"({
  "system": "dgx-h100", "devices": 1, "batch": {"global": 32}, "formats": {"compute": "fp32"},
  "workload": {"kind": "dlrm", "name": "tiny", "dense_features": 4, "bottom_mlp": [16, 8],
    "interaction": {"kind": "dot"}, "top_mlp": [16, 1], "tables": [
      {"name": "a", "rows": 300, "dim": 8, "pooling": 4, "mode": "sum", "access": {"zipf": 1.1}},
      {"name": "b", "rows": 90, "dim": 8, "pooling": 1, "mode": "sum"}]}})";

constexpr const char* kFp8 = R"({
  "system": "dgx-h100", "devices": 1, "batch": {"global": 2, "micro": 1, "sequence": 16},
  "formats": {"compute": "fp8"}, "attention": "unfused",
  "workload": {"kind": "transformer", "name": "tiny", "layers": 1, "hidden": 32, "heads": 2,
    "ffn_hidden": 48, "activation": "swiglu", "vocabulary": 64}})";

using Settings = std::map<std::string, std::string>;

/// A folder laid out as an installation, on a machine of these settings (environment variables of
/// the stand-in and of the fakes), until the end of the scope.
class Machine {
 public:
  explicit Machine(Settings settings = {}) : settings_(std::move(settings)) {
    settings_.try_emplace("LD_LIBRARY_PATH", FAKE_GPU_FOLDER);
    for (const auto& [name, value] : settings_) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    fs::create_directories(folder_.path() / "bin");
    fs::create_directories(folder_.path() / "lib");
    fs::create_symlink(STANDIN_MODULE, folder_.path() / "lib" / "libstepcast_cuda.so");
    fs::create_symlink(CUPTI_MODULE, folder_.path() / "lib" / "libstepcast_cupti.so");
    fs::create_symlink(MPI_MODULE, folder_.path() / "lib" / "libstepcast_mpi.so");
    std::error_code other_device;
    fs::create_hard_link(STEPCAST_EXECUTABLE, folder_.path() / "bin" / "stepcast", other_device);
    if (other_device) {
      fs::copy_file(STEPCAST_EXECUTABLE, folder_.path() / "bin" / "stepcast");
    }
  }
  ~Machine() {
    for (const auto& [name, value] : settings_) {
      unsetenv(name.c_str());
    }
  }
  [[nodiscard]] std::string trace() const { return folder_ / "trace"; }
  [[nodiscard]] std::string executable() const { return folder_ / "bin/stepcast"; }
  /// `run` of the tiny job with a trace.
  [[nodiscard]] Outcome run(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{
        "run",  folder_.file("job.json", kDlrm), "--backend", "cuda", "--steps", "3", "--trace",
        trace()};
    all.insert(all.end(), more.begin(), more.end());
    return cli_test::execute(executable(), all);
  }
  /// `run` of another job.
  [[nodiscard]] Outcome run_job(const std::string& job,
                                const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{
        "run", folder_.file("other.json", job), "--backend", "cuda", "--steps", "2"};
    all.insert(all.end(), more.begin(), more.end());
    return cli_test::execute(executable(), all);
  }
  [[nodiscard]] std::string file(const std::string& name, const std::string& text) const {
    return folder_.file(name, text);
  }
  /// Any other command.
  [[nodiscard]] Outcome call(const std::vector<std::string>& arguments) const {
    return cli_test::execute(executable(), arguments);
  }

 private:
  Settings settings_;
  Folder folder_;
};

/// Ops of a rank that took time.
std::size_t timed(const traces::RankTrace& rank) {
  std::size_t n = 0;
  for (const OpSpan& s : rank.ops) {
    n += s.end > s.begin ? 1 : 0;
  }
  return n;
}

}  // namespace

TEST_CASE("a recorded run on a device bears CUPTI's times, op by op", "[run][cupti]") {
  const Machine machine;
  const bool graph = GENERATE(false, true);
  CAPTURE(graph);
  const Outcome done =
      machine.run(graph ? std::vector<std::string>{"--cuda-graph"} : std::vector<std::string>{});
  INFO(done.err << done.out);
  REQUIRE(done.code == 0);
  CHECK_THAT(done.err, Contains("as CUPTI recorded them"));
  const traces::GraphRun trace = traces::read_native(machine.trace());
  CHECK(trace.op_clock == "cupti");
  CHECK(trace.op_clock_reason.empty());
  REQUIRE(trace.ranks.size() == 1);
  const traces::RankTrace& rank = trace.ranks[0];
  CHECK(rank.dropped == 0);
  CHECK(rank.steps.size() == 3);
  const Program& program = trace.graph.program_of(0);
  std::map<std::uint8_t, SimTime> free;
  for (const OpSpan& s : rank.ops) {
    const Op& op = program.ops[s.ref.op];
    INFO(program.name(op));
    if (op.kind == OpKind::kGemm) {  // its product was launched under its name
      CHECK(s.end > s.begin);
    }
    CHECK(s.begin >= s.issued);
    CHECK(s.begin >= free[op.stream]);  // the fake device has one queue
    free[op.stream] = s.end;
  }
  CHECK(timed(rank) > rank.ops.size() / 2);
  const Outcome compared = machine.call({"compare", machine.trace()});
  INFO(compared.err);
  CHECK(compared.code == 0);
  CHECK_THAT(compared.out, Contains("gemm"));
}

TEST_CASE("why CUPTI cannot be had is named, and ops are timed by events instead", "[run][cupti]") {
  const auto [settings, says] = GENERATE(
      std::pair<Settings, std::string>{{{"FAKE_CUPTI_HOLDER", "Nsight Systems"}},
                                       "Nsight Systems holds CUPTI"},
      // After its callbacks were taken; it asks them for a buffer all the same.
      std::pair<Settings, std::string>{{{"FAKE_CUPTI_REFUSES", "1"}}, "a reason in CUPTI's words"});
  const Machine machine(settings);
  const Outcome done = machine.run();
  INFO(done.err);
  REQUIRE(done.code == 0);
  CHECK_THAT(done.err, Contains("CUDA events around each op: ") && Contains(says));
  const traces::GraphRun trace = traces::read_native(machine.trace());
  CHECK(trace.op_clock == "events");
  CHECK_THAT(trace.op_clock_reason, Contains(says));
  const Outcome shown = machine.call({"show", machine.trace()});
  CHECK_THAT(shown.out + shown.err, Contains("CUDA events around each"));
  CHECK(timed(trace.ranks.at(0)) > trace.ranks[0].ops.size() / 2);
}

TEST_CASE("CUPTI that was insisted on and cannot be had ends the run with code 3 and no trace",
          "[run][cupti]") {
  const auto [settings, says] =
      GENERATE(std::pair<Settings, std::string>{{{"FAKE_CUPTI_HOLDER", "Nsight Systems"}},
                                                "Nsight Systems holds CUPTI (libcupti 13"},
               std::pair<Settings, std::string>{{{"FAKE_CUPTI_REFUSES", "1"}},
                                                "a reason in CUPTI's words (CUPTI error 35)"});
  const Machine machine(settings);
  const Outcome done = machine.run({"--op-clock", "cupti"});
  INFO(done.err);
  CHECK(done.code == 3);
  CHECK_THAT(done.err, Contains(says));
  CHECK_FALSE(fs::exists(machine.trace()));
}

TEST_CASE("events are taken where they are asked for", "[run]") {
  const Machine machine;
  REQUIRE(machine.run({"--op-clock", "events"}).code == 0);
  const traces::GraphRun trace = traces::read_native(machine.trace());
  CHECK(trace.op_clock == "events");
  CHECK(trace.op_clock_reason == "--op-clock events");
}

TEST_CASE("ranks record with one clock, and waits are told apart from transfers", "[run][cupti]") {
  const Machine machine;
  const Outcome done = machine.run({"--ranks", "2"});
  INFO(done.err);
  REQUIRE(done.code == 0);
  const traces::GraphRun trace = traces::read_native(machine.trace());
  CHECK(trace.op_clock == "cupti");
  REQUIRE(trace.ranks.size() == 2);
  std::map<std::pair<std::int32_t, std::uint64_t>, std::vector<OpSpan>> reduces;
  for (const traces::RankTrace& rank : trace.ranks) {
    for (const OpSpan& s : rank.ops) {
      if (trace.graph.program_of(rank.rank).ops[s.ref.op].kind == OpKind::kAllReduce) {
        reduces[{s.step, (std::uint64_t{s.ref.call} << 32) | s.ref.op}].push_back(s);
      }
    }
  }
  REQUIRE_FALSE(reduces.empty());
  for (const auto& [at, members] : reduces) {
    REQUIRE(members.size() == 2);
    // Nobody transfers before the last has come; what lies before is wait.
    const SimTime last = std::max(members[0].begin, members[1].begin);
    for (const OpSpan& s : members) {
      CHECK(s.ready == std::min(last, s.end));
      CHECK(s.end > s.begin);  // launched by another thread, yet known to be its work
    }
  }
}

TEST_CASE("what a machine lacks ends a run on it with code 3, in words, with no trace", "[run]") {
  const auto [settings, says] = GENERATE(
      std::pair<Settings, std::string>{{{"STANDIN_DRIVER", "0"}}, "no NVIDIA driver"},
      std::pair<Settings, std::string>{{{"STANDIN_DRIVER", "12020"}},
                                       "the driver supports CUDA 12.2, this build needs 13.0; "
                                       "update the driver"},
      std::pair<Settings, std::string>{{{"STANDIN_DEVICES", "0"}}, "no CUDA device"});
  const Machine machine(settings);
  const Outcome done = machine.run();
  INFO(done.err);
  CHECK(done.code == 3);
  CHECK_THAT(done.err, Contains(says));
  CHECK_FALSE(fs::exists(machine.trace()));
}

TEST_CASE("plans with hot rows in device memory and cold ones in ddr run, rows counted", "[run]") {
  const Machine machine;
  const std::string shard = R"("sharding": "table_wise", "groups": [[0]], "split": "block")";
  const auto plan_in = [&](const std::string& tier) {
    return machine.file(
        tier + ".json",
        R"({"stepcast": 1, "kind": "embedding", "workload": "tiny", "system": "dgx-h100", "devices": 1,
          "tables": [{"name": "a", "row_order": "frequency", "shards": [
            {"rows": [0, 40], "columns": [0, 8], "tier": "hbm", )" +
            shard + R"(}, {"rows": [40, 300], "columns": [0, 8], "tier": ")" + tier + "\", " +
            shard + R"(, "cache": {"bytes": 2000, "policy": "lru"}}]},
          {"name": "b", "row_order": "workload", "shards": [
            {"rows": [0, 90], "columns": [0, 8], "tier": "hbm", )" +
            shard + "}]}]}");
  };
  const Outcome done = machine.run_job(kDlrm, {"--set", "embedding.plan=" + plan_in("ddr")});
  INFO(done.err);
  CHECK(done.code == 0);
  CHECK_THAT(done.out, Contains("tier, per step") && Contains("ddr"));
  const Outcome in_files = machine.run_job(kDlrm, {"--set", "embedding.plan=" + plan_in("ssd")});
  INFO(in_files.err);
  CHECK(in_files.code == 2);
}

TEST_CASE("repeated lists are pooled once, and copies wait, where a job says so", "[run]") {
  const Machine machine;
  const auto losses = [&](const char* backend) {
    std::vector<std::string> call{"run",       machine.file("job.json", kDlrm),
                                  "--ranks",   "2",
                                  "--steps",   "3",
                                  "--warmup",  "0",
                                  "--format",  "csv",
                                  "--backend", backend};
    for (const char* set :
         {R"(workload.tables[0].access={"zipf": 1.1, "session": {"samples": 16, "keep": 0.8}})",
          "embedding.dedup=ikjt", "embedding.plan=data_parallel", "embedding.sync_interval=2"}) {
      call.insert(call.end(), {"--set", set});
    }
    const Outcome done = machine.call(call);
    INFO(done.err);
    REQUIRE(done.code == 0);
    std::vector<double> all;
    std::istringstream lines(done.out);
    std::string line;
    for (std::getline(lines, line); std::getline(lines, line);) {
      all.push_back(std::stod(line.substr(line.find(',') + 1)));
    }
    return all;
  };
  const std::vector<double> cpu = losses("cpu");
  const std::vector<double> cuda = losses("cuda");
  REQUIRE(cuda.size() == 3);
  REQUIRE(cpu.size() == 3);
  for (std::size_t s = 0; s < cpu.size(); ++s) {
    CHECK(cuda[s] == Approx(cpu[s]).epsilon(1e-5));
  }
}

TEST_CASE("fp8 products run where the device has them and are refused where not", "[run]") {
  {
    const Machine hopper;
    const Outcome done = hopper.run_job(kFp8);
    INFO(done.err);
    CHECK(done.code == 0);
  }
  const Machine ampere(Settings{{"STANDIN_CAPABILITY", "80"}});
  const Outcome done = ampere.run_job(kFp8);
  INFO(done.err);
  CHECK(done.code == 2);
  CHECK_THAT(done.err, Contains("compute capability 8.0") && Contains("use bf16"));
  CHECK(ampere.run_job(kFp8, {"--set", "formats.compute=bf16"}).code == 0);
}

const std::vector<std::string> kFused{"--set", "formats.compute=bf16", "--set", "attention=flash"};

#ifdef STEPCAST_HAVE_CUDNN
TEST_CASE("a run says what computed its attention, and fit keeps the kernels apart", "[run]") {
  const Machine machine(Settings{{"STANDIN_CUDNN", "1"}});
  std::vector<std::string> traced = kFused;
  traced.insert(traced.end(),
                {"--op-clock", "events", "--trace", machine.trace(), "--format", "json"});
  const Outcome done = machine.run_job(kFp8, traced);
  INFO(done.err);
  CHECK(done.code == 0);
  CHECK_THAT(done.err, Contains("attention by cudnn 9.19.0\n"));
  CHECK_THAT(done.out, Contains("\"kernels\": \"cudnn 9.19.0\""));
  CHECK(traces::read_native(machine.trace()).attention == "cudnn 9.19.0");
  const std::string other = machine.trace() + "-other";
  fs::copy(machine.trace(), other);
  std::string manifest = cli_test::text_of(other + "/trace.json");
  manifest.replace(manifest.find("9.19.0"), 6, "9.21.0");
  std::ofstream(other + "/trace.json") << manifest;
  const Outcome both = machine.call(
      {"fit", machine.trace(), other, "--device", "x", "--out", machine.trace() + ".json"});
  CHECK(both.code == 2);
  CHECK_THAT(both.err, Contains("attention was computed by") && Contains("fit them in two calls"));
  // The same capture and replay.
  std::vector<std::string> captured = kFused;
  captured.emplace_back("--cuda-graph");
  CHECK(machine.run_job(kFp8, captured).code == 0);
  // A format that cuDNN does not have.
  captured[1] = "formats.compute=fp32";
  const Outcome wide = machine.run_job(kFp8, captured);
  INFO(wide.err);
  CHECK(wide.code == 2);
  CHECK_THAT(wide.err, Contains("attention: running flash attention in fp32") &&
                           Contains("on CUDA") && Contains("set it to unfused"));
}
#endif

TEST_CASE("fused attention without cuDNN ends a run with code 3 and the remedies", "[run]") {
  const Machine machine;
  const char* ranks = GENERATE("1", "2");
  CAPTURE(ranks);
  std::vector<std::string> fused = kFused;
  fused.insert(fused.end(), {"--ranks", ranks});
  const Outcome done = machine.run_job(kFp8, fused);
  INFO(done.err);
  CHECK(done.code == 3);
  CHECK_THAT(done.err, Contains("fused attention needs cuDNN 9.8 or newer (libcudnn.so.9)") &&
                           Contains("install it") && Contains("--set attention=unfused"));
  fused[3] = "attention=unfused";
  CHECK(machine.run_job(kFp8, fused).code == 0);
}

TEST_CASE("a run says what computed its epilogues, and fit keeps the kernels apart", "[run]") {
  const Machine machine;
  const auto folder = [&](const std::string& name) { return machine.trace() + "-" + name; };
  const auto traced = [&](const std::string& name, const std::string& epilogues,
                          const std::string& narrowest) {
    setenv("STANDIN_EPILOGUE_WIDTH", narrowest.c_str(), 1);
    Outcome done = machine.run_job(kDlrm, {"--set", "epilogues=" + epilogues, "--op-clock",
                                           "events", "--trace", folder(name), "--format", "json"});
    unsetenv("STANDIN_EPILOGUE_WIDTH");
    INFO(done.err);
    REQUIRE(done.code == 0);
    return done;
  };
  CHECK_THAT(traced("library", "fused", "0").err,
             Contains("stepcast: epilogues by cublasLt 13.0.0\n"));
  const traces::GraphRun by_library = traces::read_native(folder("library"));
  CHECK(by_library.epilogues == "cublasLt 13.0.0");
  CHECK(by_library.epilogues_reason.empty());
  const Outcome own = traced("own", "fused", "1000");
  CHECK_THAT(own.err,
             Contains("epilogues by own (cuBLASLt has no algorithm for a product of 32 x"));
  CHECK_THAT(own.out, Contains("\"epilogues\"") && Contains("\"kernels\": \"own\""));
  const traces::GraphRun by_own = traces::read_native(folder("own"));
  CHECK(by_own.epilogues == "own");
  CHECK_THAT(by_own.epilogues_reason, Contains("no algorithm"));
  CHECK_THAT(traced("separate", "separate", "0").err, !Contains("epilogues by"));
  CHECK(traces::read_native(folder("separate")).epilogues.empty());
  const Outcome both = machine.call({"fit", folder("library"), folder("own"), "--device", "x",
                                     "--out", machine.trace() + ".json"});
  CHECK(both.code == 2);
  CHECK_THAT(both.err, Contains("epilogues were computed by") && Contains("fit them in two calls"));
}

TEST_CASE("too little device memory ends a run with code 4 and the ledger", "[run]") {
  const Machine machine(Settings{{"STANDIN_MEMORY", "20000"}});
  const Outcome done = machine.run();
  INFO(done.err);
  CHECK(done.code == 4);
  CHECK_THAT(done.err, Contains("out of device memory") && Contains("this rank has taken") &&
                           Contains("together") && Contains("use fewer rows"));
  CHECK_FALSE(fs::exists(machine.trace()));
}

#ifdef STEPCAST_HAVE_CUDNN
TEST_CASE("what libraries take of a device is in the ledger", "[run]") {
  const Machine machine(Settings{{"STANDIN_MEMORY", "20000000"},
                                 {"STANDIN_DEVICES", "2"},
                                 {"STANDIN_CUDNN", "1"},
                                 {"STANDIN_CUDNN_TAKES_ALL", "1"}});
  std::vector<std::string> arguments = kFused;
  arguments.insert(arguments.end(), {"--ranks", "2"});
  const Outcome done = machine.run_job(kFp8, arguments);
  INFO(done.err);
  CHECK(done.code == 4);
  CHECK_THAT(done.err,
             Contains("out of device memory") && Contains("  cuDNN ") && Contains("  NCCL "));
}
#endif

TEST_CASE("a collective that a lost rank keeps from ending is named within its deadline", "[run]") {
  const Machine machine(Settings{{"STANDIN_HANGS_AT", "5"}});
  const Outcome done = machine.run({"--ranks", "2", "--timeout", "2"});
  INFO(done.err);
  CHECK(done.code == 4);
  CHECK_THAT(done.err, Contains("a rank is lost or hangs") && Contains("has not finished for") &&
                           Contains("deadline 2.0 s"));
  CHECK(done.seconds < 30);
  CHECK_FALSE(fs::exists(machine.trace() + "/trace.json"));
}

TEST_CASE("hosts that a lost rank holds up are told what holds them within the deadline", "[run]") {
  const auto [settings, more, says] = GENERATE(
      // A launch that does not return, in a later step: kernels are loaded in the first.
      std::tuple<Settings, std::vector<std::string>, std::string>{
          {{"STANDIN_HANGS_AT", "4"}, {"STANDIN_QUEUE", "2"}},
          {},
          "(deadline 5.0 s): the device's queue is full behind 'bucket.0.all_reduce' on 'data'"},
      // A wait of the host within a step.
      std::tuple<Settings, std::vector<std::string>, std::string>{
          {{"STANDIN_HANGS_AT", "3"}},
          {"--set", "system.framework_traits.blocking_launches=true"},
          "'bucket.0.all_reduce' on 'data' has not finished for 5."});
  const Machine machine(settings);
  std::vector<std::string> arguments{"--ranks", "2", "--timeout", "5"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome done = machine.run(arguments);
  INFO(done.err);
  CHECK(done.code == 4);
  CHECK_THAT(done.err, Contains(says) && Contains("a rank is lost or hangs"));
}

TEST_CASE("a run on devices goes on from its checkpoint with the same losses", "[run]") {
  const auto [job, sets] =
      GENERATE(std::pair<std::string, std::vector<std::string>>{kDlrm, {"embedding.plan=row_wise"}},
               // Narrow weights: their masters are what is saved.
               std::pair<std::string, std::vector<std::string>>{
                   kFp8, {"formats.compute=bf16", "batch.global=4", "parallel.zero=1"}},
               std::pair<std::string, std::vector<std::string>>{
                   kFp8, {"formats.compute=bf16", "batch.global=4", "parallel.zero=3"}});
  const Machine machine;
  const std::string saved = machine.trace() + "-saved";
  const auto losses = [&](const char* backend, const char* steps, std::vector<std::string> more) {
    for (const std::string& set : sets) {
      more.insert(more.end(), {"--set", set});
    }
    more.insert(more.begin(), {"run", machine.file("job.json", job), "--backend", backend,
                               "--ranks", "2", "--warmup", "0", "--json", "--steps", steps});
    const nlohmann::json result = cli_test::document(machine.call(more));
    std::vector<double> all;
    for (const nlohmann::json& step : result.at("steps")) {
      all.push_back(step.at("loss").get<double>());
    }
    return all;
  };
  const std::vector<double> whole =
      losses("cuda", "6", {"--checkpoint", saved, "--every", "4", "--keep", "2"});
  REQUIRE(whole.size() == 6);
  const std::string fourth = saved + "/step-00000004";
  CHECK(losses("cuda", "2", {"--resume", fourth}) ==
        std::vector<double>(whole.begin() + 4, whole.end()));
  // The CPU, which keeps all numbers in fp32, goes on from there too.
  const std::vector<double> cpu = losses("cpu", "2", {"--resume", fourth});
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    CHECK(cpu[i] == Approx(whole[4 + i]).epsilon(0.01));
  }
}

TEST_CASE("a device that does not end the step of a rank alone is named", "[run]") {
  // A kernel that does not end, in a later step; the host waits for it, or for room in the queue.
  const char* queue = GENERATE("1000000", "2");
  CAPTURE(queue);
  const Machine machine(Settings{{"STANDIN_HANGS_AT_LAUNCH", "5000"}, {"STANDIN_QUEUE", queue}});
  const Outcome done = machine.call({"run", machine.file("job.json", kDlrm), "--backend", "cuda",
                                     "--steps", "1000", "--timeout", "1"});
  INFO(done.err);
  CHECK(done.code == 4);
  CHECK_THAT(done.err, Contains("the device has not finished a step for 1") &&
                           Contains(", deadline 1") && Contains("a kernel or the device hangs"));
  CHECK(done.out.empty());
}

TEST_CASE("setting up NCCL has a limit of its own", "[run]") {
  const Machine machine(Settings{{"STANDIN_SETUP_SECONDS", "8"}});
  const Outcome done = machine.run({"--ranks", "2", "--timeout", "5"});
  INFO(done.err);
  CHECK(done.code == 0);
}

TEST_CASE("a sweep keeps its rows, goes on without NCCL, and says what it left out", "[run]") {
  // A device so small that what fits runs in seconds here, and that no training job fits.
  const bool nccl = GENERATE(true, false);
  CAPTURE(nccl);
  const Machine machine({{"STANDIN_MEMORY", "7000000"},
                         {"STANDIN_NCCL", nccl ? "1" : "0"},
                         {"STANDIN_ENGINE_CHANGE_NS", "1000000000000"}});
  const std::string rows = machine.trace() + "-rows";
  const Outcome done = machine.call({"calibrate", "--backend", "cuda", "--seconds", "15", "--out",
                                     machine.trace() + ".json", "--rows", rows});
  INFO(done.err);
  CHECK(done.code == 4);
  CHECK_THAT(done.err, Contains("no training job fits"));
  CHECK_FALSE(fs::exists(machine.trace() + ".json"));
  const std::string ops = cli_test::text_of(rows + "/ops.csv");
  CHECK_THAT(ops, Contains("embedding_") && Contains("host_issue"));
  const std::string facts = cli_test::text_of(rows + "/device.json");
  CHECK_THAT(facts, Contains("\"left_out\"") && Contains("needs more than"));
  CHECK_THAT(facts, Contains("\"case\": \"attention\"") && Contains("attention=unfused"));
  const auto measured = nlohmann::json::parse(facts);
  for (const nlohmann::json& transfer : measured.at("transfers")) {
    CHECK(transfer.at("median_s").get<double>() < 100);  // no change of engines in it
  }
  CHECK((facts.find("all_reduce_one_rank") != std::string::npos) == nccl);
  CHECK((facts.find("\"one-device collectives\"") == std::string::npos) == nccl);
}
