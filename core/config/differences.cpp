#include <algorithm>

#include "core/config/internal/loaders.h"

namespace stepcast::config {
namespace {

bool same_keys(const Json& a, const Json& b) {
  return a.size() == b.size() &&
         std::all_of(a.items().begin(), a.items().end(),
                     [&](const auto& item) { return b.contains(item.key()); });
}

/// Keys of `parallel` that are written only where they differ from these.
void add_defaults(Json& parallel) {
  const auto add = [](Json& object, const char* key, const Json& value) {
    if (!object.contains(key)) {
      object[key] = value;
    }
  };
  add(parallel, "order", "tensor-context-pipeline-data");
  add(parallel, "expert_tensor", "auto");
  add(parallel, "expert_chunks", 1);
  add(parallel, "expert_dispatch", "all_to_all");
  add(parallel, "pipeline_split", {{"embedding", 0}, {"head", 0}});
  if (Json& overlap = parallel["overlap"]; overlap.contains("data")) {  // a transformer's
    for (const char* key : {"parameters", "tensor_products", "expert"}) {
      add(overlap, key, false);
    }
  }
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

}  // namespace

std::vector<Difference> differences(const Job& a, const Job& b) {
  // Keys of a job in the order of CONTRACT section 3.
  const OrderedJson ordered = OrderedJson::parse(job_to_json(a, -1));
  Json before = Json::parse(job_to_json(a, -1));
  Json after = Json::parse(job_to_json(b, -1));
  for (Json* job : {&before, &after}) {
    (*job)["parallel"]["data"] = "auto";
    add_defaults((*job)["parallel"]);
    // What a plan says of itself follows from its tables.
    if (Json& plan = (*job)["embedding"]["plan"]; plan.is_object()) {
      for (const char* derived :
           {"content_hash", "ledger", "made_for", "predicted_step_s", "lower_bound_s", "gap"}) {
        plan.erase(derived);
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
