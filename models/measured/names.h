#pragma once
#include <optional>
#include <string_view>

#include "core/formats.h"

namespace stepcast::models {

/// Number formats as measurements name them ("bfloat16", "half"); `variant` is the name itself
/// where the kernel is not the plain one of that format ("fp8_block": scales per block).
struct FormatName {
  std::string_view written;
  Format format = Format::kFp32;
  std::string_view variant = {};
};
std::optional<FormatName> measured_format(std::string_view written);

}  // namespace stepcast::models
