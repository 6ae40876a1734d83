#include "models/collectives/idle_time.h"

#include <map>

#include "core/error.h"
#include "core/graph/op.h"
#include "core/graph/program.h"

namespace stepcast::models {

std::vector<Seconds> since_last_use(const Program& program, std::span<const Seconds> op_time) {
  STEPCAST_CHECK(op_time.size() == program.ops.size(), "{} times for {} ops", op_time.size(),
                 program.ops.size());
  std::vector<Seconds> since(program.ops.size());
  std::vector<double> uses(program.ops.size(), 0);
  struct Use {
    Seconds first, last;
    std::uint32_t first_op = 0;
  };
  std::map<std::int32_t, Use> by_communicator;
  Seconds clock;
  for (const Call& call : program.calls) {
    const Segment& segment = program.segments[call.segment];
    for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
      const Op& op = program.ops[o];
      if (!is_collective(op.kind)) {
        clock += op_time[o];
        continue;
      }
      const auto [it, fresh] = by_communicator.try_emplace(op.communicator, Use{clock, clock, o});
      if (!fresh) {
        since[o] += clock - it->second.last;
        ++uses[o];
        it->second.last = clock;
      }
    }
  }
  for (const auto& [communicator, use] : by_communicator) {
    since[use.first_op] += clock - use.last + use.first;
    ++uses[use.first_op];
  }
  for (std::size_t o = 0; o < since.size(); ++o) {
    since[o] = uses[o] > 0 ? since[o] / uses[o] : Seconds{};
  }
  return since;
}

}  // namespace stepcast::models
