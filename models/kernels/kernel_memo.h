#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/graph/op.h"
#include "models/cost_model.h"

namespace stepcast::models {

/// Answers of a cost model kept by what the op is: a search that prices the same few thousand
/// shapes millions of times pays the model once per shape. Asking again allocates nothing.
///
///   KernelMemo memo(cost);
///   Prediction p = memo.kernel(program, op);
///
/// Kept are kinds whose model looks at the op's own fields only (CostModel::of_op_alone); others
/// (operands in a cache, tables of a program) are asked anew each time. Not shared between threads:
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

  const CostModel& model_;
  std::vector<Entry> table_;  // open addressing, a power of two, at most half full
  std::size_t used_ = 0;
};

}  // namespace stepcast::models
