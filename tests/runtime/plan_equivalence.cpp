// Trains one model under every plan, on 1, 2 and 4 real ranks, and compares the loss curves:
// `plan_equivalence dlrm|transformer|mixture`. On the CPU it also checks that the loss falls. Runs
// of several ranks are this program again under mpirun, writing losses to a file.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/access.h"
#include "runtime/launch.h"
#include "runtime/trainer.h"
#include "tests/runtime/tiered_plans.h"
#include "workloads/build_graph.h"
#ifdef STEPCAST_CUDA_STANDIN
#include "tests/runtime/cuda/standin/module.h"
#endif

extern char** environ;  // NOLINT

using namespace stepcast;
using namespace stepcast::runtime;

namespace {

#ifdef STEPCAST_CUDA_STANDIN
// Every thread of every kernel is emulated: too few steps to learn, enough to see that two updates
// are those of the CPU, which learns.
constexpr int kSteps = 3;
constexpr bool kLearns = false;
constexpr std::int64_t kSamples = 64;
constexpr std::int64_t kSequences = 4;
constexpr std::int64_t kSequence = 8;
constexpr unsigned kSeeds = 2;
#else
constexpr int kSteps = 24;
constexpr bool kLearns = true;
constexpr std::int64_t kSamples = 256;
constexpr std::int64_t kSequences = 8;
constexpr std::int64_t kSequence = 16;
constexpr unsigned kSeeds = 3;
#endif
using Curves = std::map<std::string, std::vector<double>>;

Job dlrm_job() {
  DlrmWorkload w;
  w.dense_features = 13;
  w.bottom_mlp = {32, 16};
  w.top_mlp = {32, 1};
  for (int t = 0; t < 6; ++t) {
    EmbeddingTable table;
    table.name = fmt::format("t{}", t);
    table.rows = 200 + 77 * t;
    table.dim = 16;
    table.pooling = t % 2 == 0 ? 2 : 3.5;
    table.mode = t == 4 ? PoolingMode::kSequence : t == 3 ? PoolingMode::kMean : PoolingMode::kSum;
    table.access = std::make_shared<const Access>(
        Access::zipf(table.rows, 1.05, static_cast<std::uint64_t>(t)));
    w.tables.push_back(table);
  }
  Job job;
  job.workload = {"small", w, {}};
  job.batch.global = kSamples;
  job.formats.compute = Format::kFp32;
  job.dense_optimizer = OptimizerKind::kSgd;
  job.system.host.devices = 2;
  return job;
}

Job transformer_job() {
  TransformerWorkload w;
  w.layers = 4;
  w.hidden = 32;
  w.heads = w.kv_heads = 4;
  w.head_dim = 8;
  w.ffn_hidden = 64;
  w.vocabulary = 64;
  Job job;
  job.workload = {"small", w, {}};
  job.batch = {kSequences, 1, kSequence};
  job.formats.compute = Format::kFp32;
  return job;
}

/// Eight experts, two a token and one for all; the first layer is dense.
Job experts_job() {
  Job job = transformer_job();
  auto& w = std::get<TransformerWorkload>(job.workload.model);
  w.activation = Activation::kSwiGlu;
  MixtureOfExperts moe;
  moe.experts = 8;
  moe.per_token = 2;
  moe.shared = 1;
  moe.ffn_hidden = 24;
  moe.first_dense_layers = 1;
  moe.routing = std::make_shared<const Access>(Access::zipf(8, 0.6, 2));
  w.moe = moe;
  job.dense_optimizer = OptimizerKind::kSgd;
  return job;
}

/// The plans of a family that use `ranks` ranks.
std::map<std::string, Job> plans(const std::string& family, int ranks) {
  std::map<std::string, Job> all;
  if (family == "dlrm") {
    // Row-wise Adagrad keeps a sum per row of the columns held, so column-wise plans train
    // differently by definition.
    for (const char* choice : {"table_wise", "row_wise", "table_row_wise", "data_parallel"}) {
      Job job = dlrm_job();
      job.devices = job.parallel.data = ranks;
      job.embedding_choice = choice;
      all[fmt::format("{} x {}", choice, ranks)] = job;
    }
    const std::map<std::string, DlrmPipeline> pipelines{{"sparse_dist", DlrmPipeline::kSparseDist},
                                                        {"prefetch", DlrmPipeline::kPrefetch},
                                                        {"fused", DlrmPipeline::kFused}};
    for (const auto& [name, pipeline] : pipelines) {
      Job job = all.at(fmt::format("row_wise x {}", ranks));
      job.parallel.dlrm_pipeline = pipeline;
      all[fmt::format("{} x {}", name, ranks)] = job;
    }
    Job tiered = all.at(fmt::format("row_wise x {}", ranks));
    tiered.embedding_choice = "tiered";
    all[fmt::format("tiered x {}", ranks)] = tiered;
    for (unsigned seed = 1; ranks > 1 && seed <= kSeeds; ++seed) {
      tiered.embedding_plan = test::random_tiered_plan(
          tiered, seed,
          ranks == 8 ? std::vector<std::int64_t>{2, 4} : std::vector<std::int64_t>{2});
      all[fmt::format("tiers of seed {} x {}", seed, ranks)] = tiered;
      Job distinct = tiered;
      distinct.embedding_dedup = true;
      all[fmt::format("distinct rows of seed {} x {}", seed, ranks)] = distinct;
      Job cached = tiered;
      cached.system.tiers = {{"hbm", {}, {}, 1}, {"ddr", GB(10), GBps(1), 2}};
      test::move_to_slow_tiers(*cached.embedding_plan, seed, {"ddr"});
      cached.parallel.dlrm_pipeline = seed == 1   ? DlrmPipeline::kNone
                                      : seed == 2 ? DlrmPipeline::kPrefetch
                                                  : DlrmPipeline::kSparseDist;
      all[fmt::format("cached rows of seed {} x {}", seed, ranks)] = cached;
    }
    return all;
  }
  const auto add = [&](const char* name, std::int64_t tensor, std::int64_t pipeline,
                       auto&& change) {
    Job job = family == "mixture" ? experts_job() : transformer_job();
    job.devices = ranks;
    job.parallel.tensor = tensor;
    job.parallel.pipeline = pipeline;
    job.parallel.data = ranks / (tensor * pipeline);
    change(job.parallel);
    all[fmt::format("{} x {}", name, ranks)] = job;
  };
  const auto nothing = [](Parallel&) {};
  add("data", 1, 1, nothing);
  if (family == "mixture") {
    const auto over = [&](std::int64_t expert) { return [=](Parallel& p) { p.expert = expert; }; };
    if (ranks > 1) {
      add("experts over data", 1, 1, over(ranks));
      add("pairs of experts", 1, 1, over(2));
      add("columns of experts", 2, 1, over(ranks / 2));
      add("experts in a pipeline", 1, 2, over(ranks / 2));
      add("experts, overlap", 1, 1, [&](Parallel& p) {
        p.expert = ranks;
        p.overlap.expert = true;
        p.expert_chunks = 2;
      });
      add("gathered experts", 2, 1, [&](Parallel& p) {
        p.expert = ranks / 2;
        p.sequence_parallel = true;
      });
      add("whole experts", 2, 1, [&](Parallel& p) {
        p.expert = ranks;
        p.expert_tensor = 1;
        p.sequence_parallel = true;
      });
      add("experts, zero 3", 1, 1, [](Parallel& p) {
        p.expert = 2;
        p.zero = 3;
      });
    }
    return all;
  }
  if (ranks > 1) {
    add("tensor", ranks, 1, nothing);
    add("sequence", ranks, 1, [](Parallel& p) { p.sequence_parallel = true; });
    add("pipeline", 1, ranks, nothing);
    add("gpipe", 1, 2, [](Parallel& p) { p.schedule = ScheduleKind::kGpipe; });
    add("interleaved", 1, 2, [](Parallel& p) { p.virtual_stages = 2; });
    add("zero", 1, 1, [](Parallel& p) { p.zero = 1; });
    add("zb-h1", 1, 2, [](Parallel& p) { p.schedule = ScheduleKind::kZbH1; });
    add("zero 2", 1, 1, [](Parallel& p) { p.zero = 2; });
    add("zero 3", 1, 1, [](Parallel& p) { p.zero = 3; });
    add("zero 3, overlap", 1, 1, [](Parallel& p) {
      p.zero = 3;
      p.overlap.data = true;
    });
    add("recompute", 2, 1, [](Parallel& p) { p.recompute.kind = RecomputeKind::kFull; });
    add("overlap", 1, 1, [](Parallel& p) { p.overlap.data = true; });
  }
  return all;
}

/// What trains: the CPU backend, or the CUDA backend over a stand-in for its device.
ExecutorFactory backend() {
#ifdef STEPCAST_CUDA_STANDIN
  return cuda::executors(standin::module(), {});
#else
  return {};
#endif
}

/// The curves of this number of ranks by name. The first is the reference of all others: where
/// another backend trains, the CPU's on one rank.
struct Run {
  Job job;
  ExecutorFactory executor;
};
std::map<std::string, Run> runs(const std::string& family, int ranks) {
  std::map<std::string, Run> all;
  for (const auto& [name, job] : plans(family, ranks)) {
    if (backend() && ranks == 1 && all.empty()) {
      all["cpu"] = {job, {}};
    }
    all[name] = {job, backend()};
  }
  return all;
}

int as_rank(const std::string& family, const std::string& file) {
  MpiOptions options;
  options.report = [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); };
  MpiSession session(options);
  std::ofstream out;
  if (session.rank() == 0) {
    out.open(file);
    out.precision(17);
  }
  try {
    for (const auto& [name, what] : runs(family, session.size())) {
      RunOptions run;
      run.executor = what.executor;
      run.steps = kSteps;
      run.warmup = 0;
      const RunResult result =
          run_training(what.job, workloads::build_graph(what.job), run, session, nullptr);
      out << name << "\n";
      for (const StepRecord& step : result.steps) {
        out << step.loss << " ";
      }
      out << "\n";
    }
  } catch (const std::exception& e) {
    session.abort(70, e.what());
  }
  return 0;
}

Curves read_curves(const std::string& file) {
  Curves curves;
  std::ifstream in(file);
  for (std::string name; std::getline(in >> std::ws, name);) {
    for (double& loss : curves.emplace(name, kSteps).first->second) {
      in >> loss;
    }
  }
  return curves;
}

Curves run_on(const std::string& program, const std::string& family, int ranks,
              const Environment& environment) {
  const std::string file = (std::filesystem::temp_directory_path() /
                            fmt::format("stepcast_curves_{}_{}", family, getpid()))
                               .string();
  LaunchRequest request;
  request.executable = program;
  request.arguments = {family, file};
  request.ranks = ranks;
  request.environment = environment;
  const LaunchResult result = run_under_mpirun(request);
  if (result.exit_code != 0) {
    std::printf("%d ranks: %s\n", ranks, result.message.c_str());
  }
  const Curves curves = read_curves(file);
  std::filesystem::remove(file);
  return curves;
}

}  // namespace

int main(int argc, char** argv) {
  const Environment environment(environ, [] {
    char** end = environ;
    while (*end != nullptr) {
      ++end;
    }
    return end;
  }());
  if (under_launcher(environment) && argc == 3) {
    return as_rank(argv[1], argv[2]);
  }
  if (argc != 2) {
    std::fprintf(stderr, "usage: plan_equivalence dlrm|transformer|mixture\n");
    return 1;
  }
  int failures = 0;
  std::vector<double> reference;
  for (const int ranks : {1, 2, 4}) {
    const Curves curves = run_on(argv[0], argv[1], ranks, environment);
    if (curves.size() != runs(argv[1], ranks).size()) {
      std::printf("FAILED: %zu curves of %d ranks\n", curves.size(), ranks);
      ++failures;
    }
    for (const auto& [name, curve] : curves) {
      if (reference.empty()) {
        reference = curve;
      }
      double worst = 0;
      for (std::size_t s = 0; s < curve.size(); ++s) {
        worst = std::fmax(worst, std::abs(curve[s] / reference[s] - 1));
      }
      // fp32 sums in another order: 1e-7 per step and some growth; a wrong plan is off by percents.
      const bool equal = worst < 2e-4 && std::isfinite(curve.back());
      const bool falls = !kLearns || curve.back() < 0.99 * curve.front();
      std::printf("%-24s %.5f -> %.5f  off by %.1e %s%s\n", name.c_str(), curve.front(),
                  curve.back(), worst, equal ? "" : " FAILED: differs",
                  falls ? "" : " FAILED: does not fall");
      failures += equal && falls ? 0 : 1;
    }
  }
  return failures == 0 ? 0 : 1;
}
