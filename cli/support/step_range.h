#pragma once
#include <cstdint>
#include <string>

namespace stepcast::cli {

/// Steps `first` up to, not including, `last`.
struct StepRange {
  std::int32_t first = 0, last = 0;
};

/// "A:B" of --steps. Errors: InputError for anything but two whole numbers with 0 <= A < B.
StepRange step_range(const std::string& text);

}  // namespace stepcast::cli
