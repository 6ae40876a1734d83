#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "core/graph/op.h"
#include "core/graph/program_fwd.h"
#include "models/cost_model.h"
#include "models/kernels/embedding_traffic.h"

namespace stepcast::models {

/// Answers of a cost model kept by what the op is: a search that prices the same few thousand
/// shapes millions of times pays the model once per shape. Asking again allocates nothing.
///
///   KernelMemo memo(cost);
///   Prediction p = memo.kernel(program, op);
///
/// Kept are kinds whose model looks at the op's own fields only (CostModel::of_op_alone); others
/// (operands in a cache, tables of a program) are asked anew each time, but the distinct rows of
/// shards that are looked up alike are counted once. Not shared between threads:
/// one memo each. The model must outlive the memo.
class KernelMemo {
 public:
  explicit KernelMemo(const CostModel& model, std::size_t expected_shapes = 4096);
  /// The model's answer, exactly.
  [[nodiscard]] Prediction kernel(const Program& program, const Op& op);
  [[nodiscard]] std::size_t shapes() const { return used_; }  ///< distinct ops kept

 private:
  struct Entry {
    Op op;
    Prediction prediction;
    bool taken = false;
  };
  [[nodiscard]] Entry& slot(const Op& op);
  void grow();
  [[nodiscard]] ShardTraffic traffic(const EmbeddingShard& shard, Format format);

  const CostModel& model_;
  std::vector<Entry> table_;  // open addressing, a power of two, at most half full
  std::size_t used_ = 0;
  /// By law, rows and lookups of a shard.
  std::map<std::tuple<std::shared_ptr<const Access>, std::int64_t, double>, ShardTraffic> traffic_;
};

}  // namespace stepcast::models
