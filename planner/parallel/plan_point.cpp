#include "planner/parallel/plan_point.h"

#include <fmt/format.h>

namespace stepcast::planner {

Job applied(Job job, const PlanPoint& point) {
  Parallel& p = job.parallel;
  p.tensor = point.tensor;
  p.context = point.context;
  p.expert = point.expert;
  p.pipeline = point.pipeline;
  p.data = point.data;
  p.virtual_stages = point.virtual_stages;
  p.schedule = point.schedule;
  p.sequence_parallel = point.sequence_parallel;
  p.zero = point.zero;
  p.recompute = {point.recompute, point.recompute_layers};
  job.batch.micro = point.micro;
  job.devices = point.devices();
  return job;
}

PlanPoint point_of(const Job& job) {
  const auto narrow = [](std::int64_t v) { return static_cast<std::int32_t>(v); };
  const Parallel& p = job.parallel;
  PlanPoint point;
  point.tensor = narrow(p.tensor);
  point.context = narrow(p.context);
  point.expert = narrow(p.expert);
  point.pipeline = narrow(p.pipeline);
  point.data = narrow(p.data);
  point.virtual_stages = narrow(p.virtual_stages);
  point.micro = narrow(job.batch.micro);
  point.zero = p.zero;
  point.recompute = p.recompute.kind;
  point.recompute_layers = narrow(p.recompute.layers);
  point.schedule = p.schedule;
  point.sequence_parallel = p.sequence_parallel;
  return point;
}

std::string recompute_text(const PlanPoint& point) {
  switch (point.recompute) {
    case RecomputeKind::kNone:
      return "none";
    case RecomputeKind::kSelective:
      return "selective";
    case RecomputeKind::kFull:
      return "full";
    case RecomputeKind::kFirstLayers:
      return fmt::format("{} layers", point.recompute_layers);
  }
  return "";
}

const char* schedule_name(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kGpipe:
      return "gpipe";
    case ScheduleKind::kOneFOneB:
      return "1f1b";
    case ScheduleKind::kZbH1:
      return "zb-h1";
  }
  return "";
}

std::string schedule_text(const PlanPoint& point) {
  if (point.pipeline == 1) {
    return "-";
  }
  const char* name = schedule_name(point.schedule);
  return point.virtual_stages > 1 ? fmt::format("{} x {}", name, point.virtual_stages) : name;
}

std::string describe(const PlanPoint& point) {
  std::string text = fmt::format("tensor {}", point.tensor);
  if (point.sequence_parallel) {
    text += " + sequence";
  }
  if (point.context > 1) {
    text += fmt::format(", context {}", point.context);
  }
  if (point.expert > 1) {
    text += fmt::format(", expert {}", point.expert);
  }
  text += fmt::format(", pipeline {}, data {}, micro {}", point.pipeline, point.data, point.micro);
  if (point.pipeline > 1) {
    text += ", " + schedule_text(point);
  }
  if (point.recompute != RecomputeKind::kNone) {
    text += ", recompute " + recompute_text(point);
  }
  if (point.zero > 0) {
    text += fmt::format(", zero {}", point.zero);
  }
  return text;
}

}  // namespace stepcast::planner
