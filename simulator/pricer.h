#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "models/cost_model.h"
#include "models/kernels/kernel_memo.h"

namespace stepcast::simulator {

/// Asks a cost model what ops of a graph take. Costs of a step (price) and the planner's closed
/// form are made of its answers. One per thread; the model must outlive it.
class Pricer {
 public:
  explicit Pricer(const models::CostModel& model, std::size_t expected_shapes = 4096)
      : model_(model), memo_(model, expected_shapes) {}

  [[nodiscard]] const models::CostModel& model() const { return model_; }

  /// A computing op; equal ones are asked for once.
  [[nodiscard]] models::Prediction kernel(const Program& program, const Op& op) {
    return memo_.kernel(program, op);
  }

  /// Part of a member of a group in an all-to-all-v.
  struct Part {
    const Program* program = nullptr;
    const Op* op = nullptr;
  };
  struct PricedExchange {
    std::vector<double> send;  ///< bytes, row = sender
    models::ExchangePrediction prediction;
  };
  /// An all-to-all-v of the members at `ranks`, by position: the bytes of each to each, and when
  /// each is done after the last has come. `idle_time`: as CostModel::all_to_all_v.
  /// Errors: InternalError where a part has no Exchange, or one of another number of ranks.
  [[nodiscard]] PricedExchange exchange(std::span<const Part> parts,
                                        std::span<const std::int32_t> ranks,
                                        Seconds idle_time = Seconds(-1)) const;

  /// Seconds of symmetric collectives on groups of one shape: by kind, format, elements and steps.
  using Collectives = std::map<std::tuple<OpKind, Format, std::int64_t, std::int64_t>, double>;
  /// The ranks of a communicator and how they lie on the fabric.
  struct GroupOfRanks {
    std::vector<std::int32_t> ranks;
    GroupShape shape;
    Collectives* known = nullptr;  ///< of its shape; the pricer's
  };
  [[nodiscard]] GroupOfRanks group(std::vector<std::int32_t> ranks, std::int64_t devices);
  /// Seconds of a collective, but for sends and receives, of members that all run `program`, once
  /// all are there: of an all-to-all-v until the last is done. Equal ones are asked for once.
  [[nodiscard]] double collective_of_equals(const Program& program, const Op& op,
                                            const GroupOfRanks& group) const;

 private:
  const models::CostModel& model_;
  models::KernelMemo memo_;
  std::map<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>, Collectives>
      collectives_;  ///< by members and siblings (GroupShape)
};

}  // namespace stepcast::simulator
