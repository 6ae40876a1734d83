#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/graph/op.h"
#include "core/units.h"

namespace stepcast::runtime::calibration {

/// One point of the sweep: `tables` equal tables whose bags are pooled one table after the other,
/// as an embedding op of a step does.
struct EmbeddingCase {
  std::int64_t rows = 1;     ///< of each table
  std::int64_t dim = 1;      ///< fp32 columns
  std::int64_t pooling = 1;  ///< lookups per bag, exact
  std::int64_t batch = 1;    ///< bags
  double zipf = 0;           ///< exponent; 0 is uniform
  std::int64_t tables = 1;
  OptimizerKind optimizer = OptimizerKind::kSgd;
  [[nodiscard]] std::int64_t lookups() const { return batch * pooling * tables; }
};

/// A measured case. Times are geometric means over two rounds of medians over repeats, each
/// with lookups never seen before; `spread` is half the distance between the quartiles over the
/// median, the largest of the passes and rounds; `moved` the second round over the first, forward
/// and backward.
struct EmbeddingSample {
  EmbeddingCase shape;
  Seconds forward, backward;
  double spread = 0;
  std::array<double, 2> moved{1, 1};
  std::int64_t repeats = 0;
  bool unstable = false;  ///< the repeats of a round never agreed: the row is void
};

struct EmbeddingSweepOptions {
  std::uint64_t seed = 1;
  std::int64_t cases_per_cell = 4;  ///< random sizes for each pair of exponent and dim
  double seconds = 200;             ///< budget of the whole sweep; it is shared evenly by the cases
  std::function<void(double done, const EmbeddingCase& next)> progress;
};

/// The exponents and dims of the sweep: every pair is measured, so that whole values can be held
/// out.
const std::vector<double>& swept_exponents();
const std::vector<std::int64_t>& swept_dims();

/// The cases: for each pair of exponent and dim, random rows (10^3 to 5 10^6 while the tables stay
/// under half a GB), pooling, batch, tables and optimizer. Deterministic for a seed.
std::vector<EmbeddingCase> embedding_cases(const EmbeddingSweepOptions& options);

/// What two rounds say of one case.
EmbeddingSample both(const EmbeddingSample& before, const EmbeddingSample& after);

/// Times the runtime's own embedding-bag forward and its backward fused with the optimizer on the
/// calling thread.
///
/// Forward and backward of a fresh batch alternate, as in training: tables keep what a cache keeps
/// of them from one step to the next, and cold rows stay cold. A repeat during which the thread was
/// preempted is not counted. A case repeats until the quartiles of both passes lie within 2 % of
/// the median or its share of the budget is spent; beyond 10 % the row is void. A core's speed and
/// its share of the last cache drift by ten percent within a minute, which repeats in a row do not
/// show: all cases are measured once and then again.
/// Errors: std::bad_alloc where the machine lacks a GB of memory.
std::vector<EmbeddingSample> measure_embedding(const EmbeddingSweepOptions& options);

}  // namespace stepcast::runtime::calibration
