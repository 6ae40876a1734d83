#include "planner/parallel/plan_point.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/access/row_order.h"
#include "core/job_split.h"

namespace stepcast::planner {

namespace {

std::int32_t level_of(const std::string& name, const System& system) {
  if (name.empty()) {
    return 0;
  }
  for (std::size_t i = 0; i < system.fabric.size(); ++i) {
    if (system.fabric[i].name == name) {
      return static_cast<std::int32_t>(i) + 1;
    }
  }
  return kNodeLevel;
}

}  // namespace

std::string level_name(std::int32_t level, const System& system) {
  return level == 0            ? ""
         : level == kNodeLevel ? "node"
                               : system.fabric.at(static_cast<std::size_t>(level) - 1).name;
}

PipelineSplit pipeline_split(const Job& job, const PlanPoint& point) {
  PipelineSplit split = job.parallel.pipeline_split;
  split.embedding = point.embedding_layers;
  split.head = point.head_layers;
  return split;
}

Job applied(Job job, const PlanPoint& point) {
  Parallel& p = job.parallel;
  p.tensor = point.tensor;
  p.context = point.context;
  p.expert = point.expert;
  p.pipeline = point.pipeline;
  p.data = point.data;
  p.virtual_stages = point.virtual_stages;
  p.chunk_microbatches = 0;
  p.pipeline_split = pipeline_split(job, point);
  p.schedule = point.schedule;
  p.sequence_parallel = point.sequence_parallel;
  p.zero = point.zero;
  p.zero_level = level_name(point.shard_level, job.system);
  p.recompute.kind = point.recompute;
  p.recompute.layers = point.recompute_layers;
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
  point.embedding_layers = narrow(p.pipeline_split.embedding);
  point.head_layers = narrow(p.pipeline_split.head);
  point.micro = narrow(job.batch.micro);
  point.zero = p.zero;
  point.shard_level = level_of(p.zero_level, job.system);
  point.recompute = p.recompute.kind;
  point.recompute_layers = narrow(p.recompute.layers);
  point.schedule = p.schedule;
  point.sequence_parallel = p.sequence_parallel;
  return point;
}

std::string zero_text(const PlanPoint& point, const System& system) {
  const std::string level = level_name(point.shard_level, system);
  return fmt::format("{}{}{}", point.zero, level.empty() ? "" : " inside ", level);
}

std::string recompute_text(const PlanPoint& point, const RecomputeModules& modules) {
  switch (point.recompute) {
    case RecomputeKind::kNone:
      return "none";
    case RecomputeKind::kSelective:
      return modules == RecomputeModules{} ? "selective"
                                           : fmt::format("{}", fmt::join(names_of(modules), " + "));
    case RecomputeKind::kFull:
      return "full";
    case RecomputeKind::kFirstLayers:
      return fmt::format("{} layer{}", point.recompute_layers,
                         point.recompute_layers == 1 ? "" : "s");
  }
  return "";
}

std::string schedule_text(const PlanPoint& point) {
  if (point.pipeline == 1) {
    return "-";
  }
  const std::string_view name = name_of(point.schedule);
  const bool weighed = point.embedding_layers > 0 || point.head_layers > 0;
  return fmt::format(
      "{}{}{}", name, point.virtual_stages > 1 ? fmt::format(" x {}", point.virtual_stages) : "",
      weighed ? fmt::format(", ends {} + {}", point.embedding_layers, point.head_layers) : "");
}

std::string schedule_title(const PlanPoint& point) {
  std::string title(name_of(point.schedule));
  if (title == "1f1b") {
    title = "1F1B";
  }
  const std::pair<const char*, std::int32_t> ends[] = {{"embedding", point.embedding_layers},
                                                       {"head", point.head_layers}};
  for (const auto& [what, layers] : ends) {
    title += layers > 0 ? fmt::format(", {} counts as {} layer{}", what, layers,
                                      layers == 1 ? "" : "s")
                        : "";
  }
  return title;
}

std::string split_text(const PipelineSplit& split) {
  if (split.layers.empty()) {
    const auto layers = [](std::int64_t n) {
      return fmt::format("{} layer{}", n, n == 1 ? "" : "s");
    };
    return split == PipelineSplit{} ? ""
                                    : fmt::format("embedding as {}, head as {}",
                                                  layers(split.embedding), layers(split.head));
  }
  std::string text = "layers ";
  for (auto from = split.layers.begin(); from != split.layers.end();) {
    const auto to =
        std::find_if(from, split.layers.end(), [from](std::int64_t n) { return n != *from; });
    text += from == split.layers.begin() ? "" : ", ";
    text += to - from > 1 ? fmt::format("{} x {}", to - from, *from) : fmt::format("{}", *from);
    from = to;
  }
  return text;
}

std::string order_text(const MeshOrder& order) {
  return order == kUsualOrder        ? "tp-cp-pp-dp"
         : order == kPipelineOutside ? "tp-cp-dp-pp"
                                     : "";
}

std::string fixed_text(const FixedPlan& fixed) {
  std::string text;
  const auto add = [&text](const char* key, const auto& value) {
    if (value) {
      text += fmt::format("{}{}={}", text.empty() ? "" : ", ", key, *value);
    }
  };
  add("tensor", fixed.tensor);
  add("context", fixed.context);
  add("expert", fixed.expert);
  add("pipeline", fixed.pipeline);
  add("data", fixed.data);
  add("virtual_stages", fixed.virtual_stages);
  if (fixed.pipeline_split) {
    const std::string said = split_text(*fixed.pipeline_split);
    add("pipeline_split", std::optional(said.empty() ? "even" : said));
  }
  add("micro", fixed.micro);
  add("sequence_parallel", fixed.sequence_parallel);
  add("zero", fixed.zero);
  if (fixed.schedule) {
    add("schedule", std::optional(name_of(*fixed.schedule)));
  }
  if (fixed.recompute) {
    PlanPoint point;
    point.recompute = fixed.recompute->kind;
    point.recompute_layers = static_cast<std::int32_t>(fixed.recompute->layers);
    add("recompute", std::optional(recompute_text(point, fixed.recompute->modules)));
  }
  if (fixed.order) {
    const std::string order = order_text(*fixed.order);
    add("order", std::optional(order.empty() ? "as given" : order));
  }
  return text;
}

std::string overlaps_text(const Overlap& o) {
  const std::pair<const char*, bool> hidden[] = {{"data", o.data},
                                                 {"tensor", o.tensor},
                                                 {"tensor_products", o.tensor_products},
                                                 {"pipeline", o.pipeline},
                                                 {"parameters", o.parameters},
                                                 {"expert", o.expert}};
  std::string text;
  for (const auto& [name, on] : hidden) {
    text += on ? (text.empty() ? "" : ", ") + std::string(name) : "";
  }
  return text.empty() ? "none" : text;
}

std::string describe(const PlanPoint& point, const System* system) {
  std::string text;
  const auto degree = [&text](const char* name, std::int32_t ranks, const char* more = "") {
    text += ranks > 1 ? fmt::format("{}{}{} ", name, ranks, more) : "";
  };
  degree("TP", point.tensor, point.sequence_parallel ? "+SP" : "");
  degree("CP", point.context);
  degree("EP", point.expert);
  degree("PP", point.pipeline);
  degree("VPP", point.virtual_stages);
  if (point.zero > 0) {
    text += fmt::format("ZeRO-{} ", point.zero);
    text += point.shard_level == 0            ? ""
            : point.shard_level == kNodeLevel ? "inside a node, "
            : system != nullptr ? fmt::format("inside {}, ", level_name(point.shard_level, *system))
                                : fmt::format("inside level {}, ", point.shard_level);
  }
  text += fmt::format("DP{}, micro-batch {}", point.data, point.micro);
  if (point.pipeline > 1) {
    text += ", " + schedule_title(point);
  }
  if (point.recompute != RecomputeKind::kNone) {
    text += ", recompute " + recompute_text(point);
  }
  return text;
}

std::string describe(const Job& job) {
  const Parallel& p = job.parallel;
  std::string text = describe(point_of(job), &job.system);
  if (p.context > 1 && p.context_algorithm != ContextAlgorithm::kAuto) {
    const std::string ranks = fmt::format("CP{}", p.context);
    text.insert(text.find(ranks) + ranks.size(),
                fmt::format(" ({})", name_of(p.context_algorithm)));
  }
  if (const PipelineSplit& split = job.parallel.pipeline_split; !split.layers.empty()) {
    text += ", " + split_text(split);
  }
  return text;
}

}  // namespace stepcast::planner
