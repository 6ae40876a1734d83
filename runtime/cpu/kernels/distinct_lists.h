#pragma once
#include <cstdint>
#include <vector>

#include "runtime/cpu/kernels/embedding.h"

namespace stepcast::runtime::kernels {

/// The distinct ones among bags of ids (an inverse keyed jagged tensor; RecD, arXiv 2211.05239), in
/// the order in which they first appear, and which of them each bag is. Two bags are alike where
/// they have the same ids in the same order. Keeps its memory between calls.
class DistinctLists {
 public:
  void find(const Bags& bags);
  [[nodiscard]] Bags lists() const {
    return {ids_.data(), offsets_.data(), static_cast<Index>(offsets_.size()) - 1};
  }
  [[nodiscard]] const std::vector<std::int64_t>& inverse() const { return inverse_; }

 private:
  std::vector<std::int64_t> ids_, offsets_, inverse_;
  std::vector<std::int64_t> table_;  ///< open addressing: lists, -1 where free
};

}  // namespace stepcast::runtime::kernels
