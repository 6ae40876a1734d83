#include <catch2/catch.hpp>
#include <map>

#include "core/config/config.h"
#include "core/error.h"
#include "core/graph/op.h"
#include "core/graph/program.h"
#include "studies/predict/predict.h"
#include "tests/jobs.h"
#include "workloads/build_graph.h"

using namespace stepcast;
using namespace stepcast::studies;

namespace {

Job dlrm(const std::string& pipeline) {
  return fixtures::zoo_job(
      "mlperf-dlrm-v2", "dgx-h100",
      {"devices=8", "batch.global=65536", "embedding.plan=table_wise",
       "parallel.overlap.output_all_to_all=true", "parallel.overlap.dense_all_reduce=true",
       "parallel.dlrm_pipeline=" + pipeline});
}

std::map<std::string, std::int64_t> executions(const StepPrediction& p) {
  std::map<std::string, std::int64_t> all;
  for (const OpRow& row : p.by_name) {
    all[row.name] = row.executions;
  }
  return all;
}

double time_in_phase(const Job& job, Phase phase) {
  PredictOptions options;
  options.timeline = true;
  const ExecutionGraph graph = workloads::build_graph(job);
  const StepPrediction p = predict(job, graph, options);
  double sum = 0;
  for (const OpSpan& span : p.timeline) {
    const Op& op = graph.program_of(span.rank).ops[span.ref.op];
    if (span.rank == 0 && op.phase == phase) {
      sum += to_seconds(span.end).base() - to_seconds(span.begin).base();
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("a pipeline moves ops between steps, it adds and drops none", "[studies][dlrm]") {
  const auto plain = executions(predict(dlrm("none")));
  for (const char* pipeline : {"sparse_dist", "prefetch", "fused"}) {
    CAPTURE(pipeline);
    CHECK(executions(predict(dlrm(pipeline))) == plain);
  }
}

TEST_CASE("sparse_dist hides the input of the next batch", "[studies][dlrm]") {
  const double none = predict(dlrm("none")).iteration.base();
  const double hidden = predict(dlrm("sparse_dist")).iteration.base();
  const double input = time_in_phase(dlrm("none"), Phase::kInput);
  CHECK(input > 0);
  CHECK(hidden < none);
  // No more than all of it; what it slows down beside it stays below half of it.
  CHECK(none - hidden <= 1.02 * input);
  CHECK(none - hidden >= 0.5 * input);
}

TEST_CASE("the sparse half cannot run ahead of a transformer", "[studies][dlrm]") {
  CHECK_THROWS_AS(fixtures::zoo_job("gpt3-175b", "dgx-a100-80gb", "parallel.dlrm_pipeline=fused"),
                  InputError);
  CHECK(dlrm("fused").parallel.dlrm_pipeline == DlrmPipeline::kFused);
  CHECK(fixtures::loaded({}, config::job_to_json(dlrm("prefetch"))).parallel.dlrm_pipeline ==
        DlrmPipeline::kPrefetch);
}
