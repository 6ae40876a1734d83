#include "core/graph/temporaries.h"

#include <algorithm>
#include <numeric>

#include "core/graph/program.h"

namespace stepcast {
namespace {

/// Calls `each(id, writes)` for the temporaries an op names, `writes` where it leaves nothing of
/// what they held.
template <typename Wanted, typename Each>
void for_operands(const Program& program, const Op& op, Wanted wanted, Each each) {
  const auto in = program.inputs(op);
  for (const TensorId id : in) {
    if (wanted(id)) {
      each(id, false);
    }
  }
  for (const TensorId id : program.outputs(op)) {
    if (wanted(id)) {
      each(id, std::find(in.begin(), in.end(), id) == in.end());
    }
  }
}

}  // namespace

Temporaries::Temporaries(const Program& program)
    : program_(&program), kinds_(program.tensors.size(), Kind::kOther) {
  for (std::size_t id = 0; id < kinds_.size(); ++id) {
    const Tensor& t = program.tensors[id];
    kinds_[id] = t.role != TensorRole::kActivation || t.per_microbatch ? Kind::kOther
                 : t.is_view() || t.next_of >= 0 || t.purpose == TensorPurpose::kCarried
                     ? Kind::kThroughout
                     : Kind::kReused;
  }
  for (const Tensor& t : program.tensors) {  // ops may name it by a view
    for (const std::int32_t other : {t.view_of, t.next_of}) {
      if (other >= 0 && kinds_[static_cast<std::size_t>(other)] == Kind::kReused) {
        kinds_[static_cast<std::size_t>(other)] = Kind::kThroughout;
      }
    }
  }
  std::vector<std::uint32_t> named_in(kinds_.size(), UINT32_MAX);  // the last segment
  for (std::uint32_t s = 0; s < program.segments.size(); ++s) {
    for (const Op& op : program.ops_of(program.segments[s])) {
      const bool apart =
          op.stream != 0 || op.kind == OpKind::kSend || (op.flags & op_flags::kEveryInterval) != 0;
      for_operands(
          program, op, [&](TensorId id) { return kinds_[id] == Kind::kReused; },
          [&](TensorId id, bool writes) {
            if (apart || (named_in[id] != s && !writes)) {
              kinds_[id] = Kind::kThroughout;
            }
            named_in[id] = s;
          });
    }
  }
}

std::vector<Temporaries::Life> Temporaries::lives_in(const Segment& segment) const {
  std::vector<Life> lives;
  struct Open {
    std::size_t life = SIZE_MAX;
    bool read = false;
  };
  std::vector<Open> open(kinds_.size());
  const std::uint32_t end = segment.first_op + segment.op_count;
  for (std::uint32_t o = segment.first_op; o < end; ++o) {
    const Op& op = program_->ops[o];
    for_operands(
        *program_, op, [this](TensorId id) { return kinds_[id] == Kind::kReused; },
        [&](TensorId id, bool writes) {
          Open& now = open[id];
          // A layer may write in parts before an op reads.
          const bool anew = writes && now.life != SIZE_MAX &&
                            (now.read || op.layer != program_->ops[lives[now.life].last].layer);
          if (now.life == SIZE_MAX || anew) {
            now = {lives.size(), false};
            lives.push_back({id, o, o});
          }
          now.read = now.read || !writes;
          lives[now.life].last = o;
        });
  }
  return lives;
}

std::vector<double> Temporaries::live_by_op(const Segment& segment) const {
  std::vector<double> live(segment.op_count + std::size_t{1}, 0.0);
  for (const Life& life : lives_in(segment)) {
    const double bytes = program_->tensors[life.tensor].bytes().base();
    live[life.first - segment.first_op] += bytes;
    live[life.last - segment.first_op + 1] -= bytes;
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  live.pop_back();
  return live;
}

Bytes Temporaries::peak_of(const Segment& segment) const {
  double throughout = 0;
  std::vector<bool> seen(kinds_.size());
  for (const Op& op : program_->ops_of(segment)) {
    for_operands(
        *program_, op, [&](TensorId id) { return lives_throughout(id) && !seen[id]; },
        [&](TensorId id, bool) {
          throughout += program_->tensors[id].bytes().base();
          seen[id] = true;
        });
  }
  const std::vector<double> live = live_by_op(segment);
  return Bytes(throughout + (live.empty() ? 0 : *std::max_element(live.begin(), live.end())));
}

Bytes Temporaries::peak() const {
  Bytes most;
  for (const Segment& segment : program_->segments) {
    most = std::max(most, peak_of(segment));
  }
  return most;
}

}  // namespace stepcast
