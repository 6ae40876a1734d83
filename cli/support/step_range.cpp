#include "cli/support/step_range.h"

#include <charconv>

#include "core/error.h"

namespace stepcast::cli {

StepRange step_range(const std::string& text) {
  StepRange range;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, range.first);
  const bool colon = first.ec == std::errc() && first.ptr != end && *first.ptr == ':';
  const auto last = std::from_chars(colon ? first.ptr + 1 : end, end, range.last);
  if (!colon || last.ec != std::errc() || last.ptr != end || range.first < 0 ||
      range.last <= range.first) {
    throw InputError("--steps", fmt::format("found '{}'; expected A:B with 0 <= A < B <= {}, steps "
                                            "A up to and without B",
                                            text, INT32_MAX));
  }
  return range;
}

}  // namespace stepcast::cli
