#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "core/graph/program.h"
#include "core/job/job.h"
#include "models/cost_model.h"
#include "models/kernels/kernel_form.h"
#include "planner/embedding/row_tiers.h"
#include "workloads/embedding_plan/row_shares.h"

namespace stepcast::planner {

namespace internal {
struct HotRows;
}

/// A price that is linear in bytes: start + per_byte * bytes.
struct LinearPrice {
  double start = 0;
  double per_byte = 0;
  [[nodiscard]] double beyond_start(double bytes) const { return per_byte * bytes; }
};

/// Which line stands for the model's times of all sizes.
enum class LineFit : std::uint8_t {
  kNear,   ///< through the size asked for and its half: what a typical plan pays
  kBelow,  ///< of the lines nowhere above the model the highest at that size: for bounds
};

/// How a line is fitted. A line below the model need not be below times of more than `longest`
/// seconds: plans that have such a time are bounded by it.
struct LineOf {
  LineFit fit = LineFit::kNear;
  double longest = std::numeric_limits<double>::infinity();
};

/// Costs of pieces of embedding tables, in seconds, asked of the measured models through
/// models::CostModel: the planner has no cost formula of its own. An op on several tables costs its
/// start once and, per table, what the model says of that table alone beyond the start.
///
/// Distinct rows are counted once per table, on a grid of lookups that halve; a shard with a share
/// s of randomly chosen rows sees s U(n) distinct rows in its s n lookups (Access::random_subset).
class EmbeddingPrices {
 public:
  EmbeddingPrices(const Job& job, const models::CostModel& model);
  ~EmbeddingPrices();

  /// The lookups of `samples` samples that reach a share of a table's rows, `dim` columns of them.
  struct Lookups {
    std::size_t table = 0;
    double samples = 0;
    double share = 1;
    std::int64_t dim = 0;
    bool unpooled = false;
    /// Some of the rows alone: the law over them, and the share of the table's lookups they have.
    const Access* law = nullptr;
    double mass = 1;
  };
  /// In a bound a table costs what it adds to one limit of the kernel, of device memory or of the
  /// cache, whichever is longer over all tables: a kernel takes the longer of both sums, which may
  /// be less than the sum of what is longer for each table.
  [[nodiscard]] double forward(const Lookups& l, LineFit fit = LineFit::kNear) const;
  /// Optimizer fused.
  [[nodiscard]] double backward(const Lookups& l, LineFit fit = LineFit::kNear) const;
  /// Dense gradient of a replicated table.
  [[nodiscard]] double gradient(const Lookups& l, LineFit fit = LineFit::kNear) const;
  [[nodiscard]] double forward_start() const { return forward_.start; }
  [[nodiscard]] double backward_start() const { return backward_.start; }
  [[nodiscard]] double gradient_start() const { return gradient_.start; }
  /// Rows between a device and a slower tier.
  [[nodiscard]] double tier_move(const Tier& tier, double bytes) const {
    return model_.tier_move(tier, Bytes(bytes)).time.base();
  }
  /// Expected distinct rows in `lookups` lookups of the whole table.
  [[nodiscard]] double unique(std::size_t table, double lookups) const;
  /// internal::hot_rows() of a table. All spaces of a job share the answer, and the lists in it.
  [[nodiscard]] const internal::HotRows& hot_rows(std::size_t table, std::int64_t members,
                                                  std::optional<Split> split,
                                                  std::int64_t blocks = 1) const;
  /// Row tiers of a table over groups of such sizes, as `make` finds them the first time.
  [[nodiscard]] const std::vector<TierCut>& tier_cuts(
      std::size_t table, const std::vector<std::int64_t>& groups, bool dedup,
      const std::function<std::vector<TierCut>()>& make) const;

  /// Collective among ranks first, first + step, ..., around `bytes` (NCCL convention).
  [[nodiscard]] LinearPrice link(OpKind kind, Format format, std::int64_t members,
                                 std::int64_t step, double bytes, const LineOf& line) const;
  /// Memory-bound kernel around `bytes` read and written.
  [[nodiscard]] LinearPrice memory_bound(OpKind kind, double bytes, const LineOf& line) const;
  /// Dense optimizer of replicated rows of so many columns, and zeroing their gradient: price per
  /// element.
  [[nodiscard]] LinearPrice dense_update(double elements, std::int64_t width,
                                         const LineOf& line) const;
  [[nodiscard]] LinearPrice zeroing(double elements, const LineOf& line) const;
  /// Seconds that the kernels of the dense model take in a step, and its gradients' all-reduce;
  /// the same under every plan.
  struct DenseStep {
    double compute = 0;
    double all_reduce = 0;
    /// Parts of `compute`: the layers before the tables, forward and backward, during which rows
    /// may be exchanged; and the optimizer.
    double before_tables = 0, optimizer = 0;
  };
  [[nodiscard]] const DenseStep& dense_step() const;

 private:
  struct Kernel {
    const Op* op = nullptr;
    double start = 0;
  };
  /// Lookups of a kernel that were priced: the spaces of a job ask for the same ones.
  struct Asked {
    const Op* op = nullptr;
    Lookups lookups;
    bool operator==(const Asked& o) const;
  };
  struct AskedHash {
    std::size_t operator()(const Asked& a) const;
  };
  /// Seconds beyond the kernel's start, and at the limits of the cache and of device memory.
  struct Price {
    double time = 0, cache = 0, memory = 0;
  };
  [[nodiscard]] double price(const Kernel& kernel, const Lookups& l, LineFit fit) const;
  [[nodiscard]] Price priced(const Kernel& kernel, const Lookups& l) const;
  [[nodiscard]] Price asked_of_model(const Kernel& kernel, const Lookups& l) const;
  /// True if the cache limits the kernel on one rank's share of all tables.
  [[nodiscard]] bool limited_by_cache(const Kernel& kernel) const;
  struct Curve {
    double lookups = 0;  ///< of the first point; each further one has half
    std::vector<double> unique;
  };
  [[nodiscard]] const Curve& curve(std::size_t table) const;

  const Job& job_;
  const models::CostModel& model_;
  Program program_;
  Kernel forward_, backward_, gradient_;
  mutable std::optional<DenseStep> dense_;
  mutable std::vector<std::shared_ptr<const Curve>> curves_;
  using LawKey = std::tuple<int, std::int64_t, double, double, const Access*>;
  mutable std::map<LawKey, std::shared_ptr<const Curve>> by_law_;
  mutable std::unordered_map<Asked, Price, AskedHash> priced_;
  mutable std::map<const Op*, bool> limited_by_cache_;
  /// An op in the gradients' format whose size is a number of elements.
  [[nodiscard]] LinearPrice per_element(Op op, double elements, const LineOf& line) const;
  /// workloads::hottest_rows of a table's law.
  [[nodiscard]] const std::vector<workloads::HotRow>& hottest(std::size_t table) const;
  mutable std::vector<std::vector<workloads::HotRow>> hottest_;
  mutable std::size_t last_hottest_ = 0;  ///< the table asked about last
  using Cut = std::tuple<std::size_t, std::int64_t, std::optional<Split>, std::int64_t>;
  mutable std::map<Cut, std::shared_ptr<const internal::HotRows>> hot_rows_;
  using Tiers = std::tuple<std::size_t, std::vector<std::int64_t>, bool>;
  mutable std::map<Tiers, std::vector<TierCut>> tier_cuts_;
};

}  // namespace stepcast::planner
