#include <algorithm>
#include <iterator>

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

/// The rule with those of its values that break no other; a model's own keys are not tried.
std::string what_helps(const BrokenRule& broken, const Accepts& accepts) {
  if (broken.key.starts_with("workload.")) {
    return broken.what;
  }
  std::vector<std::int64_t> good;
  std::copy_if(broken.values.begin(), broken.values.end(), std::back_inserter(good),
               [&](std::int64_t value) { return accepts(broken.key, value); });
  const std::string remedy = remedy_text(broken.values);
  return broken.what.substr(0, broken.what.size() - remedy.size()) +
         (good.empty() && !remedy.empty() ? remedy + " with other keys changed too"
                                          : remedy_text(good));
}

}  // namespace

void check_job(const Job& job, const Value& v, const Accepts& accepts) {
  check_level_name(job, v);
  if (const auto broken = broken_rule(job)) {
    throw InputError(v.where(broken->key), what_helps(*broken, accepts));
  }
}

}  // namespace stepcast::config
