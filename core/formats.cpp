#include "core/formats.h"

#include <fmt/format.h>

#include <cstddef>

#include "core/error.h"

namespace stepcast {
namespace {

double row_bytes_exact(const FormatInfo& info, std::int64_t row_elements) {
  if (row_elements == 0) {
    return 0;
  }
  if (info.block == 0) {  // elements packed into bytes, then scale and bias
    return static_cast<double>((row_elements * info.element_bits + 7) / 8 + info.row_bytes);
  }
  const std::int64_t blocks = (row_elements + info.block - 1) / info.block;
  const std::int64_t block_bits =
      info.block * info.element_bits + info.scale_bits + info.block / 2 * info.pair_bits;
  return static_cast<double>((blocks * block_bits + 7) / 8);
}

}  // namespace

const std::vector<FormatInfo>& all_formats() {
  // format, name, element bits, block, scale bits, pair bits, row bytes
  static const std::vector<FormatInfo> formats = {
      {Format::kFp32, "fp32", 32, 1, 0, 0, 0},
      {Format::kTf32, "tf32", 32, 1, 0, 0, 0},
      {Format::kBf16, "bf16", 16, 1, 0, 0, 0},
      {Format::kFp16, "fp16", 16, 1, 0, 0, 0},
      {Format::kFp8, "fp8", 8, 1, 0, 0, 0},
      {Format::kInt8, "int8", 8, 1, 0, 0, 0},
      {Format::kInt32, "int32", 32, 1, 0, 0, 0},
      {Format::kInt64, "int64", 64, 1, 0, 0, 0},
      {Format::kMxfp8, "mxfp8", 8, 32, 8, 0, 0},
      {Format::kMxint8, "mxint8", 8, 32, 8, 0, 0},
      {Format::kMxfp6, "mxfp6", 6, 32, 8, 0, 0},
      {Format::kMxfp4, "mxfp4", 4, 32, 8, 0, 0},
      {Format::kNvfp4, "nvfp4", 4, 16, 8, 0, 0},
      {Format::kMx9, "mx9", 8, 16, 8, 1, 0},  // sign + 7-bit mantissa
      {Format::kMx6, "mx6", 5, 16, 8, 1, 0},  // sign + 4
      {Format::kMx4, "mx4", 3, 16, 8, 1, 0},  // sign + 2
      {Format::kInt8Row, "int8_row", 8, 0, 0, 0, 8},
      {Format::kInt4Row, "int4_row", 4, 0, 0, 0, 4},
      {Format::kNf4, "nf4", 4, 64, 8, 0, 0},
  };
  return formats;
}

const FormatInfo& format_info(Format f) {
  const auto index = static_cast<std::size_t>(f);
  STEPCAST_CHECK(index < all_formats().size(), "unknown format {}", index);
  return all_formats()[index];
}

std::string_view name_of(Format f) { return format_info(f).name; }

std::optional<Format> format_named(std::string_view name) {
  for (const FormatInfo& info : all_formats()) {
    if (info.name == name) {
      return info.format;
    }
  }
  return std::nullopt;
}

Bytes format_bytes(Format f, std::int64_t rows, std::int64_t row_elements) {
  if (rows < 0 || row_elements < 0) {
    throw InputError("format", fmt::format("{} rows of {} {} elements: counts must not be negative",
                                           rows, row_elements, name_of(f)));
  }
  return Bytes(static_cast<double>(rows) * row_bytes_exact(format_info(f), row_elements));
}

double bits_per_element(Format f, std::int64_t row_elements) {
  const FormatInfo& info = format_info(f);
  if (row_elements != 0) {
    return 8 * format_bytes(f, 1, row_elements).base() / static_cast<double>(row_elements);
  }
  if (info.block == 0) {
    throw InputError("format", fmt::format("{} stores a scale per row: its bits per element need "
                                           "the row length",
                                           info.name));
  }
  return info.element_bits + static_cast<double>(info.scale_bits) / info.block +
         info.pair_bits / 2.0;
}

Bytes quantised_row_bytes(int bits, std::int64_t elements, int overhead_bytes) {
  if (bits < 1 || bits > 8 || elements < 0 || overhead_bytes < 0) {
    throw InputError("format", fmt::format("a row of {} elements of {} bits with {} B overhead: "
                                           "bits must be 1..8, counts not negative",
                                           elements, bits, overhead_bytes));
  }
  return Bytes(static_cast<double>((elements * bits + 7) / 8 + overhead_bytes));
}

}  // namespace stepcast
