#include "core/config/internal/frameworks.h"
#include "core/config/internal/job_tables.h"

namespace stepcast::config {
namespace {

bool is_auto(const Json& value) { return value.is_string() && value == "auto"; }

/// Leaves out every searched key that says "auto": the same as not giving it.
void drop_auto(Json& root) {
  for (const auto& [name, table] :
       {std::pair{"parallel", parallel_table()}, {"batch", batch_table()}}) {
    const auto object = root.is_object() ? root.find(name) : root.end();
    if (object == root.end() || !object->is_object()) {
      continue;
    }
    for (const KeyFacts& key : table) {
      const auto value = object->find(key.name);
      if (key.searched && value != object->end() && is_auto(*value)) {
        object->erase(value);
      }
    }
  }
}

}  // namespace

JobDocuments open_plan(JobDocuments documents) {
  drop_auto(documents.job.root);
  return documents;
}

PlanRequest plan_request_of(const JobDocuments& documents, Job read) {
  PlanRequest request{std::move(read), {}};
  Job& job = request.job;
  if (job.workload.transformer() == nullptr) {
    return request;
  }
  const Value root = Value::root_of(documents.job);
  const auto given = [&root](const char* object, const char* key) {
    const auto v = root.find(object);
    return v && v->find(key);
  };
  FixedPlan& fixed = request.fixed;
  Parallel& p = job.parallel;
  const auto fix = [&](const char* key, auto& into, auto& value, auto usual) {
    if (given("parallel", key)) {
      into = value;
    }
    value = usual;
  };
  fix("tensor", fixed.tensor, p.tensor, 1);
  fix("context", fixed.context, p.context, 1);
  fix("expert", fixed.expert, p.expert, 1);
  fix("pipeline", fixed.pipeline, p.pipeline, 1);
  fix("virtual_stages", fixed.virtual_stages, p.virtual_stages, 1);
  fix("schedule", fixed.schedule, p.schedule, ScheduleKind::kOneFOneB);
  fix("sequence_parallel", fixed.sequence_parallel, p.sequence_parallel, false);
  fix("zero", fixed.zero, p.zero, 0);
  fix("recompute", fixed.recompute, p.recompute, Recompute{});
  if (fixed.recompute) {
    p.recompute.modules = fixed.recompute->modules;
  } else if (job.workload.transformer()->mla && job.flash_attention &&
             !job.system.framework.selective_per_op) {
    // Fused attention leaves little to its core; the large values are those made of narrow ones.
    p.recompute.modules = {.attention_core = false, .latent_up = true};
  }
  if (given("parallel", "pipeline_split")) {  // a list stays with the job: no point holds one
    fixed.pipeline_split = p.pipeline_split;
  }
  if (p.pipeline_split.layers.empty()) {
    p.pipeline_split = {};
  }
  if (given("parallel", "order")) {
    fixed.order = p.order;
  }
  if (given("parallel", "data")) {
    fixed.data = root.at("parallel", "").at("data", "").integer(1, std::int64_t{1} << 20U);
  }
  p.data = 1;
  if (given("batch", "micro")) {
    fixed.micro = job.batch.micro;
  }
  job.batch.micro = 1;
  return request;
}

}  // namespace stepcast::config
