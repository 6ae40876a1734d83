#pragma once
#include <string_view>

namespace stepcast::traces::internal {

/// traces/kernel_kinds.json; the build makes it (traces/CMakeLists.txt).
extern const std::string_view kKernelKindsText;

}  // namespace stepcast::traces::internal
