#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "core/units.h"

namespace stepcast::cli {

/// Amounts as people read them, three significant digits and a unit: "12.4 ms", "3.35 TB/s", "1.57
/// GiB", "4.45 EFLOP".
std::string human(Seconds t);
std::string human(Bytes b);  ///< binary units: memory
std::string human(Flops f);
std::string human(BytesPerSecond b);  ///< decimal units: links and memory bandwidth
std::string human(FlopsPerSecond f);
std::string percent(double fraction);  ///< "12.3 %"
std::string percent_signed(double fraction);
std::string count(double n);  ///< "1.2 M"
std::string counted(std::int64_t n, std::string_view noun);  ///< "1 step", "2 steps"
/// Two amounts of memory with as many digits as tell them apart: "175.6 GiB", "175.9 GiB".
std::pair<std::string, std::string> apart(Bytes a, Bytes b);
/// Four significant digits, in groups of three: "1,279,000", "41.67"; whole ones with `digits` 0.
std::string grouped(double n, int digits = 4);
/// "H100" of "h100-sxm-80gb", "RTX 4090" of "rtx-4090"; other names as they are.
std::string device_title(const std::string& name);
std::string today();  ///< "2026-11-21", UTC

}  // namespace stepcast::cli
