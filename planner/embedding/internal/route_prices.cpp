#include "planner/embedding/internal/route_prices.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/numbers.h"
#include "workloads/embedding_plan/embedding_tiers.h"

namespace stepcast::planner::internal {
namespace {

constexpr double kIdBytes = 8;
constexpr double kLengthBytes = 4;

double element_bytes(Format f) { return bits_per_element(f, 1024) / 8; }

}  // namespace

LoadPhase lookup_phase(EmbeddingRoute route) {
  return is_sequence(route)                                      ? kSequenceLookup
         : is_local(route) || route == EmbeddingRoute::kExchange ? kLookup
                                                                 : kGroupLookup;
}

LoadPhase exchange_phase(EmbeddingRoute route) {
  return is_sequence(route)                                      ? kSequenceExchange
         : is_local(route) || route == EmbeddingRoute::kExchange ? kExchange
                                                                 : kGroupExchange;
}

RoutePrices::RoutePrices(const Job& job, const EmbeddingPrices& prices, LineFit fit, double longest)
    : job_(job),
      prices_(prices),
      line_{fit, longest * real(std::max<std::int64_t>(1, job.sync_interval))} {
  const LayeredWorkload& w = *job.workload.layered();
  const std::int64_t devices = job.devices;
  const double local = real(job.batch.global) / real(devices);
  double lookups = 0;  // as ids without weights
  double bags = 0;
  double columns = 0;
  double row_elements = 0;
  double unpooled = 0;        // of rows that travel as they are
  double small_elements = 0;  // of tables that would be replicated
  for (const EmbeddingTable& t : w.tables) {
    lookups += local * t.pooling * id_bytes(t) / kIdBytes;
    bags += local * real(t.feature_count());
    columns += real(t.output_columns());
    weighted_ = weighted_ || t.weighted;
    row_elements += local * t.pooling * real(t.dim);
    if (t.mode == PoolingMode::kSequence) {
      unpooled += local * t.pooling * real(t.dim);
    }
    if (real(t.rows) <= 2 * local) {
      small_elements += real(t.rows) * real(t.dim);
    }
  }
  forward_bytes_ = element_bytes(job.formats.all_to_all_forward);
  backward_bytes_ = element_bytes(job.formats.all_to_all_backward);
  gradient_bytes_ = element_bytes(job.formats.gradient);
  typical_ = local * columns;  // what an average rank sends
  const Format forward = job.formats.all_to_all_forward;
  const Format backward = job.formats.all_to_all_backward;
  const auto to_all = [&](OpKind kind, Format format, double bytes) {
    return prices.link(kind, format, devices, 1, bytes, line_);
  };
  ids_ = to_all(OpKind::kAllToAllV, Format::kInt64, lookups * kIdBytes);
  lengths_ = to_all(OpKind::kAllToAllV, Format::kInt32, bags * kLengthBytes);
  unpack_ = prices.memory_bound(OpKind::kIndexUnpack, 2 * lookups * kIdBytes, line_);
  exchange_ = to_all(OpKind::kAllToAllV, forward, typical_ * forward_bytes_);
  exchange_back_ = to_all(OpKind::kAllToAllV, backward, typical_ * backward_bytes_);
  typical_rows_ = std::max(unpooled, typical_);
  rows_ = to_all(OpKind::kAllToAllV, forward, typical_rows_ * forward_bytes_);
  rows_back_ = to_all(OpKind::kAllToAllV, backward, typical_rows_ * backward_bytes_);
  const double reduced = typical_ * real(devices) / 2;
  reduce_ = to_all(OpKind::kReduceScatter, forward, reduced * forward_bytes_);
  gather_ = to_all(OpKind::kAllGather, backward, reduced * backward_bytes_);
  replicated_ = std::max(small_elements, 1e5);
  zero_ = prices.zeroing(replicated_, line_);
  pool_forward_ = prices.memory_bound(OpKind::kSequencePoolForward, row_elements * 4, line_);
  pool_backward_ = prices.memory_bound(OpKind::kSequencePoolBackward, row_elements * 4, line_);
}

double RoutePrices::id_bytes(const EmbeddingTable& table) const {
  return table.id_bytes() - (job_.system.framework.narrow_ids ? kIdBytes / 2 : 0);
}

// Around an even exchange bytes sent equal bytes received.
double RoutePrices::ids(const EmbeddingTable& table, double lookups) const {
  const double bytes = lookups * id_bytes(table);
  return ids_.beyond_start(bytes) + unpack(table, lookups);
}
double RoutePrices::unpack(const EmbeddingTable& table, double lookups) const {
  double bytes = 2 * id_bytes(table);
  if (table.keyed()) {
    const auto [known, fresh] = keyed_.try_emplace(table.name);
    if (fresh) {
      known->second = workloads::keyed_rows(job_, table).moved();
    }
    bytes += known->second;
  }
  return unpack_.beyond_start(lookups * bytes);
}
double RoutePrices::lengths(double bags) const {
  const double bytes = bags * kLengthBytes;
  return lengths_.beyond_start(bytes) + unpack_.beyond_start(2 * bytes);
}
double RoutePrices::exchange(EmbeddingRoute route, double elements, std::int64_t group) const {
  const double forward = elements * forward_bytes_;
  const double backward = elements * backward_bytes_;
  switch (kind_of(route)) {
    case EmbeddingRoute::kExchange:
      return exchange_.beyond_start(forward) + exchange_back_.beyond_start(backward);
    case EmbeddingRoute::kSequence:
      return rows_.beyond_start(forward) + rows_back_.beyond_start(backward);
    case EmbeddingRoute::kReduce:
      return reduce_.beyond_start(forward) + gather_.beyond_start(backward);
    case EmbeddingRoute::kNodeReduce: {
      const NodePrices& p = node(group);
      return (p.reduce.beyond_start(forward) + p.across.beyond_start(forward / real(group))) +
             (p.gather.beyond_start(backward) + p.across_back.beyond_start(backward / real(group)));
    }
    case EmbeddingRoute::kReplicated:
    case EmbeddingRoute::kLocal:
    case EmbeddingRoute::kGroupReduce:
    case EmbeddingRoute::kGroupSequence:
      break;
  }
  STEPCAST_FAIL("no exchange of one copy by route {}", name_of(route));
}

double RoutePrices::returning() const {
  const double back = std::min(exchange_back_.per_byte, rows_back_.per_byte) * backward_bytes_;
  const double there = std::max(exchange_.per_byte, rows_.per_byte) * forward_bytes_;
  return back > 0 ? back / (back + there) : 0;
}

bool RoutePrices::exchanges_follow() const {
  return !job_.parallel.overlap.output_all_to_all &&
         job_.parallel.dlrm_pipeline != DlrmPipeline::kPrefetch;
}

double RoutePrices::reduce_inside(double elements, std::int64_t group) const {
  return exchanges_follow() ? node(group).reduce.beyond_start(elements * forward_bytes_) : 0;
}

const RoutePrices::NodePrices& RoutePrices::node(std::int64_t group) const {
  const auto [it, fresh] = nodes_.try_emplace(group);
  if (fresh) {
    NodePrices& p = it->second;
    p.index = nodes_.size() - 1;
    // A node holds its share of the tables: every rank of it has their full width.
    const double inside = typical_ * real(group);
    const std::int64_t groups = job_.devices / group;
    p.reduce = prices_.link(OpKind::kReduceScatter, job_.formats.all_to_all_forward, group, 1,
                            inside * forward_bytes_, line_);
    p.gather = prices_.link(OpKind::kAllGather, job_.formats.all_to_all_backward, group, 1,
                            inside * backward_bytes_, line_);
    p.across = prices_.link(OpKind::kAllToAllV, job_.formats.all_to_all_forward, groups, group,
                            typical_ * forward_bytes_, line_);
    p.across_back = prices_.link(OpKind::kAllToAllV, job_.formats.all_to_all_backward, groups,
                                 group, typical_ * backward_bytes_, line_);
  }
  return it->second;
}

double RoutePrices::tier_move(const Tier& tier, double bytes) const {
  const bool hidden =
      line_.fit == LineFit::kBelow && job_.parallel.dlrm_pipeline >= DlrmPipeline::kPrefetch;
  return hidden ? 0 : prices_.tier_move(tier, bytes);
}

bool RoutePrices::arrives_ahead() const {
  return job_.parallel.dlrm_pipeline >= DlrmPipeline::kSparseDist;
}

const LinearPrice& RoutePrices::link(OpKind kind, Format format, std::int64_t members,
                                     std::int64_t step) const {
  const auto [it, fresh] = links_.try_emplace(
      std::make_tuple(static_cast<int>(kind), static_cast<int>(format), members, step));
  if (fresh) {
    const double bytes =
        kind == OpKind::kAllReduce ? replicated_ * gradient_bytes_ : typical_rows_ * 4;
    it->second = prices_.link(kind, format, members, step, bytes, line_);
  }
  return it->second;
}

double RoutePrices::replica_sync(double elements, std::int64_t copies, std::int64_t step) const {
  const double bytes = elements * gradient_bytes_;
  if (line_.fit == LineFit::kBelow) {
    return link(OpKind::kAllReduce, job_.formats.gradient, copies, step).beyond_start(bytes);
  }
  // A large table has a bucket to itself; small ones share theirs.
  const double bucket =
      std::max(bytes, std::min(job_.parallel.bucket.base(), replicated_ * gradient_bytes_));
  const auto [it, fresh] = sums_.try_emplace({copies, step, bucket});
  if (fresh) {
    it->second =
        prices_.link(OpKind::kAllReduce, job_.formats.gradient, copies, step, bucket, line_)
            .per_byte;
  }
  return it->second * bytes;
}
double RoutePrices::group_exchange(std::int64_t group, double elements, bool forward) const {
  const Format f = forward ? job_.formats.all_to_all_forward : job_.formats.all_to_all_backward;
  return link(OpKind::kAllToAllV, f, group, 1)
      .beyond_start(elements * (forward ? forward_bytes_ : backward_bytes_));
}
double RoutePrices::group_ids(const EmbeddingTable& table, std::int64_t group,
                              double lookups) const {
  const double bytes = lookups * id_bytes(table);
  return link(OpKind::kAllToAllV, Format::kInt64, group, 1).beyond_start(bytes) +
         unpack(table, lookups);
}
double RoutePrices::replica_update(double elements, std::int64_t width) const {
  const auto [it, fresh] = updates_.try_emplace(width);
  if (fresh) {
    it->second = prices_.dense_update(replicated_, width, line_);
  }
  return it->second.start + (it->second.per_byte + zero_.per_byte) * elements;
}

std::pair<double, double> RoutePrices::pool_rows(double row_elements, double bag_elements) const {
  const double compute = element_bytes(job_.formats.compute);
  return {pool_forward_.beyond_start(row_elements * forward_bytes_ + bag_elements * compute),
          pool_backward_.beyond_start(row_elements * backward_bytes_ + bag_elements * compute)};
}

double RoutePrices::exchange_inside(double elements, std::int64_t group) const {
  const NodePrices& p = node(group);
  return p.reduce.beyond_start(elements * forward_bytes_) +
         p.gather.beyond_start(elements * backward_bytes_);
}

double RoutePrices::sync_start(std::int64_t copies, std::int64_t step) const {
  return job_.parallel.overlap.dense_all_reduce
             ? 0
             : link(OpKind::kAllReduce, job_.formats.gradient, copies, step).start /
                   real(job_.sync_interval);
}

/// In the order of `fixed`: ids, then routes, then kernels of what single ranks hold, then copies
/// on groups of ranks, then node reduces by size of groups.
std::uint32_t RoutePrices::charges(EmbeddingRoute route, std::int64_t group) const {
  enum Charge { kIds, kExchange, kReduce, kSequence, kReplicated, kHeld, kCopies, kNode };
  const auto with_ids = [](std::size_t charge) { return 1U << kIds | 1U << charge; };
  const auto held = [&with_ids](std::size_t charge) { return with_ids(charge) | 1U << kHeld; };
  switch (kind_of(route)) {
    case EmbeddingRoute::kReplicated:
    case EmbeddingRoute::kLocal:
      return 1U << kReplicated;
    case EmbeddingRoute::kExchange:
      return held(kExchange);
    case EmbeddingRoute::kReduce:
      return with_ids(kReduce);
    case EmbeddingRoute::kGroupReduce:
    case EmbeddingRoute::kGroupSequence: {
      const bool rows = kind_of(route) == EmbeddingRoute::kGroupSequence;
      const double there = link(rows ? OpKind::kAllToAllV : OpKind::kReduceScatter,
                                job_.formats.all_to_all_forward, group, 1)
                               .start;
      const double back = link(rows ? OpKind::kAllToAllV : OpKind::kAllGather,
                               job_.formats.all_to_all_backward, group, 1)
                              .start;
      copies_start_ =
          std::min(copies_start_, there + back + sync_start(job_.devices / group, group));
      return with_ids(kCopies);
    }
    case EmbeddingRoute::kSequence:
      return held(kSequence);
    case EmbeddingRoute::kNodeReduce:
      return held(kNode + node(group).index);
  }
  return 0;
}

std::vector<Femtoseconds> RoutePrices::fixed() const {
  const double kernels = prices_.forward_start() + prices_.backward_start();
  // Routes whose tables lie on other ranks update them side by side, and look them up side by side
  // where no exchange comes between: a bound counts the start of one.
  const double each = line_.fit == LineFit::kNear ? kernels
                      : exchanges_follow()        ? prices_.forward_start()
                                                  : 0;
  std::vector<Femtoseconds> charges;
  charges.push_back(to_load(job_.devices > 1 && !arrives_ahead()
                                ? (weighted_ ? 2 : 1) * ids_.start + lengths_.start + unpack_.start
                                : 0));
  charges.push_back(to_load(each + exchange_.start + exchange_back_.start));
  charges.push_back(to_load(kernels + reduce_.start + gather_.start));
  charges.push_back(
      to_load(each + rows_.start + rows_back_.start + pool_forward_.start + pool_backward_.start));
  // One launch zeroes gradients of replicas with those of the dense model.
  const double copied = prices_.forward_start() + prices_.gradient_start();
  charges.push_back(to_load(job_.devices > 1 ? copied + sync_start(job_.devices, 1) : kernels));
  charges.push_back(to_load(kernels - each));
  charges.push_back(std::isfinite(copies_start_) ? to_load(copied + copies_start_) : 0);
  std::vector<const NodePrices*> by_index(nodes_.size());
  for (const auto& [group, p] : nodes_) {
    by_index[p.index] = &p;
  }
  for (const NodePrices* p : by_index) {
    charges.push_back(
        to_load(each + p->reduce.start + p->across.start + p->gather.start + p->across_back.start));
  }
  return charges;
}

}  // namespace stepcast::planner::internal
