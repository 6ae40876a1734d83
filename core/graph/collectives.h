#pragma once
#include "core/graph/op.h"

namespace stepcast {

/// Collectives that no rank leaves before the last one came, so that all members end together:
/// all-reduce, all-gather, reduce-scatter, barrier. In the others a rank ends by its own bytes and
/// partners. Source: reference profiling-and-traces, section 2.
constexpr bool ends_together(OpKind kind) {
  return kind == OpKind::kAllReduce || kind == OpKind::kAllGather ||
         kind == OpKind::kReduceScatter || kind == OpKind::kBarrier;
}

}  // namespace stepcast
