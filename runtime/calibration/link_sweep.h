#pragma once
#include <cstdint>
#include <vector>

#include "core/graph/op.h"
#include "core/system.h"
#include "core/units.h"
#include "runtime/mpi/session.h"

namespace stepcast::runtime::calibration {

/// One collective as its members saw it: what it moved and how long each took from the arrival of
/// the last one, the median of its repeats.
struct LinkSample {
  OpKind kind = OpKind::kAllToAllV;
  std::vector<std::int32_t> ranks;
  double bytes = 0;           ///< by the NCCL convention of the kind; all-to-all-v: 0
  std::vector<double> send;   ///< all-to-all-v: [from][to], bytes
  std::vector<Seconds> time;  ///< by member
};

/// Messages of several sizes between two ranks at a time, for every pair: what the links between
/// them are, seen from outside. All ranks of one machine call it together and return the same.
/// `emulate` paces them, and nothing else here reads it.
std::vector<LinkSample> sweep_pairs(const System* emulate, MpiSession& session);

/// The collectives of a training step over all ranks, inside nodes of `node` consecutive ranks and
/// across them, and unequal exchanges over all ranks.
std::vector<LinkSample> sweep_collectives(std::int64_t node, const System* emulate,
                                          MpiSession& session);

}  // namespace stepcast::runtime::calibration
