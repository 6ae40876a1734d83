// The engine's part that deals with other ranks: send and receive, transfers.
#include <algorithm>
#include <limits>

#include "core/error.h"
#include "simulator/engine.h"

namespace stepcast::simulator {

std::uint32_t Engine::new_transfer() {
  if (free_transfers_.empty()) {
    transfers_.emplace_back();
    return static_cast<std::uint32_t>(transfers_.size() - 1);
  }
  const std::uint32_t t = free_transfers_.back();
  free_transfers_.pop_back();
  transfers_[t].parties.clear();
  transfers_[t].granted = 0;
  transfers_[t].sender = -1;
  transfers_[t].meets = true;
  return t;
}

void Engine::describe(Transfer& transfer, const OpCosts& costs, std::uint32_t op) {
  transfer.duration = costs.ticks[op];
  transfer.path = costs.path[op];
  transfer.speed = 0;
  if (transfer.path >= 0) {
    const auto& levels = costs_.paths[static_cast<std::size_t>(transfer.path)];
    double narrowest = std::numeric_limits<double>::infinity();
    for (const std::int32_t level : levels) {
      narrowest = std::min(narrowest, costs_.level_capacity[static_cast<std::size_t>(level)]);
    }
    transfer.speed =
        std::min(narrowest, static_cast<double>(costs.link_share[op]) *
                                costs_.level_capacity[static_cast<std::size_t>(levels.back())]);
  }
}

std::int32_t Engine::peer_of(const Rank& rank, const Op& op) const {
  const auto r = static_cast<std::int32_t>(&rank - ranks_.data());
  const std::int32_t g = costs_.folding.group(r, op.communicator);
  STEPCAST_CHECK(g >= 0, "rank {} is in no group of communicator {}", rank.rank, op.communicator);
  const auto& members = costs_.folding.groups[static_cast<std::size_t>(g)].members;
  STEPCAST_CHECK(op.peer >= 0 && static_cast<std::size_t>(op.peer) < members.size(),
                 "'{}' of rank {} names peer {} of {}", rank.order->program().name(op), rank.rank,
                 op.peer, members.size());
  return members[static_cast<std::size_t>(op.peer)];
}

Engine::Channel& Engine::channel(std::int32_t communicator, std::int32_t source,
                                 std::int32_t target) {
  auto& own = ranks_[static_cast<std::size_t>(source)].channels;
  for (const std::uint32_t c : own) {
    if (channels_[c].communicator == communicator && channels_[c].target == target) {
      return channels_[c];
    }
  }
  own.push_back(static_cast<std::uint32_t>(channels_.size()));
  channels_.push_back({.communicator = communicator,
                       .source = source,
                       .target = target,
                       .sends = {},
                       .receives = {},
                       .first_send = 0});
  return channels_.back();
}

void Engine::post_send(std::uint32_t r, std::uint32_t s, std::uint32_t op) {
  Rank& rank = ranks_[r];
  Stream& stream = rank.streams[s];
  const Op& source = rank.order->program().ops[op];
  const std::int32_t microbatch = rank.order->program().calls[stream.call].microbatch;
  Channel& c = channel(source.communicator, static_cast<std::int32_t>(r), peer_of(rank, source));
  const std::int64_t posted = stream.begin;
  finish_op(r, s, posted);  // the stream goes on
  for (std::size_t i = 0; i < c.receives.size(); ++i) {
    if (c.receives[i].tag == source.shape[1] && c.receives[i].microbatch == microbatch) {
      const auto target = static_cast<std::size_t>(c.target);
      const auto waiting = static_cast<std::size_t>(c.receives[i].stream);
      const std::int64_t begun = c.receives[i].time;
      c.receives.erase(c.receives.begin() + static_cast<std::ptrdiff_t>(i));
      const Rank& receiver = ranks_[target];
      const std::uint32_t t = new_transfer();
      Transfer& transfer = transfers_[t];
      describe(transfer, *receiver.costs, receiver.order->entries()[receiver.streams[waiting].at]);
      transfer.ready = std::max(posted, begun);
      transfer.order = message_order(source.communicator, microbatch, source.shape[1]);
      transfer.sender = static_cast<std::int32_t>(r);
      transfer.meets = false;
      transfer.parties.push_back({c.target, static_cast<std::int32_t>(waiting)});
      launch(t);
      return;
    }
  }
  c.sends.push_back({source.shape[1], microbatch, static_cast<std::int32_t>(s), posted});
}

void Engine::post_receive(std::uint32_t r, std::uint32_t s, std::uint32_t op) {
  Rank& rank = ranks_[r];
  Stream& stream = rank.streams[s];
  const Op& source = rank.order->program().ops[op];
  const std::int32_t microbatch = rank.order->program().calls[stream.call].microbatch;
  const std::int32_t sender = peer_of(rank, source);
  Channel& c = channel(source.communicator, sender, static_cast<std::int32_t>(r));
  for (std::size_t i = c.first_send; i < c.sends.size(); ++i) {
    if (c.sends[i].tag == source.shape[1] && c.sends[i].microbatch == microbatch) {
      const std::uint32_t t = new_transfer();
      Transfer& transfer = transfers_[t];
      describe(transfer, *rank.costs, op);
      transfer.ready = std::max(c.sends[i].time, stream.begin);
      transfer.order = message_order(source.communicator, microbatch, source.shape[1]);
      transfer.sender = sender;
      transfer.meets = false;
      transfer.parties.push_back({static_cast<std::int32_t>(r), static_cast<std::int32_t>(s)});
      if (i == c.first_send) {
        if (++c.first_send == c.sends.size()) {
          c.sends.clear();
          c.first_send = 0;
        }
      } else {
        c.sends.erase(c.sends.begin() + static_cast<std::ptrdiff_t>(i));
      }
      launch(t);
      return;
    }
  }
  c.receives.push_back({source.shape[1], microbatch, static_cast<std::int32_t>(s), stream.begin});
}

void Engine::launch(std::uint32_t t) {
  Transfer& transfer = transfers_[t];
  for (const Party& party : transfer.parties) {
    ranks_[static_cast<std::size_t>(party.rank)]
        .streams[static_cast<std::size_t>(party.stream)]
        .ready = transfer.ready;
  }
  if (!timed_) {
    complete(t, transfer.ready + transfer.duration);
  } else if (transfer.ready > now_) {
    transfer.place = Transfer::Place::kScheduled;
    queue_.schedule(first_transfer_ + t, transfer.ready);
  } else {
    fly(t);
  }
}

void Engine::fly(std::uint32_t t) {
  Transfer& transfer = transfers_[t];
  if (core_ && costs_.collectives_hold_core) {
    for (const Party& party : transfer.parties) {
      ranks_[static_cast<std::size_t>(party.rank)].core_tasks.push_back(
          {.ready = transfer.ready, .order = transfer.order, .stream = -1, .transfer = t});
      enlist(static_cast<std::uint32_t>(party.rank));
    }
    return;
  }
  transfer.place = Transfer::Place::kFlying;
  links_.clear();
  if (transfer.path >= 0 && transfer.speed > 0) {
    const auto levels = static_cast<std::uint32_t>(costs_.level_capacity.size());
    const auto add = [&](std::int32_t rank, std::uint32_t direction) {
      for (const std::int32_t level : costs_.paths[static_cast<std::size_t>(transfer.path)]) {
        links_.push_back(
            (static_cast<std::uint32_t>(rank) * levels + static_cast<std::uint32_t>(level)) * 2 +
            direction);
      }
    };
    for (const Party& party : transfer.parties) {
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
  network_.start(t, now_, transfer.duration, transfer.speed, links_);
  if (!network_.dirty()) {
    queue_.schedule(network_source_, network_.next_end());
  }
}

void Engine::set_in_flight(const Transfer& transfer, std::int32_t change) {
  const auto count = [&](std::int32_t r) {
    Rank& rank = ranks_[static_cast<std::size_t>(r)];
    rank.in_flight += change;
    if (costs_.slowdown > 1 && rank.in_flight == (change > 0 ? 1 : 0)) {
      rerate(static_cast<std::uint32_t>(r));
    }
  };
  for (const Party& party : transfer.parties) {
    count(party.rank);
  }
  if (transfer.sender >= 0) {
    count(transfer.sender);
  }
}

void Engine::complete(std::uint32_t t, std::int64_t end) {
  Transfer& transfer = transfers_[t];
  for (const Party& party : transfer.parties) {
    const auto r = static_cast<std::uint32_t>(party.rank);
    const auto s = static_cast<std::uint32_t>(party.stream);
    Rank& rank = ranks_[r];
    Stream& stream = rank.streams[s];
    rank.wait += stream.ready - stream.begin;
    rank.transfer += end - stream.ready;
    if (transfer.meets) {
      rank.last_meeting = std::max(rank.last_meeting, end);
    }
    finish_op(r, s, end);
    wake(r, s);
  }
  free_transfers_.push_back(t);
}

std::string Engine::stuck() const {
  std::string text = "the ranks wait for each other without end:";
  int listed = 0;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const Rank& rank = ranks_[r];
    for (const Stream& stream : rank.streams) {
      if (stream.next == stream.total || stream.state == State::kUnissued) {
        continue;
      }
      if (++listed > 8) {
        return text + " ...";
      }
      const std::uint32_t o = rank.order->entries()[stream.at];
      const Op& op = rank.order->program().ops[o];
      text += fmt::format(" rank {}, stream '{}': {} '{}' (call {}, microbatch {})", rank.rank,
                          rank.order->program().streams[op.stream], name_of(op.kind),
                          rank.order->program().name(op), stream.call,
                          rank.order->program().calls[stream.call].microbatch);
      if (stream.state == State::kOnRecord) {
        text += " waits for an event that is never recorded;";
      } else if (rank.order->role(o) == OpRole::kReceive) {
        text += fmt::format(" gets no matching send from rank {};",
                            ranks_[static_cast<std::size_t>(peer_of(rank, op))].rank);
      } else {
        text += fmt::format(" on communicator '{}' waits for",
                            graph_.communicators[static_cast<std::size_t>(op.communicator)].name);
        const auto g = static_cast<std::size_t>(
            costs_.folding.group(static_cast<std::int32_t>(r), op.communicator));
        for (const std::uint32_t m : open_[g]) {
          const auto& members = meetings_[m].members;
          const auto own =
              static_cast<std::size_t>(rank.member[static_cast<std::size_t>(op.communicator)]);
          for (std::size_t i = 0; members[own].here && i < members.size(); ++i) {
            if (!members[i].here) {
              text += fmt::format(
                  " rank {}",
                  ranks_[static_cast<std::size_t>(costs_.folding.groups[g].distinct[i])].rank);
            }
          }
        }
        text += ";";
      }
    }
  }
  return text;
}

}  // namespace stepcast::simulator
