#include <algorithm>

#include "core/config/internal/loaders.h"
#include "core/job/efficiency.h"

namespace stepcast::config {
namespace {

bool same_keys(const Json& a, const Json& b) {
  return a.size() == b.size() &&
         std::all_of(a.items().begin(), a.items().end(),
                     [&](const auto& item) { return b.contains(item.key()); });
}

bool same_name(const Json& a, const Json& b) {
  return !a.contains("name") || a["name"] == b.value("name", Json());
}

void compare(const std::string& path, const Json& a, const Json& b, std::vector<Difference>& out) {
  if (a == b) {
    return;
  }
  if (a.is_object() && b.is_object() && same_keys(a, b) && same_name(a, b)) {
    for (const auto& [key, value] : a.items()) {
      compare(join_path(path, key), value, b[key], out);
    }
    return;
  }
  out.push_back({path, a.dump(), b.dump()});
}

/// The job with every key of `parallel` and every trait of its framework.
OrderedJson whole(const Job& job) {
  OrderedJson j = job_json(job);
  j["system"] = system_json(job.system, true);
  j["parallel"] = parallel_json(job, true);
  return j;
}

}  // namespace

std::vector<Difference> differences(const Job& a, const Job& b) {
  // Keys of a job in the order of CONTRACT section 3.
  const OrderedJson ordered = whole(a);
  Json before(ordered);
  Json after(whole(b));
  for (Json* job : {&before, &after}) {
    (*job)["parallel"]["data"] = "auto";
    // Efficiencies multiply a step as a whole.
    if (Json& system = (*job)["system"]; system.is_object() && system.contains("fitted")) {
      for (const EfficiencyFamily family : kEfficiencyFamilies) {
        system["fitted"].erase(efficiency_key(family));
      }
      system["fitted"].erase(efficiency_key(EfficiencyFamily::kRecommender));
    }
    // Keys of a plan that describe it follow from its tables.
    if (Json& plan = (*job)["embedding"]["plan"]; plan.is_object()) {
      for (const char* derived :
           {"content_hash", "ledger", "made_for", "predicted_step_s", "lower_bound_s", "gap"}) {
        plan.erase(derived);
      }
    }
  }
  // Keys that one of the two leaves out.
  Json& here = before["parallel"];
  Json& there = after["parallel"];
  for (const auto& [some, other] : {std::pair{&here, &there}, {&there, &here}}) {
    for (const auto& [key, value] : other->items()) {
      if (!some->contains(key)) {
        (*some)[key] = nullptr;
      }
    }
  }
  std::vector<Difference> all;
  for (const auto& [key, value] : ordered.items()) {
    compare(key, before[key], after.value(key, Json()), all);
  }
  return all;
}

}  // namespace stepcast::config
