#include "validation/overlap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/trainer.h"
#include "studies/fit/calibrate.h"
#include "studies/fit/error_statistics.h"
#include "studies/predict/predict.h"
#include "workloads/build_graph.h"

namespace stepcast::validation {
namespace {

Job base_job(const System& system, std::int64_t ranks) {
  Job job;
  job.system = system;
  job.devices = ranks;
  job.formats = {Format::kFp32, Format::kFp32, Format::kFp32, Format::kFp32, Format::kFp32};
  job.parallel.data = ranks;
  job.parallel.bucket = MB(1);  // small buckets leave early
  return job;
}

/// The top MLP's gradients travel while embeddings and the bottom MLP go backward.
Job dlrm_job(const System& system, std::int64_t ranks, bool hidden) {
  Job job = base_job(system, ranks);
  DlrmWorkload d;
  d.dense_features = 16;
  d.bottom_mlp = {512, 512, 64};
  d.top_mlp =
      hidden ? std::vector<std::int64_t>{512, 256, 1} : std::vector<std::int64_t>{2048, 2048, 1};
  for (int t = 0; t < 8; ++t) {
    EmbeddingTable table;
    table.name = fmt::format("t{}", t);
    table.rows = 100000;
    table.dim = 64;
    table.pooling = hidden ? 20 : 2;
    table.access =
        std::make_shared<Access>(Access::zipf(table.rows, 0.8, static_cast<std::uint64_t>(t)));
    d.tables.push_back(std::move(table));
  }
  job.workload.model = std::move(d);
  job.batch.global = (hidden ? 2048 : 64) * ranks;
  job.embedding_choice = "table_wise";
  job.dense_optimizer = OptimizerKind::kSgd;
  job.parallel.overlap.dense_all_reduce = true;
  job.workload.name =
      hidden ? "dlrm, all-reduce under backward" : "dlrm, all-reduce longer than backward";
  return job;
}

/// Many ids: those of the next batch travel beside this one.
Job pipelined_job(const System& system, std::int64_t ranks) {
  Job job = base_job(system, ranks);
  DlrmWorkload d;
  d.dense_features = 16;
  d.bottom_mlp = {512, 16};
  d.top_mlp = {512, 1};
  d.interaction.kind = InteractionKind::kCat;
  for (int t = 0; t < 2; ++t) {
    EmbeddingTable table;
    table.name = fmt::format("t{}", t);
    table.rows = 100000;
    table.dim = 16;
    table.pooling = 60;
    table.access =
        std::make_shared<Access>(Access::zipf(table.rows, 0.8, static_cast<std::uint64_t>(t)));
    d.tables.push_back(std::move(table));
  }
  job.workload.model = std::move(d);
  job.batch.global = 2048 * ranks;
  job.embedding_choice = "table_wise";
  job.dense_optimizer = OptimizerKind::kSgd;
  job.parallel.dlrm_pipeline = DlrmPipeline::kSparseDist;
  job.workload.name = "dlrm, next ids under this batch";
  return job;
}

Job transformer_job(const System& system, std::int64_t ranks, bool hidden) {
  Job job = base_job(system, ranks);
  TransformerWorkload t;
  t.layers = 4;
  t.hidden = 256;
  t.heads = t.kv_heads = 4;
  t.head_dim = 64;
  t.ffn_hidden = 1024;
  t.activation = Activation::kGelu;
  t.vocabulary = 1024;
  job.workload.model = t;
  job.batch.sequence = hidden ? 256 : 16;
  job.batch.micro = hidden ? 4 : 1;
  job.batch.global = job.batch.micro * ranks;
  job.dense_optimizer = OptimizerKind::kSgd;
  job.parallel.overlap.data = true;
  job.workload.name =
      hidden ? "gpt, gradients under backward" : "gpt, gradients longer than backward";
  return job;
}

}  // namespace

std::vector<OverlapCase> validate_overlap(
    const System& paced, std::uint64_t seed, runtime::MpiSession& session,
    const std::function<void(double, const std::string&)>& progress) {
  studies::CalibrateOptions calibrate;
  calibrate.quick = true;
  calibrate.seed = seed;
  calibrate.emulate = &paced;
  calibrate.progress = [&](double done, const std::string& what) { progress(done * 0.8, what); };
  const System system = studies::calibrate_cpu(calibrate, session).system;  // fitted on rank 0 only
  std::vector<OverlapCase> cases;
  for (const bool hidden : {true, false}) {
    std::vector<Job> jobs{dlrm_job(system, session.size(), hidden),
                          transformer_job(system, session.size(), hidden)};
    if (hidden) {
      jobs.push_back(pipelined_job(system, session.size()));
    }
    for (const Job& job : jobs) {
      const ExecutionGraph graph = workloads::build_graph(job);
      OverlapCase c;
      c.name = job.workload.name;
      c.hidden = hidden;
      if (session.rank() == 0) {
        const studies::StepPrediction p = studies::predict(job, graph);
        c.predicted = p.iteration.base();
        c.predicted_exposed = p.split.exposed_communication.base();
        progress(0.8 + 0.04 * static_cast<double>(cases.size()), c.name);
      }
      runtime::RunOptions run;
      run.warmup = 4;
      run.steps = 24;
      run.seed = seed + 17;
      run.real_time = true;
      run.emulate = &paced;
      const runtime::RunResult result = runtime::run_training(graph, job.system, run, session);
      std::vector<double> all, first, second;
      for (std::size_t i = 0; i < result.steps.size(); ++i) {
        all.push_back(result.steps[i].time.base());
        (i < result.steps.size() / 2 ? first : second).push_back(all.back());
      }
      c.measured = median_of(all);
      c.noise = std::abs(median_of(first) / median_of(second) - 1);
      // The fit lives on rank 0: the others learn the verdict from it.
      const auto shared = session.maximum({c.predicted, c.predicted_exposed});
      c.predicted = shared[0];
      c.predicted_exposed = shared[1];
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace stepcast::validation
