#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/graph/program.h"
#include "runtime/op_table.h"

namespace stepcast::runtime {

class TensorTable;

/// State a family of ops keeps between the ops of a step and between steps (index lists of an
/// exchange, tables of angles). One per rank and family, made before the first op: streams share
/// it.
struct OpState {
  virtual ~OpState() = default;
  /// Makes what a pipelined step prepared for the next batch that of the current batch.
  virtual void begin_next_batch() {}
  /// A step begins whose ops are replayed instead of issued: what the host draws for them anew goes
  /// where they read it.
  virtual void replay(std::int64_t /*step*/) {}
  /// Brings rows that caches hold to the tensors that they are from.
  virtual void settle(const Program& /*program*/, const TensorTable& /*storage*/) {}
  /// Moved between memory tiers since the run began, by tier of the program; empty: nothing.
  [[nodiscard]] virtual std::vector<RowTraffic> tier_traffic() const { return {}; }
};

/// Rows that the states of a rank moved between the `tiers` of its program; families that have run
/// nothing have no state.
inline std::vector<RowTraffic> tier_traffic_of(const std::vector<std::unique_ptr<OpState>>& states,
                                               std::size_t tiers) {
  std::vector<RowTraffic> sum(tiers);
  for (const auto& state : states) {
    const std::vector<RowTraffic> own =
        state != nullptr ? state->tier_traffic() : std::vector<RowTraffic>{};
    for (std::size_t i = 0; i < own.size(); ++i) {
      sum.at(i) += own[i];
    }
  }
  return sum;
}

/// Ops of one backend that share one state, and what makes it for a rank. `Context` is what an op's
/// function may touch, `StateArguments` what the backend's states need besides.
template <class Context, class... StateArguments>
struct OpFamily {
  using Function = void (*)(Context&);
  std::vector<std::pair<OpKind, Function>> ops;
  std::unique_ptr<OpState> (*make_state)(const ExecutionGraph& graph, const Program& program,
                                         std::int32_t rank, StateArguments... arguments) = nullptr;
  std::vector<std::pair<OpKind, Function>> routed{};  ///< ops with an Op::routing
};

/// Which function of a backend's families executes an op.
///
///   const OpDispatch<OpFamily> dispatch({generic_ops(), ...}, "cpu");
///   const auto& entry = dispatch.of(program, op);
///   if (entry.make_state != nullptr) states[entry.family] = ...
///   entry.function(context);
template <class Family, std::size_t kFamilies>
class OpDispatch {
 public:
  struct Entry {
    typename Family::Function function = nullptr;
    std::uint8_t family = 0;
    decltype(Family::make_state) make_state = nullptr;
  };

  OpDispatch(const std::array<Family, kFamilies>& families, std::string_view backend)
      : backend_(backend) {
    for (std::uint8_t f = 0; f < kFamilies; ++f) {
      add(families[f], f, families[f].ops, entries_);
      add(families[f], f, families[f].routed, routed_);
    }
  }

  /// Errors: InputError for an op no family executes.
  [[nodiscard]] const Entry& of(const Program& program, const Op& op) const {
    const Entry& entry =
        (op.routing >= 0 ? routed_ : entries_).at(static_cast<std::size_t>(op.kind));
    if (entry.function == nullptr) {
      throw InputError("", fmt::format("op '{}' of kind '{}' cannot run on the {} backend",
                                       program.name(op), name_of(op.kind), backend_));
    }
    return entry;
  }

 private:
  using Entries = std::array<Entry, static_cast<std::size_t>(OpKind::kCount)>;
  static void add(const Family& family, std::uint8_t number,
                  const std::vector<std::pair<OpKind, typename Family::Function>>& ops,
                  Entries& entries) {
    for (const auto& [kind, function] : ops) {
      Entry& entry = entries.at(static_cast<std::size_t>(kind));
      STEPCAST_CHECK(entry.function == nullptr, "two functions execute '{}'", name_of(kind));
      entry = {function, number, family.make_state};
    }
  }

  Entries entries_{};
  Entries routed_{};
  std::string_view backend_;
};

}  // namespace stepcast::runtime
