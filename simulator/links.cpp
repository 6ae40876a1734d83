#include "simulator/links.h"

namespace stepcast::simulator {
Links::Links(const StepCosts& costs, EventQueue& queue, std::uint32_t first_source, Client& client)
    : costs_(costs),
      queue_(queue),
      client_(client),
      network_source_(first_source),
      first_transfer_(first_source + 1),
      timed_(costs.shares_core),
      network_(costs.ops.size() * static_cast<std::size_t>(costs.levels) * 2),
      in_flight_(costs.ops.size(), 0) {}

std::uint32_t Links::create(const OpCosts& costs, std::uint32_t op) {
  std::uint32_t id = 0;
  if (free_.empty()) {
    id = static_cast<std::uint32_t>(transfers_.size());
    transfers_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
    transfers_[id].parties.clear();
    transfers_[id].granted = 0;
    transfers_[id].sender = -1;
    transfers_[id].meets = true;
  }
  describe(transfers_[id], costs, op);
  return id;
}

void Links::describe(Transfer& transfer, const OpCosts& costs, std::uint32_t op) const {
  transfer.duration = costs.ticks[op];
  transfer.path = costs.path[op];
  transfer.speed = static_cast<double>(costs.link_share[op]);
}

void Links::launch(std::uint32_t id) {
  Transfer& transfer = transfers_[id];
  if (!timed_) {
    end(id, transfer.ready + transfer.duration);
  } else if (transfer.ready > queue_.now()) {
    transfer.place = Transfer::Place::kScheduled;
    queue_.schedule(first_transfer_ + id, transfer.ready);
  } else {
    fly(id);
  }
}

void Links::fly(std::uint32_t id) {
  Transfer& transfer = transfers_[id];
  if (costs_.shares_core && costs_.collectives_hold_core) {
    client_.want_cores(id, transfer);
    return;
  }
  transfer.place = Transfer::Place::kFlying;
  links_.clear();
  if (transfer.path >= 0 && transfer.speed > 0) {
    const auto levels = static_cast<std::uint32_t>(costs_.levels);
    // Link = (instance, level, direction): 0 sends, 1 receives.
    const auto add = [&](std::int32_t rank, std::uint32_t direction) {
      for (const LevelUse& use : costs_.paths[static_cast<std::size_t>(transfer.path)]) {
        const auto level = static_cast<std::uint32_t>(use.level);
        const double share = direction == 0 ? use.sent : use.received;
        if (share > 0) {
          links_.push_back(
              {(static_cast<std::uint32_t>(rank) * levels + level) * 2 + direction, share});
        }
      }
    };
    for (const Transfer::Party& party : transfer.parties) {
      if (transfer.sender < 0) {
        add(party.rank, 0);
      }
      add(party.rank, 1);
    }
    if (transfer.sender >= 0) {
      add(transfer.sender, 0);
    }
  }
  set_in_flight(transfer, 1);
  network_.start(id, queue_.now(), transfer.duration, transfer.speed, links_);
  if (!network_.dirty()) {
    queue_.schedule(network_source_, network_.next_end());
  }
}

void Links::take_cores(std::uint32_t id, std::size_t parties) {
  Transfer& transfer = transfers_[id];
  transfer.granted += parties;
  if (transfer.granted == transfer.parties.size()) {
    transfer.place = Transfer::Place::kOnCore;
    queue_.schedule(first_transfer_ + id, queue_.now() + transfer.duration);
  }
}

void Links::set_in_flight(const Transfer& transfer, std::int32_t change) {
  const auto count = [&](std::int32_t rank) {
    std::int32_t& own = in_flight_[static_cast<std::size_t>(rank)];
    own += change;
    if (costs_.slowdown > 1 && own == (change > 0 ? 1 : 0)) {
      client_.change_rate(static_cast<std::uint32_t>(rank));
    }
  };
  for (const Transfer::Party& party : transfer.parties) {
    count(party.rank);
  }
  if (transfer.sender >= 0) {
    count(transfer.sender);
  }
}

void Links::share_out() {
  network_.settle(queue_.now());
  if (network_.idle()) {
    queue_.cancel(network_source_);
  } else {
    queue_.schedule(network_source_, network_.next_end());
  }
}

void Links::handle(const EventQueue::Event& event) {
  if (event.source == network_source_) {
    network_.settle(event.time);  // a start at this very time may have changed what ends now
    if (network_.next_end() > event.time) {
      queue_.schedule(network_source_, network_.next_end());
      return;
    }
    const std::uint32_t id = network_.finish_next();
    if (!network_.dirty() && !network_.idle()) {
      queue_.schedule(network_source_, network_.next_end());
    }
    set_in_flight(transfers_[id], -1);
    end(id, event.time);
    return;
  }
  const std::uint32_t id = event.source - first_transfer_;
  if (transfers_[id].place == Transfer::Place::kScheduled) {
    fly(id);
  } else {
    end(id, event.time);
  }
}

void Links::end(std::uint32_t id, std::int64_t time) {
  client_.end_transfer(transfers_[id], time);
  free_.push_back(id);
}

}  // namespace stepcast::simulator
