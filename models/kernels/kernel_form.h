#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/op.h"
#include "core/graph/program_fwd.h"
#include "core/system.h"
#include "models/cost_model.h"
#include "models/kernels/embedding_traffic.h"

namespace stepcast::models {

/// One of the sizes of an op, at least 1.
inline double extent(const Op& op, std::size_t axis) {
  return static_cast<double>(std::max<std::int64_t>(op.shape[axis], 1));
}

/// One operand of an op and how long ago the step touched it: `distance` = bytes all ops moved
/// since, this op's own included. It decides which level of a cache the operand comes from (reuse
/// distance; Mattson et al., IBM Systems J. 9(2), 1970).
struct OperandUse {
  double bytes = 0;
  double distance = 0;
  /// The last to touch it was a collective that sent it: on one machine other cores read it from
  /// here and hold it too, and writing it has to call it back.
  bool sent = false;
};

/// Facts that a form may look at: one op, and what follows from its program. Built once per op; a
/// fit evaluates it many times.
struct OpFacts {
  using TrafficOf = std::function<ShardTraffic(const EmbeddingShard&, Format)>;
  /// An op among those of the program; another one is taken as alone, on the program's tables.
  OpFacts(const Program& of_program, const Op& of_op, const TrafficOf& traffic = shard_traffic);
  /// An op alone: all its operands come from memory, and it has no tables.
  explicit OpFacts(const Op& of_op);
  const Op* op;
  const Program* program = nullptr;
  const EmbeddingGroup* group = nullptr;  ///< of lookups
  std::vector<ShardTraffic> shards;       ///< embedding kinds only
  std::vector<OperandUse>
      operands;     ///< inputs, then outputs; one with the op's bytes where a program names none
  double rows = 0;  ///< leading extent of the main operand
  double elements = 0;  ///< elements of the main operand
  double bytes = 0;     ///< read + written
  /// Matrix products: ops the step runs between the last product of this shape and layout and this
  /// one; the whole step where it is the only one, 0 outside a program. How cold its code is.
  double idle_ops = 0;
  double streamed = 0;  ///< embedding kinds only: bytes all other ops of the step move
};

/// One constant of a form. `ideal` is its value on a device without calibration (the roofline of
/// hardware facts: efficiency 1, no overhead but the launch); a fit searches [low, high] in the
/// logarithm, from `start`.
struct Constant {
  std::string_view name;
  double ideal = 0;
  double start = 1;
  double low = 0;
  double high = 1;
};

/// An analytical form: how long an op takes as a function of a few constants. Constants are data
/// (FittedModel), the form is code; the same function predicts and is fitted. A new form = one
/// source, its name in internal/forms.h and in `builtin_kernel_forms`.
class KernelForm {
 public:
  virtual ~KernelForm() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual bool covers(const Op& op) const = 0;
  /// At most a handful; ideals come from the device's hardware facts.
  [[nodiscard]] virtual std::vector<Constant> constants(const Device& device) const = 0;
  /// `c` in the order of `constants`. Fills time, compute, memory, overhead and bound.
  [[nodiscard]] virtual Prediction predict(const OpFacts& facts, const Device& device,
                                           std::span<const double> c) const = 0;
  /// Time that no kernel on this device can beat, whatever its residual points say; 0 where the
  /// form knows no such bound.
  [[nodiscard]] virtual Seconds limit(const OpFacts&, const Device&) const { return {}; }
  /// True if `predict` reads the op's own fields only. Then its answers may be cached (KernelMemo).
  [[nodiscard]] virtual bool of_op_alone() const { return false; }
  /// Describes a single core, with its caches, rather than many multiprocessors.
  [[nodiscard]] virtual bool on_core() const { return false; }
  /// True if measurements of the form inform other kinds of its class.
  [[nodiscard]] virtual bool like_its_class() const { return true; }
  /// True if the op may be among those the form was fitted to. What is not is never in range, and
  /// residual points say nothing of it.
  [[nodiscard]] virtual bool like_measured(const Op&) const { return true; }
  /// Place of an op in the form's own space: natural logarithms of sizes (distance 1 = a factor
  /// of e), and categories as multiples of a large step. Used for the calibrated range and the
  /// residual points.
  [[nodiscard]] virtual std::vector<double> coordinates(const OpFacts& facts) const = 0;
  [[nodiscard]] virtual std::vector<std::string_view> coordinate_names() const = 0;
};

/// All forms. Without calibration an op is costed by the first that covers it; a calibrated one by
/// the form its constants name.
const std::vector<std::unique_ptr<KernelForm>>& builtin_kernel_forms();
const KernelForm* kernel_form_named(std::string_view name);
/// The form an op's rows are fitted with: the first that covers it, on a core the first made for
/// one.
const KernelForm& form_for(const Op& op, bool on_core);

/// Keys of an op in FittedModels, most specific first: "gemm.bf16", "gemm"; "optimizer.adam",
/// "optimizer", "memory_bound"; "grouped_gemm.fp8" before "gemm.fp8" where rows are copies of
/// routed tokens. `own_rate`: the device has a peak of the op's own format, so that products in
/// blocks are like those of the format without ("gemm.mxfp8", "gemm.fp8"); without it they are
/// widened.
std::vector<std::string> fitted_keys(const Op& op, bool own_rate = false);

/// Constants of `model` in the order of the form, ideals where the model has none.
std::vector<double> constants_of(const KernelForm& form, const Device& device,
                                 const FittedModel* model);

/// Sets time = overhead + max(compute, memory) and names the term that decided.
Prediction bounded_by(Seconds compute, Seconds memory, Seconds overhead);

/// Peak rate of a format in FLOP/s; infinite where the device tells none.
double peak_rate(const Device& device, Format format);

}  // namespace stepcast::models
