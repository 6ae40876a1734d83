#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "simulator/event_queue.h"

namespace stepcast::simulator {

/// Transfers in flight over shared links. Links are shared max-min fairly: all transfers speed up
/// together until one is at its own speed (the rate it has alone) or one of its links is full. A
/// transfer over several links uses each in proportion, and the speeds that are levelled are those
/// on its busiest one.
///
/// A transfer alone on its links ends exactly `duration` ticks after its start; only transfers that
/// meet others are re-rated. Changes at one time are settled together: call settle() once they are
/// all known, before next_end().
///
/// Source: max-min fairness by progressive filling, Bertsekas and Gallager, Data Networks, 6.5.2; over
/// links used unequally: Ghodsi et al., "Dominant Resource Fairness", NSDI 2011.
class Network {
 public:
  /// A link on a transfer's way, and how much of it is used beside the busiest.
  struct Use {
    std::uint32_t link = 0;
    double use = 1;
  };

  explicit Network(std::size_t links);

  /// A transfer that takes `duration` when alone, using `speed`, a share, of its busiest link. `id`
  /// is the caller's, small and not in flight.
  void start(std::uint32_t id, std::int64_t now, std::int64_t duration, double speed,
             std::span<const Use> links);
  [[nodiscard]] bool dirty() const { return dirty_; }
  void settle(std::int64_t now);
  [[nodiscard]] bool idle() const { return alone_.empty() && pool_.empty(); }
  /// Earliest end of a transfer in flight; requires !idle() and !dirty().
  [[nodiscard]] std::int64_t next_end() const;
  /// Removes and returns a transfer that ends at next_end().
  std::uint32_t finish_next();

 private:
  static constexpr std::uint32_t kAlone = ~0U;
  struct Flow {
    std::int64_t start = 0;
    std::int64_t duration = 0;
    double speed = 0;
    std::uint32_t place = kAlone;  // index in the pool
    std::vector<Use> links;
  };
  /// A transfer that shares, or has shared, a link.
  struct Pooled {
    std::uint32_t id = 0;
    std::uint32_t link_count = 0;
    const Use* links = nullptr;  // of its flow
    double speed = 0;
    double remaining = 0;  // ticks of its own speed
    double rate = 1;       // of its own speed
    double next_rate = 1;
    std::int64_t mark = 0;  // time `remaining` is valid for
    std::int64_t end = 0;
    std::uint64_t fixed = 0;  // fill() that has found its rate
  };

  void enter_pool(std::uint32_t id, std::int64_t now);
  void leave(std::uint32_t id);
  void fill();

  std::vector<std::vector<std::uint32_t>> on_link_;  // flows by link
  std::vector<Flow> flows_;
  EventQueue alone_;
  std::vector<Pooled> pool_;
  std::int64_t pool_end_ = 0;
  std::size_t pool_next_ = 0;
  bool dirty_ = false;
  double slowest_ = 0;  // no transfer of the pool is slower
  std::uint64_t round_ = 0;
  // Scratch of fill(), by link; valid for the links in `busy_`.
  std::vector<double> free_;
  std::vector<std::uint32_t> open_;
  std::vector<double> uses_;  // by those open
  std::vector<char> full_;
  std::vector<std::uint32_t> busy_;  // links in use
  std::vector<std::uint32_t> busy_place_;
};

}  // namespace stepcast::simulator
