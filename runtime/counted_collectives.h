#pragma once
#include <array>
#include <memory>
#include <vector>

#include "core/graph/collective_schedule.h"
#include "runtime/collectives.h"

namespace stepcast::runtime {

/// Counts what this rank sends through other collectives, by level of a fabric: in all-to-alls what
/// is really handed over for each peer, in reductions and gathers what their rounds send
/// (core/graph/collective_schedule.h), which is what the emulated fabric plays.
class CountedCollectives final : public Collectives {
 public:
  /// `members`: global ranks of the group. `levels` outlives this.
  CountedCollectives(std::unique_ptr<Collectives> inside, const LinkLevels& levels,
                     std::vector<std::int32_t> members);

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
  void receive(float* data, std::size_t count, int peer, int tag) override {
    inside_->receive(data, count, peer, tag);
  }
  void finish_sends() override { inside_->finish_sends(); }
  void barrier() override { inside_->barrier(); }
  InFlight* flight() override { return inside_->flight(); }
  std::span<double> sent_by_level() override { return sent_; }

 private:
  void add_rounds(RingUse use, double elements);
  void add_message(int to, std::size_t elements);

  std::unique_ptr<Collectives> inside_;
  const LinkLevels& levels_;
  std::vector<std::int32_t> members_;
  std::vector<double> sent_;
  std::array<std::vector<double>, 3> shares_;  ///< sent_shares() by RingUse, once used
  std::vector<double> bytes_to_;
};

}  // namespace stepcast::runtime
