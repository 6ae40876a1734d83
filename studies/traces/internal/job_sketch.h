#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "studies/traces/internal/inferred_workload.h"
#include "studies/traces/job_from_trace.h"

namespace stepcast::studies {

/// A job while it is found out.
class InferredWorkload {
 public:
  using Json = nlohmann::ordered_json;
  /// The trace says so.
  void tell(std::string_view key, Json value, std::string reason) {
    told.push_back({std::string(key), value.dump(), std::move(reason)});
    set(key, std::move(value));
  }
  /// It does not; the value stands for it, null leaves the default.
  void assume(std::string_view key, Json value, std::string reason) {
    open.push_back({std::string(key), value.is_null() ? "" : value.dump(), std::move(reason)});
    if (!value.is_null()) {
      set(key, std::move(value));
    }
  }
  /// At a dotted place.
  void set(std::string_view key, Json value) {
    Json* at = &job;
    for (std::size_t dot = key.find('.'); dot != std::string_view::npos; dot = key.find('.')) {
      at = &(*at)[std::string(key.substr(0, dot))];
      key.remove_prefix(dot + 1);
    }
    (*at)[std::string(key)] = std::move(value);
  }

  Json job = Json::object();
  std::vector<InferredKey> told, open;
};

/// Each gives the workload, its batch, plan and formats, and says whether it is one of its kind.
/// `world`: ranks of the run, of which `ranks` may be some.
bool infer_dlrm(const std::vector<SeenRank>& ranks, std::int64_t world, InferredWorkload& sketch);
/// Errors: InputError that names `source` where one step holds several models.
bool sketch_transformer(const std::vector<SeenRank>& ranks, std::int64_t world,
                        const std::string& source, InferredWorkload& sketch);

/// Our name of a framework's class; empty: another.
std::string optimizer_of(std::string_view torch_class);

/// True for a product of two matrices in the forward pass.
inline bool is_product(const SeenOp& o) {
  return !o.backward && o.op.kind == OpKind::kGemm && o.op.shape[3] == 1;
}

}  // namespace stepcast::studies
