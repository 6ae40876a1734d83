#pragma once
#include <string>
#include <vector>

#include "core/job/job.h"

namespace stepcast {

/// The settings that the predicted step of an embedding plan rests on, apart from workload, system
/// and devices: batch, formats, optimizers, pipeline and overlaps. What a plan file keeps as
/// `made_for`.
std::vector<PlanSetting> plan_settings(const Job& job);

/// Differences between a job and what its plan was made for, as text: "batch.global 65536 (made for
/// 32768)"; empty where it does not, or the plan does not say.
std::vector<std::string> changed_settings(const Job& job, const EmbeddingPlan& plan);

}  // namespace stepcast
