#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/units.h"

namespace stepcast {

/// Number formats (primitive P2). A format changes bytes and the peak rate of a role; it never
/// changes the graph.
enum class Format : std::uint8_t {
  kFp32,
  kTf32,
  kBf16,
  kFp16,
  kFp8,
  kInt8,
  kInt32,
  kInt64,
  // OCP microscaling: blocks of 32 (NVFP4: 16) share an 8-bit scale.
  kMxfp8,
  kMxint8,
  kMxfp6,
  kMxfp4,
  kNvfp4,
  // Block data representation: 16 elements share a scale, pairs share a 1-bit microexponent.
  kMx9,
  kMx6,
  kMx4,
  // Embedding rows with a scale and a bias per row.
  kInt8Row,
  kInt4Row,
  // Normal-distribution quantiles; blocks of 64 share a scale, itself kept in 8 bits (QLoRA,
  // arXiv 2305.14314, section 3).
  kNf4,
};

/// How a format stores numbers. Bits per element = `element_bits + scale_bits / block +
/// pair_bits / 2`; a row-wise format (block == 0) adds `row_bytes` to each row.
struct FormatInfo {
  Format format;
  std::string_view name;  ///< as written in a job: "bf16", "mxfp8", "int8_row"
  int element_bits;       ///< stored bits of one element; tf32 is stored in 32
  int block;              ///< elements that share a scale; 1 none, 0 the whole row
  int scale_bits;         ///< per block
  int pair_bits;          ///< shared microexponent bits per pair of elements
  int row_bytes;          ///< scale and bias of a row-wise format
};

/// All formats, in the order of the enum. Source: OCP MX 1.0 (arXiv 2310.10537), BDR
/// (arXiv 2302.08007), FBGEMM row formats.
const std::vector<FormatInfo>& all_formats();
const FormatInfo& format_info(Format f);
std::string_view name_of(Format f);
std::optional<Format> format_named(std::string_view name);
/// Whether products in it read 32-bit numbers, so that weights need no copy in full precision.
constexpr bool full_precision(Format f) { return f == Format::kFp32 || f == Format::kTf32; }

/// Exact bytes of `rows` rows of `row_elements` elements; every row is padded to whole blocks and
/// whole bytes, and an empty row takes none. Errors: InputError on a negative count.
Bytes format_bytes(Format f, std::int64_t rows, std::int64_t row_elements);

/// Bits per element, scales included: of a long row where `row_elements` is 0, else of a row of
/// that many elements with its padding. Errors: InputError for a row-wise format without
/// `row_elements`.
double bits_per_element(Format f, std::int64_t row_elements = 0);

/// Bytes of one row quantised to `bits` (1..8) with `overhead_bytes` of scale and bias:
/// ceil(elements * bits / 8) + overhead. Two fp16 take 4 (checkpoints, Check-N-Run), two fp32 8.
Bytes quantised_row_bytes(int bits, std::int64_t elements, int overhead_bytes = 4);

}  // namespace stepcast
