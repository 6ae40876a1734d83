#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "core/graph/program.h"
#include "core/system.h"
#include "runtime/collectives.h"
#include "runtime/emulation/core_lease.h"
#include "runtime/emulation/paced_fabric.h"
#include "runtime/emulation/paced_tiers.h"
#include "runtime/emulation/schedules.h"
#include "runtime/mpi/session.h"

namespace stepcast::runtime {

/// Collectives whose data really moves (by the collectives inside) and whose time is that of a
/// described fabric: a call returns when both are done. Waiting sleeps, so that a compute stream
/// on the same core goes on meanwhile. Times are right when the described fabric is slower than
/// this machine's memory and its latencies are above about 50 us, the precision of a sleep.
class EmulatedCollectives final : public Collectives {
 public:
  EmulatedCollectives(std::unique_ptr<Collectives> inside, Schedules schedules)
      : inside_(std::move(inside)), schedules_(std::move(schedules)) {}

  [[nodiscard]] int rank() const override { return inside_->rank(); }
  [[nodiscard]] int size() const override { return inside_->size(); }
  void all_reduce(float* data, std::size_t count, Reduction reduction) override;
  void all_gather(const float* send, float* receive, std::size_t count_per_rank) override;
  void reduce_scatter(const float* send, float* receive, std::size_t count_per_rank) override;
  void broadcast(float* data, std::size_t count, int root) override;
  void all_to_all_v(const void* send, std::span<const std::int64_t> send_counts,
                    std::span<const std::int64_t> send_offsets, void* receive,
                    std::span<const std::int64_t> receive_counts,
                    std::span<const std::int64_t> receive_offsets,
                    std::size_t element_bytes) override;
  void post_send(const float* data, std::size_t count, int peer, int tag) override;
  void receive(float* data, std::size_t count, int peer, int tag) override;
  void finish_sends() override { inside_->finish_sends(); }
  void barrier() override;
  InFlight* flight() override { return inside_->flight(); }

 private:
  void rest_until(std::int64_t ns);

  std::unique_ptr<Collectives> inside_;
  Schedules schedules_;
  std::vector<double> bytes_to_;
};

/// The described fabric of one run: shared memory for links, mailboxes and core tokens.
/// Errors: EnvironmentError when the ranks are not all on this machine; InputError when the fabric
/// does not join as many devices as there are ranks.
class Emulation {
 public:
  Emulation(const System& system, const ExecutionGraph& graph, int cores, MpiSession& session);
  std::vector<std::unique_ptr<Collectives>> paced(std::vector<std::unique_ptr<Collectives>> real);
  CoreLease& core_lease() { return *lease_; }
  /// This rank's way to the slower memory tiers of its program; null where it has none.
  TierPort* tiers() { return tiers_ ? &*tiers_ : nullptr; }

 private:
  const ExecutionGraph& graph_;
  int rank_;
  std::shared_ptr<void> memory_;
  std::unique_ptr<PacedFabric> fabric_;
  std::vector<GroupMemory> groups_;  ///< per communicator, of this rank's group
  std::optional<CoreLease> lease_;
  std::optional<PacedTiers> tiers_;
};

}  // namespace stepcast::runtime
