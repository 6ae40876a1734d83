#pragma once
#include <cstdint>
#include <vector>

#include "core/graph/program_fwd.h"
#include "core/units.h"

namespace stepcast {

/// The temporaries of a program: activations that are not per micro-batch. One lives from the op
/// that writes it to the last that names it before it is written anew, after it was read or by
/// another layer, as an allocator frees what is read no more and uses it again. Some live through
/// every segment that names them: those of other streams than the compute stream, whose ops end at
/// any time; those that are sent; those in which a segment finds a value; what layers hand on to
/// each other.
class Temporaries {
 public:
  /// From op to op of the program, both included.
  struct Life {
    TensorId tensor = 0;
    std::uint32_t first = 0, last = 0;
  };

  explicit Temporaries(const Program& program);
  /// Lives in a segment of those that do not live throughout, by their first op.
  [[nodiscard]] std::vector<Life> lives_in(const Segment& segment) const;
  /// Their bytes at each op of the segment.
  [[nodiscard]] std::vector<double> live_by_op(const Segment& segment) const;
  /// Most bytes that live at once in a segment, of all; of the segment that has most.
  [[nodiscard]] Bytes peak_of(const Segment& segment) const;
  [[nodiscard]] Bytes peak() const;
  [[nodiscard]] bool lives_throughout(TensorId id) const { return kinds_[id] == Kind::kThroughout; }

 private:
  enum class Kind : std::uint8_t { kOther, kReused, kThroughout };
  const Program* program_;
  std::vector<Kind> kinds_;  ///< by tensor
};

}  // namespace stepcast
