#include "tests/studies/known_machine.h"

#include "core/config/config.h"
#include "core/error.h"
#include "models/cost_model.h"
#include "simulator/reports/timeline.h"
#include "simulator/simulate.h"
#include "simulator/step_costs.h"
#include "workloads/build_graph.h"

namespace stepcast::studies::test {

namespace fs = std::filesystem;

namespace {

FittedModel constants(const std::string& form, std::map<std::string, double> values) {
  FittedModel m;
  m.form = form;
  m.constants = std::move(values);
  return m;
}

}  // namespace

System known_machine() {
  System s;
  s.name = "known";
  s.device.name = "known-core";
  s.device.memory = GB(4);
  s.device.bandwidth = GBps(10);
  s.device.l2 = MB(2);
  s.device.peak[Format::kFp32] = FlopsPerSecond(5e10);
  s.device.source = "test";
  s.host = {.devices = 2, .cores = 2, .shares_core = true};
  s.fabric.push_back(
      {.name = "shared-memory", .size = 2, .bandwidth = GBps(2), .latency = microseconds(1)});
  FittedModels& d = s.device.fitted;
  d["gemm"] = constants("gemm.shape_rate", {{"start", 4e-7},
                                            {"call", 1e-7},
                                            {"rate", 1e11},
                                            {"half_m", 6},
                                            {"half_n", 12},
                                            {"half_k", 8},
                                            {"nt", 0.9},
                                            {"tn", 0.8},
                                            {"near", 8e10},
                                            {"far", 1.2e10},
                                            {"capacity", 4e6},
                                            {"tn_half_n", 12},
                                            {"vector", 1e-10}});
  d["memory_bound"] = constants("memory.levels", {{"start", 3e-7},
                                                  {"row", 2e-9},
                                                  {"element", 2e-10},
                                                  {"near", 5e10},
                                                  {"far", 1e10},
                                                  {"capacity", 4e6}});
  d["attention"] = constants("attention.parts", {{"start", 1e-6},
                                                 {"call", 1e-7},
                                                 {"rate", 8e10},
                                                 {"half_dim", 8},
                                                 {"half_keys", 10},
                                                 {"softmax", 3e-10},
                                                 {"bandwidth", 2e10}});
  d["host"] = constants("host.constant", {{"issue", 1.5e-7}, {"dispatch", 2.5e-7}, {"step", 5e-6}});
  s.fitted["collective"] = constants("collective.knee", {{"start", 3e-6},
                                                         {"member", 5e-7},
                                                         {"near", 4e9},
                                                         {"far", 2e9},
                                                         {"capacity", 1e6},
                                                         {"rendezvous", 2e-6},
                                                         {"threshold", 8e3},
                                                         {"self", 1e-10}});
  return s;
}

Job transformer(std::int64_t hidden, std::int64_t sequence, std::int64_t layers, bool tensor) {
  TransformerWorkload t;
  t.layers = layers;
  t.hidden = hidden;
  t.heads = t.kv_heads = 4;
  t.head_dim = hidden / 4;
  t.ffn_hidden = 4 * hidden;
  t.activation = Activation::kGelu;
  t.vocabulary = 512;
  Job job;
  job.workload.model = t;
  job.workload.name = "gpt " + std::to_string(hidden) + "x" + std::to_string(sequence);
  job.system = known_machine();
  job.devices = 2;
  job.formats = {Format::kFp32, Format::kFp32, Format::kFp32, Format::kFp32, Format::kFp32};
  (tensor ? job.parallel.tensor : job.parallel.data) = 2;
  job.batch = {.global = 4, .micro = 2, .sequence = sequence};
  job.workload.default_batch = job.batch;
  return job;
}

traces::GraphRun simulated_trace(const Job& job, std::int32_t steps) {
  traces::GraphRun trace;
  trace.producer = "test";
  trace.job = config::job_to_json(job);
  trace.graph = workloads::build_graph(job);
  const models::CostModel model(job.system, job.calibration);
  simulator::StepCosts costs = simulator::price(trace.graph, model, {.unfold = true});
  simulator::Timeline timeline;
  const auto result = simulator::simulate(trace.graph, costs, {}, &timeline);
  for (std::int32_t r = 0; r < 2; ++r) {
    traces::RankTrace rank;
    rank.rank = r;
    for (std::int32_t step = 0; step < steps; ++step) {
      const std::int64_t shift =
          3'000'000'000LL * r + step * (ticks(result.makespan) + 50'000'000LL);
      const auto moved = [shift](SimTime t) { return SimTime{ticks(t) + shift}; };
      rank.steps.push_back({step, moved(SimTime{}), moved(result.makespan)});
      for (OpSpan s : timeline.ops()) {
        if (s.rank == r) {
          s.step = step;
          s.issued = moved(s.issued);
          s.begin = moved(s.begin);
          s.ready = s.begin;
          s.end = moved(s.end);
          rank.ops.push_back(s);
        }
      }
      for (HostSpan s : timeline.hosts()) {
        if (s.rank == r) {
          // The simulator's first interval includes the start of the step, the recorder's does not.
          const std::int64_t start = s.begin == SimTime{} ? costs.step : 0;
          s.step = step;
          s.begin = moved(SimTime{ticks(s.begin) + start});
          s.end = moved(s.end);
          rank.host.push_back(s);
        }
      }
    }
    trace.ranks.push_back(std::move(rank));
  }
  return trace;
}

void write(const fs::path& folder, const traces::GraphRun& trace) {
  for (const traces::RankTrace& r : trace.ranks) {
    traces::write_rank(folder, r);
  }
  traces::write_manifest(folder, trace, static_cast<int>(trace.ranks.size()));
}

const FitTracesOptions& to_known_core() {
  static const FitTracesOptions options{
      .device = "fitted-core", .system = "fitted", .library = STEPCAST_SOURCE_DIR};
  return options;
}

fs::path recorded(const std::string& name) {
  return fs::path(STEPCAST_SOURCE_DIR) / "traces" / "recorded" / name;
}

std::string error_of(const std::vector<fs::path>& folders) {
  try {
    fit_traces(folders, to_known_core());
  } catch (const InputError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace stepcast::studies::test
