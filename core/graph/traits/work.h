#pragma once
#include <algorithm>

#include "core/formats.h"
#include "core/graph/op_traits.h"

namespace stepcast {

inline double extent(const Op& op, std::size_t axis) { return static_cast<double>(op.shape[axis]); }

/// Bytes of one element of the op's format in rows as long as its own.
inline double element_bytes(const Op& op) {
  return bits_per_element(op.format, std::max<std::int64_t>(1, op.shape[1])) / 8;
}

/// Elements of the shape's first two axes by OpTraits::per_element.
inline void row_wise_work(const PerElement& per, Op& op) {
  const double elements = extent(op, 0) * std::max(1.0, extent(op, 1));
  op.flops = Flops(per.flops * elements);
  op.bytes_read = Bytes(per.read * elements * element_bytes(op));
  op.bytes_written = Bytes(per.written * elements * element_bytes(op));
}
inline void row_wise_work(const OpTraits& traits, Op& op) { row_wise_work(traits.per_element, op); }

/// Set by the builder, or unknown.
inline void no_work(const OpTraits&, Op&) {}

}  // namespace stepcast
