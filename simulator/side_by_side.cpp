#include "simulator/side_by_side.h"

#include <algorithm>

#include "core/graph/op_traits.h"

namespace stepcast::simulator {
namespace {

/// True if an op before exchange `at` awaits it, in the segment's next call, and none after it.
bool awaited_in_next_call(const Program& program, const Segment& segment, const Op& at) {
  bool before = false;
  bool passed = false;
  for (const Op& op : program.ops_of(segment)) {
    passed = passed || &op == &at;
    const auto waits = program.waits_of(op);
    if (at.record >= 0 && std::find(waits.begin(), waits.end(), at.record) != waits.end()) {
      if (passed) {
        return false;
      }
      before = true;
    }
  }
  return before;
}

}  // namespace

bool slow_beside_exchanges(const Program& program, const System& system,
                           std::vector<double>& times) {
  const double share = std::min(0.9, system.framework.exchange_multiprocessors /
                                         static_cast<double>(system.device.multiprocessors));
  bool slowed = false;
  for (std::size_t s = 0; share > 0 && s < program.segments.size(); ++s) {
    const Segment& segment = program.segments[s];
    const std::size_t end = std::size_t{segment.first_op} + segment.op_count;
    double kernels = 0;
    double exchanges = 0;
    for (std::size_t o = segment.first_op; o < end; ++o) {
      const Op& op = program.ops[o];
      if (!is_collective(op.kind)) {
        kernels += times[o];
      } else if (op.traffic == TrafficKind::kExperts && op.stream != 0 &&
                 awaited_in_next_call(program, segment, op)) {
        exchanges += times[o];
      }
    }
    if (kernels <= 0 || exchanges <= 0) {
      continue;
    }
    slowed = true;
    const double factor = std::min(1 + share * exchanges / kernels, 1 / (1 - share));
    for (std::size_t o = segment.first_op; o < end; ++o) {
      times[o] *= is_collective(program.ops[o].kind) ? 1 : factor;
    }
  }
  return slowed;
}

}  // namespace stepcast::simulator
