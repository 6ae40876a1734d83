#include "interop/torchrec/rules.h"

#include <algorithm>

namespace stepcast::interop {

const std::vector<TorchRecSharding>& torchrec_shardings() {
  static const std::vector<std::string_view> fused{"fused", "fused_uvm", "fused_uvm_caching"};
  static const std::vector<TorchRecSharding> all{
      {"data_parallel", true, true, {"dense"}},  {"table_wise", true, true, fused},
      {"column_wise", true, true, fused},        {"row_wise", true, true, fused},
      {"table_column_wise", true, false, fused}, {"table_row_wise", true, false, fused},
      {"grid_shard", true, false, fused}};
  return all;
}

const TorchRecSharding* torchrec_sharding(std::string_view type) {
  const auto& all = torchrec_shardings();
  const auto it = std::find_if(all.begin(), all.end(),
                               [type](const TorchRecSharding& s) { return s.type == type; });
  return it == all.end() ? nullptr : &*it;
}

}  // namespace stepcast::interop
