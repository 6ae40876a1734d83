#include "runtime/rotary_table.h"

#include <cmath>

#include "core/error.h"

namespace stepcast::runtime {

RotaryTable::RotaryTable(std::int64_t length, std::int64_t head_dim, double theta,
                         std::int64_t first_position)
    : length_(length), head_dim_(head_dim), values_(static_cast<std::size_t>(length * head_dim)) {
  STEPCAST_CHECK(head_dim % 2 == 0 && length > 0, "rotary table of {} positions x {} dims", length,
                 head_dim);
  const std::int64_t half = head_dim / 2;
  for (std::int64_t p = 0; p < length; ++p) {
    float* cosine = values_.data() + p * head_dim;
    for (std::int64_t i = 0; i < half; ++i) {
      const double frequency =
          std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      const double angle = static_cast<double>(first_position + p) * frequency;
      cosine[i] = static_cast<float>(std::cos(angle));
      cosine[half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace stepcast::runtime
