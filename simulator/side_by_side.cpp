#include "simulator/side_by_side.h"

#include <algorithm>
#include <map>

#include "core/graph/op_traits.h"

namespace stepcast::simulator {
namespace {

bool is_kernel(const Op& op) { return op.stream == 0 && !is_collective(op.kind); }

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
  const double held = system.framework.exchange_multiprocessors;
  const auto all = static_cast<double>(system.device.multiprocessors);
  const bool measured =
      system.fitted.contains("slowdown") || system.device.fitted.contains("slowdown");
  const double share = held < all && !measured ? held / all : 0;
  bool slowed = false;
  struct Seconds {
    double kernels = 0, collectives = 0;
  };
  std::map<std::int16_t, Seconds> of_layer;
  for (std::size_t s = 0; share > 0 && s < program.segments.size(); ++s) {
    const Segment& segment = program.segments[s];
    const std::size_t end = std::size_t{segment.first_op} + segment.op_count;
    of_layer.clear();
    for (std::size_t o = segment.first_op; o < end; ++o) {
      const Op& op = program.ops[o];
      if (is_kernel(op)) {
        of_layer[op.layer].kernels += times[o];
      } else if (op.stream != 0 && is_collective(op.kind) && !is_point_to_point(op.kind) &&
                 (op.traffic != TrafficKind::kExperts ||
                  awaited_in_next_call(program, segment, op))) {
        of_layer[op.layer].collectives += times[o];
        slowed = true;
      }
    }
    for (std::size_t o = segment.first_op; slowed && o < end; ++o) {
      const Seconds& of = of_layer[program.ops[o].layer];
      if (is_kernel(program.ops[o]) && of.kernels > 0) {
        times[o] *= std::min(1 + share * of.collectives / of.kernels, 1 / (1 - share));
      }
    }
  }
  return slowed;
}

}  // namespace stepcast::simulator
