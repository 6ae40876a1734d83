#include "core/config/internal/loaders.h"
#include "core/job/job_rules.h"

namespace stepcast::config {
namespace {

/// A name is a matter of reading: the nearest one is at hand here.
void check_level_name(const Job& job, const Value& v) {
  const Parallel& p = job.parallel;
  if (p.zero == 0 || p.zero_level.empty() || job.system.devices_in(p.zero_level)) {
    return;
  }
  std::vector<std::string> names{"node"};
  for (const FabricLevel& level : job.system.fabric) {
    names.push_back(level.name);
  }
  throw InputError(v.where("parallel.zero.level"),
                   fmt::format("found \"{}\"; {}", p.zero_level, suggestion(p.zero_level, names)));
}

}  // namespace

void check_job(const Job& job, const Value& v) {
  check_level_name(job, v);
  if (const auto broken = broken_rule(job)) {
    throw InputError(v.where(broken->key), broken->what);
  }
}

}  // namespace stepcast::config
