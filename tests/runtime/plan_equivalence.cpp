// Trains one model under every plan, on 1, 2 and 4 real ranks, and compares the loss curves:
// `plan_equivalence FAMILY`. On the CPU it also checks that the loss falls. Runs of several ranks
// are this program again under mpirun, writing losses to a file.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/access/access.h"
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
constexpr unsigned kListSeeds = 1;
constexpr int kMostFused = 2;  // ranks: what kernels with epilogues compute is one rank's
#else
constexpr int kSteps = 24;
constexpr bool kLearns = true;
constexpr std::int64_t kSamples = 256;
constexpr std::int64_t kSequences = 8;
constexpr std::int64_t kSequence = 16;
constexpr unsigned kSeeds = 3;
constexpr unsigned kListSeeds = 3;
constexpr int kMostFused = 4;
#endif

/// A way to train a model, and which plans it must agree with: all of one group train on the same
/// batches by the same rule.
struct Plan {
  std::string name;
  Job job;
  std::string group;
};

Job dlrm_job() {
  LayeredWorkload w;
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
#ifdef STEPCAST_CUDA_STANDIN
  job.flash_attention = false;  // cuDNN has fused attention in 16 bits
#endif
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

/// Pooled tables whose distinct lists are looked up, pooled and sent once, and some that are not:
/// lists of whole tables, of split ones, of parts in groups, of copies on every rank.
std::vector<Plan> lists_plans(int ranks) {
  const std::string group = "repeated lists";
  std::vector<Plan> all;
  const auto add = [&](const std::string& name, const Job& job) {
    all.push_back({fmt::format("{} x {}", name, ranks), job, group});
  };
  Job job = dlrm_job();
  for (EmbeddingTable& t : std::get<LayeredWorkload>(job.workload.model).tables) {
    t.session = Session{16, 0.8};
  }
  job.devices = job.parallel.data = ranks;
  job.embedding_choice = "table_wise";
  add("all lists", job);
  job.embedding_dedup = true;
  for (const char* choice : {"table_wise", "row_wise", "table_row_wise", "data_parallel"}) {
    job.embedding_choice = choice;
    add(fmt::format("distinct lists, {}", choice), job);
  }
  job.parallel.dlrm_pipeline = DlrmPipeline::kPrefetch;
  add("distinct lists ahead", job);
  job.parallel.dlrm_pipeline = DlrmPipeline::kNone;
  for (unsigned seed = 1; ranks > 1 && seed <= kListSeeds; ++seed) {
    job.embedding_plan = test::random_tiered_plan(job, seed);
    add(fmt::format("distinct lists of seed {}", seed), job);
    Job cached = job;
    cached.system.tiers = {{"hbm", {}, {}, 1}, {"ddr", GB(10), GBps(1), 2}};
    test::move_to_slow_tiers(*cached.embedding_plan, seed, {"ddr"});
    add(fmt::format("cached lists of seed {}", seed), cached);
  }
  return all;
}

/// Copies of rows that are synchronised every second step: they train otherwise than those that are
/// in each, and where they stand matters, so each is a group of its own.
std::vector<Plan> waiting_plans(int ranks) {
  std::vector<Plan> all;
  for (const OptimizerKind optimizer : {OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdam}) {
    for (unsigned seed = 0; ranks > 1 && seed <= kSeeds; ++seed) {
      Job job = dlrm_job();
      job.embedding_optimizer = optimizer;
      job.devices = job.parallel.data = ranks;
      job.sync_interval = 2;
      job.embedding_choice = "data_parallel";
      if (seed > 0) {
        job.embedding_plan = test::random_tiered_plan(job, seed);
      }
      const std::string name =
          fmt::format("copies that wait, {} {} x {}", name_of(optimizer),
                      seed == 0 ? "everywhere" : fmt::format("of seed {}", seed), ranks);
      all.push_back({name, job, name});
    }
  }
  return all;
}

/// The plans of a family that use `ranks` ranks. The first of a group is what the others must agree
/// with.
std::vector<Plan> plans(const std::string& family, int ranks) {
  std::vector<Plan> list;
  std::map<std::string, Job> all;
  const auto listed = [&list, &all] {
    for (const auto& [name, job] : all) {
      list.push_back({name, job, ""});
    }
    return list;
  };
  if (family == "dlrm-with-repeated-lists") {
    return lists_plans(ranks);
  }
  if (family == "dlrm-with-waiting-copies") {
    return waiting_plans(ranks);
  }
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
    return listed();
  }
  const auto add = [&](std::string_view name, std::int64_t tensor, std::int64_t pipeline,
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
    return listed();
  }
  if (ranks > 1) {
    add("tensor", ranks, 1, nothing);
    add("sequence", ranks, 1, [](Parallel& p) { p.sequence_parallel = true; });
    add("pipeline", 1, ranks, nothing);
    for (const ScheduleTraits& s : kSchedules) {
      add(s.name, 1, 2, [&s](Parallel& p) {
        p.schedule = s.kind;
        p.virtual_stages = s.least_chunks;
      });
    }
    add("interleaved", 1, 2, [](Parallel& p) { p.virtual_stages = 2; });
    add("zero", 1, 1, [](Parallel& p) { p.zero = 1; });
    add("zero 2", 1, 1, [](Parallel& p) { p.zero = 2; });
    add("zero 3", 1, 1, [](Parallel& p) { p.zero = 3; });
    add("zero 3, overlap", 1, 1, [](Parallel& p) {
      p.zero = 3;
      p.overlap.data = true;
    });
    add("recompute", 2, 1, [](Parallel& p) { p.recompute.kind = RecomputeKind::kFull; });
    add("overlap", 1, 1, [](Parallel& p) { p.overlap.data = true; });
  }
  for (const char* plan : {"data", "sequence", "interleaved", "zb-h1", "zb-v", "zero 3, overlap",
                           "recompute", "overlap"}) {
    const auto separate = all.find(fmt::format("{} x {}", plan, ranks));
    if (ranks <= kMostFused && separate != all.end()) {
      Job fused = separate->second;
      fused.fused_epilogues = true;
      all[fmt::format("{}, fused x {}", plan, ranks)] = fused;
    }
  }
  return listed();
}

/// Backend that trains: the CPU's, or that of CUDA over a stand-in for its device.
ExecutorFactory backend() {
#ifdef STEPCAST_CUDA_STANDIN
  return cuda::executors(standin::module(), {});
#else
  return {};
#endif
}

/// Job that is trained on this number of ranks. The first run of a group is the reference of all
/// others: where another backend trains, the CPU's on as few ranks as the group has.
struct Run {
  Plan plan;
  ExecutorFactory executor;
};
std::vector<Run> runs(const std::string& family, int ranks) {
  std::vector<Run> all;
  std::set<std::string> known;
  for (int fewer = 1; fewer < ranks; fewer *= 2) {
    for (const Plan& p : plans(family, fewer)) {
      known.insert(p.group);
    }
  }
  for (const Plan& p : plans(family, ranks)) {
    if (backend() && known.insert(p.group).second) {
      all.push_back({{p.name + ", cpu", p.job, p.group}, {}});
    }
    all.push_back({p, backend()});
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
    for (const auto& [plan, executor] : runs(family, session.size())) {
      RunOptions run;
      run.executor = executor;
      run.steps = kSteps;
      run.warmup = 0;
      const RunResult result =
          run_training(workloads::build_graph(plan.job), plan.job.system, run, session, nullptr);
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

/// The losses of each run, in their order.
using Curves = std::vector<std::vector<double>>;

Curves read_curves(const std::string& file) {
  Curves curves;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream losses(line);
    auto& curve = curves.emplace_back();
    for (double loss = 0; losses >> loss;) {
      curve.push_back(loss);
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
  if (!launched_rank(environment).empty() && argc == 3) {
    return as_rank(argv[1], argv[2]);
  }
  if (argc != 2) {
    std::fprintf(stderr,
                 "usage: plan_equivalence dlrm|dlrm-with-repeated-lists|dlrm-with-waiting-copies|"
                 "transformer|mixture\n");
    return 1;
  }
  int failures = 0;
  std::map<std::string, std::vector<double>> references;
  for (const int ranks : {1, 2, 4}) {
    const std::vector<Run> all = runs(argv[1], ranks);
    if (all.empty()) {
      continue;
    }
    const Curves curves = run_on(argv[0], argv[1], ranks, environment);
    if (curves.size() != all.size()) {
      std::printf("FAILED: %zu curves of %d ranks\n", curves.size(), ranks);
      ++failures;
    }
    for (std::size_t i = 0; i < std::min(curves.size(), all.size()); ++i) {
      const std::string& name = all[i].plan.name;
      const std::vector<double>& curve = curves[i];
      if (curve.size() != kSteps) {
        std::printf("FAILED: %zu losses of %s\n", curve.size(), name.c_str());
        ++failures;
        continue;
      }
      const auto& reference = references.try_emplace(all[i].plan.group, curve).first->second;
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
