#include "interop/embedding_tables/described_tables.h"
#include <algorithm>
#include "core/lower.h"

// Keys that files of other systems that describe embedding tables share;
// docs/reference/table-files.md shows them.
namespace stepcast::interop {

std::optional<Value> given(const Value& v, const char* key) {
  const auto found = v.find(key);
  return found && !found->json().is_null() ? found : std::nullopt;
}

void must_be_absent(const Value& v, std::initializer_list<const char*> keys, const char* why) {
  for (const char* key : keys) {
    if (const auto found = given(v, key)) {
      found->reject(fmt::format("found {}: {}; leave it out", shown(found->json()), why));
    }
  }
}

void pass_over(const std::string& place, const char* kind, const std::string& name,
               const std::vector<std::string>& read, Json& workload) {
  if (std::find(read.begin(), read.end(), name) != read.end()) {
    return;
  }
  if (!nearest_name(name, read).empty()) {
    throw InputError(place, fmt::format("unknown {} \"{}\"; {}", kind, name.substr(0, 40),
                                        suggestion(name, read)));
  }
  workload["approximated"].push_back(name.substr(0, 40) + " (passed over)");
}

Json mixed_precision() {
  return {{"compute", "fp16"}, {"all_to_all_forward", "fp16"}, {"all_to_all_backward", "fp16"}};
}

std::string last_word(const Value& v, const char* expected) {
  const std::string text = v.text(expected);
  return lower(text.substr(text.rfind('.') + 1));
}

std::string pooling_mode(const Value& v) {
  const std::string mode = last_word(v, "SUM or MEAN");
  if (mode != "sum" && mode != "mean") {
    v.fail("SUM or MEAN");
  }
  return mode;
}

void add_dense(const Value& v, const char* features, const char* bottom, const char* top,
               const char* cross_layers, const char* cross_rank, Json& w) {
  const auto in = given(v, features);
  const auto low = given(v, bottom);
  const auto high = given(v, top);
  const auto layers = given(v, cross_layers);
  const auto rank = given(v, cross_rank);
  const Json& first = w["tables"].front()["dim"];
  const std::int64_t dim = first.is_number_integer() ? first.get<std::int64_t>() : 1;
  if (!in && !low && !high && !layers && !rank) {
    w["dense_features"] = 1;
    w["bottom_mlp"] = {dim};
    w["interaction"] = {{"kind", "cat"}};
    w["top_mlp"] = {1};
    return;
  }
  for (const auto& [key, found] :
       {std::pair(features, in), std::pair(bottom, low), std::pair(top, high)}) {
    if (!found) {
      throw InputError(v.where(key),
                       fmt::format("is missing, expected it with the other sizes of the dense "
                                   "model: {}, {}, {}",
                                   features, bottom, top));
    }
  }
  w["dense_features"] = in->integer(1, 1 << 20);
  w["bottom_mlp"] = low->json();
  w["top_mlp"] = high->json();
  const bool equal = std::all_of(w["tables"].begin(), w["tables"].end(),
                                 [&](const Json& t) { return t["dim"] == dim; });
  if (layers || rank) {
    w["interaction"] = {{"kind", "dcnv2"},
                        {"layers", v.at(cross_layers, "the cross layers").integer(1, 10'000)},
                        {"rank", v.at(cross_rank, "their rank").integer(1, 1 << 20)}};
  } else {
    w["interaction"] = {{"kind", equal ? "dot" : "cat"}};
  }
}

void add_batch(std::int64_t global, Described& d) {
  d.workload["default_batch"] = {{"global", global}};
}

Described begun(const Value& v, const char* usual_name) {
  Described d;
  const auto name = given(v, "name");
  d.workload["kind"] = "dlrm";
  d.workload["name"] = name ? name->name() : usual_name;
  d.workload["tables"] = Json::array();
  return d;
}

bool describes_tables(const Json& root) {
  return root.is_object() && !root.contains("kind") && !root.contains("workload");
}

Document as_workload(Document d, Described found) {
  for (const char* key : {"formats", "embedding", "devices_per_machine"}) {
    if (found.job.contains(key)) {
      throw InputError(d.label,
                       fmt::format("says what belongs to the job and not to its workload ({}: "
                                   "{}): give this file as the job itself, or leave that out and "
                                   "set \"{}\" in the job",
                                   key, found.job[key].dump(), key));
    }
  }
  d.root = std::move(found.workload);
  return d;
}

Document as_job(Document d, Described found) {
  found.job["workload"] = std::move(found.workload);
  d.root = std::move(found.job);
  return d;
}

}  // namespace stepcast::interop
