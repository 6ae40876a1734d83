#include "studies/predict/warnings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/clearly_less.h"
#include "core/formats.h"
#include "core/job/plan_settings.h"
#include "studies/predict/memory_fix.h"
#include "workloads/transformer/shape.h"

namespace stepcast::studies {
namespace {

/// Kinds of ops that most of the extrapolated time is of, with their shares of all.
std::string extrapolated_kinds(const std::vector<OpRow>& rows) {
  constexpr std::size_t kNamed = 3;
  Seconds all;
  std::vector<const OpRow*> outside;
  for (const OpRow& row : rows) {
    all += row.time;
    if (row.outside > Seconds{}) {
      outside.push_back(&row);
    }
  }
  std::stable_sort(outside.begin(), outside.end(), [](const OpRow* a, const OpRow* b) {
    return clearly_less(b->outside, a->outside);
  });
  std::string text;
  for (std::size_t i = 0; i < std::min(outside.size(), kNamed); ++i) {
    text += fmt::format("{}{} {:.0f} %", i > 0 ? ", " : "", outside[i]->name,
                        100 * (outside[i]->outside / all));
  }
  return text;
}

/// Parts of the system that nothing was ever fitted for: their times are those of the hardware's
/// limits, which nothing reaches.
std::string without_constants(const Job& job) {
  if (job.calibration.kind == Calibration::Kind::kNone) {
    return "calibration none: kernels and collectives run at the limits of the hardware; real steps "
           "are longer";
  }
  const System& s = job.system;
  const auto& fitted = s.device.fitted;
  const bool kernels =
      std::any_of(fitted.begin(), fitted.end(), [](const auto& m) { return m.first != "memory"; });
  const bool collectives = std::any_of(s.fitted.begin(), s.fitted.end(), [](const auto& m) {
    return !m.first.starts_with("transformer_step");
  });
  const bool links = collectives || job.devices == 1 || s.fabric.empty();
  if (kernels && links) {
    return {};
  }
  const std::string what = !kernels && !links ? "kernels and collectives run"
                           : kernels          ? "collectives run"
                                              : "kernels run";
  const std::string whose = kernels ? "system " + s.name : "device " + s.device.name;
  return fmt::format(
      "{} at the limits of the hardware, as {} has no measured constants of them; real steps are "
      "longer; `stepcast fit --transfer dgx-h100 --system FILE --out NEW` takes those of a measured "
      "system",
      what, whose);
}

/// Warning that the job is not the one that its embedding plan was made for.
std::string other_plan(const Job& job) {
  const auto changed =
      job.embedding_plan ? changed_settings(job, *job.embedding_plan) : std::vector<std::string>{};
  return changed.empty()
             ? std::string()
             : fmt::format(
                   "the embedding plan was made for another job: {}; `stepcast plan --from` may "
                   "find a faster one",
                   fmt::join(changed, ", "));
}

/// Units of the innermost level of the fabric that a group of experts lies in.
std::size_t expert_units(const Job& job, MeshOrder order, ExpertSplit split) {
  Mesh mesh = job.parallel.mesh();
  mesh.order = order;
  std::set<std::int64_t> units;
  for (const std::int32_t rank : expert_group(mesh, split, 0)) {
    units.insert(rank / job.system.devices_in_level(0));
  }
  return units.size();
}

/// Warning that ranks that exchange tokens of experts lie in several units of the innermost level:
/// what that is, and what keeps the exchange inside one.
std::string far_experts(const Job& job) {
  const Parallel& p = job.parallel;
  if (job.workload.transformer() == nullptr || p.expert == 1 || job.system.fabric.empty()) {
    return {};
  }
  const workloads::TransformerShape shape = workloads::transformer_shape(job);
  const ExpertSplit split = shape.experts->split();
  const std::size_t now = expert_units(job, p.order, split);
  if (now == 1) {
    return {};
  }
  const FabricLevel& level = job.system.fabric.front();
  const std::size_t then =
      p.order == kPipelineOutside ? now : expert_units(job, kPipelineOutside, split);
  const std::string fix =
      then < now
          ? fmt::format("--set parallel.order=tensor-context-data-pipeline spans {}", then)
          : fmt::format("a smaller EP stays inside one ({} GPUs)", level.size);
  return fmt::format("EP{} spans {} {} domains, so its all-to-all leaves {}; {}", split.ranks, now,
                     level.name, level.name, fix);
}

/// Warning that tensor or context ranks that one unit of the innermost level would hold lie in
/// several.
std::string straddling_groups(const Job& job) {
  if (job.workload.transformer() == nullptr || job.system.fabric.size() < 2) {
    return {};
  }
  const Mesh mesh = job.parallel.mesh();
  const std::int64_t inside = job.system.devices_in_level(0);
  for (const auto& [axis, name] :
       {std::pair{Axis::kTensor, "tensor"}, {Axis::kContext, "context"}}) {
    const std::int64_t span = std::int64_t{mesh.stride(axis)} * mesh.extent(axis);
    if (mesh.extent(axis) > 1 && span <= inside && inside % span != 0 && job.devices > inside) {
      return fmt::format(
          "some groups of {} {} ranks span two {} domains ({} GPUs each); --set "
          "system.fabric[0].used={} keeps each inside one",
          mesh.extent(axis), name, job.system.fabric.front().name, inside,
          job.system.fabric.front().taken() / span * span);
    }
  }
  return {};
}

/// Warning that decoding begins with nothing to attend to.
std::string empty_cache(const Job& job) {
  return job.phase == JobPhase::kDecode && job.cached == 0
             ? "decode with 0 cached tokens is the first token of an empty prompt; --set cached=8k "
               "has so many before it"
             : "";
}

/// Warning that the device has no units for the format of products, with those that it has.
std::string without_units(const Job& job) {
  const Format format = job.formats.compute;
  const auto& peak = job.system.device.peak;
  if (format_info(format).block <= 1 || peak.contains(format)) {
    return {};
  }
  std::vector<std::string_view> has;
  for (const auto& [other, rate] : peak) {
    has.push_back(name_of(other));
  }
  return fmt::format(
      "{} has no {} units: values are that narrow, but products run at the rate of 16 bits; it has "
      "{}: --precision {}",
      job.system.device.name, name_of(format), fmt::join(has, ", "),
      name_of(peak.contains(Format::kFp8) ? Format::kFp8 : Format::kBf16));
}

/// Keys that the job says and that change nothing of it, each with what it would need.
std::vector<std::string> without_effect(const Job& job) {
  std::vector<std::string> said;
  if (job.workload.transformer() == nullptr) {
    return said;
  }
  const bool trains = job.phase == JobPhase::kTrain;
  const FrameworkTraits& traits = job.system.framework;
  const auto add = [&said](const char* key, const char* why) {
    said.push_back(fmt::format("{} has no effect: {}", key, why));
  };
  if (job.loss.deferred > 0 && (!trains || job.parallel.pipeline == 1 || job.loss.chunks > 1)) {
    add("loss.deferred", !trains                      ? "inference has no weight gradients"
                         : job.parallel.pipeline == 1 ? "the job has no pipeline"
                                                      : "a loss in chunks makes them at once");
  }
  if (traits.wide_scores && job.flash_attention) {
    add("formats.scores", "fused attention keeps no scores; attention=unfused does");
  }
  constexpr double kNarrow = 16;
  if (traits.narrow_head && (!trains || bits_per_element(job.formats.compute) >= kNarrow)) {
    add("formats.head", !trains ? "it is of training"
                                : "products are no narrower than the head; formats.compute=fp8 is");
  }
  // A framework may say the other keys of experts.
  if (job.parallel.overlap.expert && !job.workload.transformer()->moe) {
    add("parallel.overlap.expert", "the model has no experts");
  }
  return said;
}

}  // namespace

std::vector<std::string> warnings_of(const StepPrediction& p) {
  const Job& job = p.job;
  std::vector<std::string> warnings;
  if (p.mfu > 1 || p.hfu > 1) {
    warnings.push_back(
        fmt::format("MFU above 100 %: its convention counts all attention scores, of which causal "
                    "kernels skip half; {:.1f} % without those",
                    100 * p.mfu_causal));
  }
  for (const std::string& warning :
       {other_plan(job), without_constants(job), empty_cache(job), far_experts(job),
        straddling_groups(job), without_units(job),
        p.fit == simulator::Fit::kYes ? tight_memory(p.ledger.total(), job.system.device) : ""}) {
    if (!warning.empty()) {
      warnings.push_back(warning);
    }
  }
  for (std::string& said : without_effect(job)) {
    warnings.push_back(std::move(said));
  }
  if (const auto* shape = job.workload.transformer();
      shape != nullptr && !shape->approximated.empty()) {
    warnings.push_back(fmt::format("approximated in {}: {}", job.workload.name,
                                     fmt::join(shape->approximated, "; ")));
  }
  if (!p.in_calibrated_range && job.calibration.kind != Calibration::Kind::kNone) {
    warnings.push_back(fmt::format(
        "{:.0f} % of the time is extrapolated, from kernels or shapes not measured on {} ({})",
        100 * p.extrapolated, job.system.device.name,
        extrapolated_kinds(p.busiest ? p.busiest->by_kind : p.by_kind)));
  }
  return warnings;
}

std::string uneven_stages(const Job& job, std::string_view framework) {
  const Parallel& p = job.parallel;
  const auto* model = job.workload.transformer();
  if (model == nullptr || job.phase != JobPhase::kTrain || p.pipeline == 1 ||
      p.pipeline_split != PipelineSplit{} || !framework.starts_with("megatron")) {
    return {};
  }
  const std::int64_t chunks = p.pipeline * p.virtual_stages;
  return model->layers % chunks == 0
             ? std::string()
             : fmt::format("{} layers are no multiple of {} stages: Megatron-LM starts them with "
                           "--pipeline-model-parallel-layout only (`stepcast plan -o train.sh` "
                           "writes it)",
                           model->layers, chunks);
}

}  // namespace stepcast::studies
