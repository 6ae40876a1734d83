#include "models/measured/names.h"

#include <array>

namespace stepcast::models {
namespace {

constexpr std::array kFormats{
    FormatName{"bfloat16", Format::kBf16}, FormatName{"half", Format::kFp16},
    FormatName{"float16", Format::kFp16},  FormatName{"float", Format::kFp32},
    FormatName{"float32", Format::kFp32},  FormatName{"fp8_block", Format::kFp8, "fp8_block"},
};

}  // namespace

std::optional<FormatName> measured_format(std::string_view written) {
  for (const FormatName& f : kFormats) {
    if (f.written == written) {
      return f;
    }
  }
  if (const auto format = format_named(written)) {
    return FormatName{written, *format};
  }
  return std::nullopt;
}

}  // namespace stepcast::models
