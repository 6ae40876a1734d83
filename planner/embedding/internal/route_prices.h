#pragma once
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/embedding_placement.h"
#include "planner/embedding/embedding_prices.h"
#include "planner/embedding/placement.h"

namespace stepcast::planner::internal {

/// The phases that a route loads: lookups of its rows, and their exchange.
LoadPhase lookup_phase(EmbeddingRoute route);
LoadPhase exchange_phase(EmbeddingRoute route);

/// Prices of the ways looked-up rows travel, linear around the size of this job's exchanges, and
/// the fixed charge of each way: launches and latencies paid once however many tables use it.
/// Amounts are elements of one rank's buffer.
class RoutePrices {
 public:
  /// `longest`: seconds, of a bound: plans with a step of more need not be above it.
  RoutePrices(const Job& job, const EmbeddingPrices& prices, LineFit fit,
              double longest = std::numeric_limits<double>::infinity());

  /// Ids arrive while the step before runs (parallel.dlrm_pipeline).
  [[nodiscard]] bool arrives_ahead() const;
  /// The least share of an all-to-all's load that is of gradients.
  [[nodiscard]] double returning() const;
  /// Ids (with their weights) that arrive at a rank, lengths of as many bags, and sorting into
  /// bags.
  [[nodiscard]] double ids(const EmbeddingTable& table, double lookups) const;
  [[nodiscard]] double lengths(double bags) const;
  /// Looked-up rows or their sums by a route of one copy, forward, and their gradients back:
  ///   kExchange, kSequence  all-to-all over all ranks, of elements that a rank sends
  ///   kReduce               reduce-scatter and all-gather over all ranks, of elements before
  ///                         reduction
  ///   kNodeReduce           the same inside a group of so many ranks, then all-to-all between
  ///                         ranks of equal place in their groups
  [[nodiscard]] double exchange(EmbeddingRoute route, double elements,
                                std::int64_t group = 1) const;
  [[nodiscard]] LineFit fit() const { return line_.fit; }
  /// Reduce-scatter and all-gather of pooled rows inside groups.
  [[nodiscard]] double exchange_inside(double elements, std::int64_t group) const;
  /// The forward reduce-scatter inside a group, which is part of exchange() by kNodeReduce. Only
  /// the group waits for its ranks there, so a group that has much to look up and little to reduce
  /// makes up for it; 0 where exchanges do not follow the lookups on one stream of one step.
  [[nodiscard]] double reduce_inside(double elements, std::int64_t group) const;
  /// Gradient all-reduce of replicated rows over `copies` ranks `step` apart, in buckets that they
  /// fill or share.
  [[nodiscard]] double replica_sync(double elements, std::int64_t copies, std::int64_t step) const;
  /// All-to-all of rows inside groups of consecutive ranks.
  [[nodiscard]] double group_exchange(std::int64_t group, double elements, bool forward) const;
  [[nodiscard]] double group_ids(const EmbeddingTable& table, std::int64_t group,
                                 double lookups) const;
  /// Rows between a device and a slower tier; for a bound nothing where they are moved while the
  /// step before runs.
  [[nodiscard]] double tier_move(const Tier& tier, double bytes) const;
  /// Dense optimizer on a table's replicated rows of so many columns, which it starts for, and
  /// zeroing their gradient.
  [[nodiscard]] double replica_update(double elements, std::int64_t width) const;
  /// Mean of arrived sequence rows, forward and backward.
  [[nodiscard]] std::pair<double, double> pool_rows(double row_elements, double bag_elements) const;

  /// Start of the gradients' all-reduce over copies; 0 where it is overlapped with compute.
  [[nodiscard]] double sync_start(std::int64_t copies, std::int64_t step) const;
  /// The charges of a route, as bits of `fixed`: of each but the local ones also that of ids.
  [[nodiscard]] std::uint32_t charges(EmbeddingRoute route, std::int64_t group = 1) const;
  /// Charges by bit; call once all options are made.
  [[nodiscard]] std::vector<Femtoseconds> fixed() const;

 private:
  struct NodePrices {
    std::size_t index = 0;
    LinearPrice reduce, across, gather, across_back;
  };
  const NodePrices& node(std::int64_t group) const;
  /// The lookups of a route are followed by its exchange, and that by the next route's lookups.
  [[nodiscard]] bool exchanges_follow() const;
  /// Bytes of an id, with its weight, on its way.
  [[nodiscard]] double id_bytes(const EmbeddingTable& table) const;
  /// Unpacking ids into bags, and finding rows by keys.
  [[nodiscard]] double unpack(const EmbeddingTable& table, double lookups) const;
  const LinearPrice& link(OpKind kind, Format format, std::int64_t members,
                          std::int64_t step) const;

  const Job& job_;
  const EmbeddingPrices& prices_;
  LineOf line_;
  bool weighted_ = false;  ///< some lookups: weights are a collective of their own
  double typical_ = 0;     ///< elements of pooled rows of half of all tables on one rank
  double forward_bytes_ = 4, backward_bytes_ = 4, gradient_bytes_ = 4;
  double typical_rows_ = 0;  ///< the same of unpooled rows
  LinearPrice ids_, lengths_, unpack_, exchange_, exchange_back_, rows_, rows_back_, reduce_,
      gather_;
  LinearPrice zero_;
  double replicated_ = 0;  ///< elements of tables that would be, about
  mutable std::map<std::int64_t, LinearPrice> updates_;                            ///< by columns
  mutable std::map<std::tuple<std::int64_t, std::int64_t, double>, double> sums_;  ///< a byte
  LinearPrice pool_forward_, pool_backward_;
  mutable std::map<std::int64_t, NodePrices> nodes_;
  mutable std::map<std::string, double> keyed_;  ///< bytes of a lookup, by table
  /// Least that collectives of copies on groups of ranks take to start, of the groups in use.
  mutable double copies_start_ = std::numeric_limits<double>::infinity();
  mutable std::map<std::tuple<int, int, std::int64_t, std::int64_t>, LinearPrice> links_;
};

}  // namespace stepcast::planner::internal
