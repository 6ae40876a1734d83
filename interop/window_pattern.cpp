#include "interop/window_pattern.h"

#include <algorithm>

namespace stepcast::interop {

std::optional<std::int64_t> full_attention_every(const std::vector<bool>& sees_all) {
  const auto first = std::find(sees_all.begin(), sees_all.end(), true);
  const std::int64_t every = first == sees_all.end() ? 0 : first - sees_all.begin() + 1;
  for (std::size_t i = 0; i < sees_all.size(); ++i) {
    if (sees_all[i] != (every > 0 && (i + 1) % static_cast<std::size_t>(every) == 0)) {
      return std::nullopt;
    }
  }
  return every;
}

}  // namespace stepcast::interop
