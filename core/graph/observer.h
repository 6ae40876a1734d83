#pragma once
#include <cstdint>

#include "core/graph/program_fwd.h"
#include "core/units.h"

namespace stepcast {

/// One executed op on one rank, simulated or real. Times count from the start of the step
/// (simulator) or of the run (runtime). For a collective, `ready` is when its last needed member
/// had arrived: [begin, ready) is wait, [ready, end) is transfer. A real rank cannot see `ready`;
/// it is recovered when the ranks' traces are joined, and equals `begin` until then.
struct OpSpan {
  std::int32_t rank = 0;
  std::int32_t step = 0;
  OpRef ref;
  SimTime issued{};  ///< the host handed the op to its stream
  SimTime begin{};
  SimTime ready{};
  SimTime end{};
  double bytes = 0;  ///< collectives: bytes this rank really sent; else 0
};

/// A host-side interval of a rank: issuing ops, waiting for a full queue, waiting for the step's
/// end.
struct HostSpan {
  enum class Kind : std::uint8_t { kIssue, kQueueFull, kSynchronize };
  std::int32_t rank = 0;
  std::int32_t step = 0;
  Kind kind = Kind::kIssue;
  SimTime begin{};
  SimTime end{};
};

/// Events that the simulator and the runtime report while they work; reports and the profiler
/// implement it. Calls come from one thread at a time per rank and stream; an implementation that
/// keeps state per (rank, stream) needs no lock.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_step_begin(std::int32_t /*rank*/, std::int32_t /*step*/, SimTime /*at*/) {}
  virtual void on_op(const OpSpan& /*span*/) {}
  virtual void on_host(const HostSpan& /*span*/) {}
  virtual void on_step_end(std::int32_t /*rank*/, std::int32_t /*step*/, SimTime /*at*/) {}
  /// Around the calls by which the host's thread hands an op to a device; a step that is captured
  /// into a graph makes them once, whether it is observed or not.
  virtual void on_launch_begin(OpRef /*ref*/) {}
  virtual void on_launch_end() {}
  /// True: somebody else measures when ops ran on a device. A backend then does not, and its spans
  /// only say when ops were issued.
  [[nodiscard]] virtual bool measures_ops() const { return false; }
};

}  // namespace stepcast
