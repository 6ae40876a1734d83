#pragma once
#include <cstdint>
#include <vector>

namespace stepcast::runtime {

/// cos and sin of position p times theta^(-2 i / head_dim), i < head_dim / 2: rows of `head_dim`
/// floats, cosines first.
class RotaryTable {
 public:
  /// Positions first_position .. first_position + length - 1. `head_dim` is even. Llama: theta
  /// 10000 (2) or 500000 (3).
  RotaryTable(std::int64_t length, std::int64_t head_dim, double theta = 10000,
              std::int64_t first_position = 0);
  [[nodiscard]] const float* row(std::int64_t position) const {
    return values_.data() + position * head_dim_;
  }
  [[nodiscard]] const std::vector<float>& values() const { return values_; }
  [[nodiscard]] std::int64_t length() const { return length_; }
  [[nodiscard]] std::int64_t head_dim() const { return head_dim_; }

 private:
  std::int64_t length_;
  std::int64_t head_dim_;
  std::vector<float> values_;
};

}  // namespace stepcast::runtime
