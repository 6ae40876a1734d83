#include "core/job/plan_settings.h"

#include <fmt/format.h>

#include <algorithm>

namespace stepcast {
namespace {

std::string text_of(DlrmPipeline pipeline) {
  switch (pipeline) {
    case DlrmPipeline::kNone:
      return "none";
    case DlrmPipeline::kSparseDist:
      return "sparse_dist";
    case DlrmPipeline::kPrefetch:
      return "prefetch";
    case DlrmPipeline::kFused:
      return "fused";
  }
  return "";
}

}  // namespace

std::vector<PlanSetting> plan_settings(const Job& job) {
  const auto format = [](Format f) { return std::string(name_of(f)); };
  const auto flag = [](bool on) { return std::string(on ? "true" : "false"); };
  const Overlap& overlap = job.parallel.overlap;
  return {{"batch.global", std::to_string(job.batch.global)},
          {"formats.compute", format(job.formats.compute)},
          {"formats.gradient", format(job.formats.gradient)},
          {"formats.embedding", format(job.formats.embedding)},
          {"formats.all_to_all_forward", format(job.formats.all_to_all_forward)},
          {"formats.all_to_all_backward", format(job.formats.all_to_all_backward)},
          {"optimizer.dense", std::string(name_of(job.dense_optimizer))},
          {"optimizer.embedding", std::string(name_of(job.embedding_optimizer))},
          {"parallel.dlrm_pipeline", text_of(job.parallel.dlrm_pipeline)},
          {"parallel.overlap.input_all_to_all", flag(overlap.input_all_to_all)},
          {"parallel.overlap.output_all_to_all", flag(overlap.output_all_to_all)},
          {"parallel.overlap.dense_all_reduce", flag(overlap.dense_all_reduce)}};
}

std::vector<std::string> changed_settings(const Job& job, const EmbeddingPlan& plan) {
  std::vector<std::string> changed;
  if (plan.made_for.empty()) {
    return changed;
  }
  std::vector<PlanSetting> now = plan_settings(job);
  std::vector<PlanSetting> then = plan.made_for;
  now.insert(now.begin(), {{"workload", job.workload.name}, {"system", job.system.name}});
  then.insert(then.begin(), {{"workload", plan.workload}, {"system", plan.system}});
  for (const PlanSetting& s : now) {
    const auto it = std::find_if(then.begin(), then.end(),
                                 [&](const PlanSetting& t) { return t.key == s.key; });
    if (it != then.end() && it->value != s.value) {
      changed.push_back(fmt::format("{} {} (made for {})", s.key, s.value, it->value));
    }
  }
  return changed;
}

}  // namespace stepcast
