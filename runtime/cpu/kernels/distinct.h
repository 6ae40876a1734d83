#pragma once
#include <cstdint>
#include <vector>

#include "runtime/cpu/kernels/embedding.h"

namespace stepcast::runtime::kernels {

/// The distinct ids of a list, in the order in which they first appear, and which of them each
/// entry is: ids[i] = distinct[inverse[i]]. Keeps its memory between calls.
class DistinctIds {
 public:
  void find(const std::int64_t* ids, Index count);
  [[nodiscard]] const std::vector<std::int64_t>& distinct() const { return distinct_; }
  [[nodiscard]] const std::vector<std::int64_t>& inverse() const { return inverse_; }

 private:
  std::vector<std::int64_t> distinct_, inverse_;
  std::vector<std::int64_t> table_;  ///< open addressing: positions in distinct_, -1 where free
};

}  // namespace stepcast::runtime::kernels
