#include "runtime/step_executor.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace stepcast::runtime {

StepExecutor::StepExecutor(const ExecutionGraph& graph, std::int32_t rank, std::int64_t epoch_ns,
                           Observer* observer)
    : graph_(graph),
      program_(graph.program_of(rank)),
      rank_(rank),
      observer_(observer),
      order_(unrolled(ExecutionOrder(program_, graph.communicators.size()))),
      epoch_ns_(epoch_ns),
      pipelined_(std::any_of(order_.issues.begin(), order_.issues.end(),
                             [](const Issue& issue) { return works_ahead(*issue.op); })) {}

void StepExecutor::fill_pipeline(const HostBatch& first) {
  STEPCAST_CHECK(pipelined() && !filled_, "rank {} fills a pipeline twice, or without one", rank_);
  batch_ = next_batch_ = &first;
  observed_step_ = -1;
  filling_ = true;
  stage_batches();
  run_ops();
  begin_next_batch();
  filling_ = false;
  filled_ = true;
}

void StepExecutor::stage(std::int64_t step, const HostBatch& batch, const HostBatch* next) {
  STEPCAST_CHECK(!pipelined() || (filled_ && next != nullptr),
                 "rank {} runs a pipelined step without the next batch", rank_);
  batch_ = &batch;
  next_batch_ = next;
  step_ = step;
  stage_batches();
  staged_ = true;
}

double StepExecutor::run_step(std::int64_t step, const HostBatch& batch, std::int32_t observed_step,
                              const HostBatch* next) {
  if (!std::exchange(staged_, false)) {
    stage(step, batch, next);
    staged_ = false;
  }
  STEPCAST_CHECK(step == step_ && &batch == batch_, "rank {} staged step {} and runs {}", rank_,
                 step_, step);
  observed_step_ = observed_step;
  const double loss = run_ops();
  if (pipelined()) {
    begin_next_batch();
  }
  return loss;
}

void StepExecutor::report_host(HostSpan::Kind kind, std::int64_t begin, std::int64_t end) {
  if (observed()) {
    observer_->on_host({rank_, observed_step_, kind, at(begin), at(end)});
  }
}

}  // namespace stepcast::runtime
