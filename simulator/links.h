#pragma once
#include <cstdint>
#include <vector>

#include "simulator/event_queue.h"
#include "simulator/network.h"
#include "simulator/step_costs.h"

namespace stepcast::simulator {

/// One transfer, once all who take part in it are there.
struct Transfer {
  /// A stream that waits for its end.
  struct Party {
    std::int32_t rank = 0;
    std::int32_t stream = 0;
  };
  enum class Place : std::uint8_t { kScheduled, kFlying, kOnCore };

  std::int64_t ready = 0, duration = 0;
  double speed = 0;
  std::int32_t sender = -1;  ///< of a message: whose links and slowdown count too
  std::int32_t path = -1;
  std::uint64_t order = 0;  ///< among tasks of a core, an order all ranks agree on
  bool meets = true;        ///< counts as a rendezvous for the straggler term
  std::vector<Party> parties;
  Place place = Place::kScheduled;
  std::size_t granted = 0;  ///< parties whose core takes part
};

/// Transfers from their start to their end: over shared links, or on the cores of their ranks.
/// Where nothing depends on the order of events in time, a transfer ends as it is launched.
class Links {
 public:
  /// Who is told of transfers.
  class Client {
   public:
    virtual ~Client() = default;
    /// It waits for the cores of its parties; answered by take_cores().
    virtual void want_cores(std::uint32_t id, const Transfer& transfer) = 0;
    /// The first transfer of a rank is in flight, or the last one no more.
    virtual void change_rate(std::uint32_t rank) = 0;
    virtual void end_transfer(const Transfer& transfer, std::int64_t end) = 0;
  };

  /// Its events have sources from `first_source` on.
  Links(const StepCosts& costs, EventQueue& queue, std::uint32_t first_source, Client& client);

  /// From here on transfers end by events.
  void time_ends() { timed_ = true; }
  /// A transfer that takes what an op costs; the caller sets the rest and launches it.
  std::uint32_t create(const OpCosts& costs, std::uint32_t op);
  Transfer& operator[](std::uint32_t id) { return transfers_[id]; }
  /// Duration and way of the op.
  void describe(Transfer& transfer, const OpCosts& costs, std::uint32_t op) const;
  void launch(std::uint32_t id);
  /// Takes that many cores of its parties that are free for it; it begins with the last of them.
  void take_cores(std::uint32_t id, std::size_t parties);

  [[nodiscard]] std::int32_t in_flight(std::uint32_t rank) const { return in_flight_[rank]; }
  /// Shares links out anew, once all that happens at this time is known.
  void settle() {
    if (network_.dirty()) {
      share_out();
    }
  }
  void handle(const EventQueue::Event& event);

 private:
  void share_out();
  void fly(std::uint32_t id);
  void set_in_flight(const Transfer& transfer, std::int32_t change);
  void end(std::uint32_t id, std::int64_t time);

  const StepCosts& costs_;
  EventQueue& queue_;
  Client& client_;
  const std::uint32_t network_source_, first_transfer_;
  bool timed_ = false;
  Network network_;
  std::vector<Transfer> transfers_;
  std::vector<std::uint32_t> free_;
  std::vector<std::int32_t> in_flight_;  // transfers, by rank
  std::vector<Network::Use> links_;      // scratch
};

}  // namespace stepcast::simulator
