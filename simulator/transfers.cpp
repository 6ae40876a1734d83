// The engine's part that deals with other ranks: rendezvous, send and receive, transfers.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "simulator/engine.h"

namespace stepcast::simulator {

namespace {

/// CoreTask::order of a collective; those of send and recv come after.
std::uint64_t core_order(std::int32_t communicator, std::uint32_t sequence) {
  return 64 + (static_cast<std::uint64_t>(communicator) << 33) + sequence;
}
std::uint64_t core_order(std::int32_t communicator, std::int32_t microbatch, std::int64_t tag) {
  return core_order(communicator, 0) + (1ULL << 32) +
         ((static_cast<std::uint64_t>(microbatch) << 12) ^
          (static_cast<std::uint64_t>(tag) & 0xfff));
}

}  // namespace

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

/// A collective of ranks that this one stands for, on links that nothing else uses.
void Engine::meet_equals(Rank& rank, std::uint32_t r, std::uint32_t s, std::uint32_t op) {
  Stream& stream = rank.streams[s];
  const std::int32_t g =
      costs_.folding.group(static_cast<std::int32_t>(r), rank.order->program->ops[op].communicator);
  const auto members =
      static_cast<std::int64_t>(costs_.folding.groups[static_cast<std::size_t>(g)].members.size());
  stream.ready = stream.begin;
  if (spread_ > 0 && stream.begin > rank.last_meeting) {
    const Arrival all{static_cast<double>(stream.begin),
                      spread_ * static_cast<double>(stream.begin - rank.last_meeting), members};
    stream.ready = expected_last({&all, 1});
  }
  const std::int64_t end = stream.ready + rank.costs->ticks[op];
  rank.wait += stream.ready - stream.begin;
  rank.transfer += end - stream.ready;
  if (members > 1) {
    rank.last_meeting = std::max(rank.last_meeting, end);
  }
  finish_op(r, s, end);
}

void Engine::arrive(std::uint32_t r, std::uint32_t s, std::uint32_t op) {
  Rank& rank = ranks_[r];
  Stream& stream = rank.streams[s];
  const Op& source = rank.order->program->ops[op];
  const std::int32_t g = costs_.folding.group(static_cast<std::int32_t>(r), source.communicator);
  STEPCAST_CHECK(g >= 0, "rank {} is in no group of communicator '{}'", rank.rank,
                 graph_.communicators[static_cast<std::size_t>(source.communicator)].name);
  const auto group_index = static_cast<std::size_t>(g);
  const Group& group = costs_.folding.groups[group_index];
  const auto member =
      static_cast<std::size_t>(rank.member[static_cast<std::size_t>(source.communicator)]);
  double spread = 0;
  if (spread_ > 0 && stream.begin > rank.last_meeting) {
    spread = spread_ * static_cast<double>(stream.begin - rank.last_meeting);
  }
  const std::uint32_t sequence =
      rank.order->first_sequence[std::size_t{stream.call} * rank.order->communicators +
                                 static_cast<std::size_t>(source.communicator)] +
      rank.order->sequence[op];
  if (group.distinct.size() == 1) {
    const std::uint32_t t = new_transfer();
    Transfer& transfer = transfers_[t];
    describe(transfer, *rank.costs, op);
    const Arrival all{static_cast<double>(stream.begin), spread,
                      static_cast<std::int64_t>(group.members.size())};
    transfer.ready = spread > 0 ? expected_last({&all, 1}) : stream.begin;
    transfer.order = core_order(source.communicator, sequence);
    transfer.meets = group.members.size() > 1;
    transfer.parties.push_back({static_cast<std::int32_t>(r), static_cast<std::int32_t>(s)});
    launch(t);
    return;
  }
  const std::uint32_t m = meeting_for(static_cast<std::uint32_t>(g), sequence, source.kind);
  Meeting& meeting = meetings_[m];
  if (meeting.kind != source.kind) {
    throw InternalError(fmt::format(
        "collective {} of communicator '{}': rank {} calls {} '{}' where a partner calls {}",
        sequence, graph_.communicators[static_cast<std::size_t>(source.communicator)].name,
        rank.rank, name_of(source.kind), rank.order->program->name(source), name_of(meeting.kind)));
  }
  Member& own = meeting.members[member];
  own.here = true;
  own.arrival = stream.begin;
  own.spread = spread;
  own.stream = static_cast<std::int32_t>(s);
  own.op = op;
  ++meeting.arrived;
  switch (rank.order->role[op]) {
    case Role::kSymmetric:
      if (meeting.arrived == meeting.members.size()) {
        start_all(meeting);
      }
      break;
    case Role::kBroadcast: {
      meeting.root = group.members.at(static_cast<std::size_t>(source.peer));
      const bool root = meeting.root == static_cast<std::int32_t>(r);
      own.missing += root ? 0 : 1;
      for (std::size_t i = 0; root && i < meeting.members.size(); ++i) {
        if (i != member) {
          --meeting.members[i].missing;
          start_member(meeting, i);
        }
      }
      start_member(meeting, member);
      break;
    }
    default:
      arrive_in(meeting, member, rank.costs->needs[op]);
      break;
  }
  if (meeting.started == meeting.members.size()) {
    close(m);
  }
}

/// An all-to-all-v: `needs` is symmetric (a pair exchanges bytes or not), so the arrival of a
/// member is what each of its partners waits for. Counts may go below zero until the partner is
/// here.
void Engine::arrive_in(Meeting& meeting, std::size_t index, std::int32_t need) {
  const Group& group = costs_.folding.groups[meeting.group];
  const auto& partners = need < 0 ? group.distinct : costs_.needs[static_cast<std::size_t>(need)];
  for (const std::int32_t partner : partners) {
    const auto i = static_cast<std::size_t>(
        std::lower_bound(group.distinct.begin(), group.distinct.end(), partner) -
        group.distinct.begin());
    if (i != index) {
      ++meeting.members[index].missing;
      --meeting.members[i].missing;
      start_member(meeting, i);
    }
  }
  start_member(meeting, index);
}

std::int64_t Engine::last_of_all(Meeting& meeting) {
  if (meeting.ready_for_all == kUnknown) {
    const Group& group = costs_.folding.groups[meeting.group];
    arrivals_.clear();
    std::int64_t latest = 0;
    for (std::size_t i = 0; i < meeting.members.size(); ++i) {
      const Member& m = meeting.members[i];
      latest = std::max(latest, m.arrival);
      arrivals_.push_back({static_cast<double>(m.arrival), m.spread, group.count[i]});
    }
    meeting.ready_for_all = spread_ > 0 ? expected_last(arrivals_) : latest;
  }
  return meeting.ready_for_all;
}

/// When the last of those a member waits for is expected; all of them have arrived.
std::int64_t Engine::ready_time(Meeting& meeting, std::size_t index) {
  const Group& group = costs_.folding.groups[meeting.group];
  const Member& own = meeting.members[index];
  const OpCosts& costs = costs_.ops[static_cast<std::size_t>(group.distinct[index])];
  if (meeting.kind == OpKind::kBroadcast) {
    std::int64_t ready = own.arrival;
    for (std::size_t i = 0; i < meeting.members.size(); ++i) {
      const bool root = group.distinct[i] == meeting.root;
      ready = root && i != index ? std::max(ready, meeting.members[i].arrival) : ready;
    }
    return meeting.root == group.distinct[index] ? own.arrival : ready;
  }
  const std::int32_t need = costs.needs[own.op];
  if (need < 0) {
    return last_of_all(meeting);
  }
  const auto& partners = costs_.needs[static_cast<std::size_t>(need)];
  const bool meets_itself =
      std::binary_search(partners.begin(), partners.end(), group.distinct[index]);
  if (partners.size() + (meets_itself ? 0 : 1) == group.distinct.size()) {
    return last_of_all(meeting);
  }
  if (partners.empty()) {
    return own.arrival;
  }
  arrivals_.clear();
  std::int64_t latest = own.arrival;
  const auto add = [&](std::size_t i) {
    const Member& m = meeting.members[i];
    latest = std::max(latest, m.arrival);
    arrivals_.push_back({static_cast<double>(m.arrival), m.spread, group.count[i]});
  };
  if (!meets_itself) {
    add(index);
  }
  for (const std::int32_t partner : partners) {
    add(static_cast<std::size_t>(
        std::lower_bound(group.distinct.begin(), group.distinct.end(), partner) -
        group.distinct.begin()));
  }
  return spread_ > 0 ? expected_last(arrivals_) : latest;
}

std::uint32_t Engine::meeting_for(std::uint32_t group, std::uint32_t sequence, OpKind kind) {
  for (const std::uint32_t m : open_[group]) {
    if (meetings_[m].sequence == sequence) {
      return m;
    }
  }
  std::uint32_t m = 0;
  if (free_meetings_.empty()) {
    m = static_cast<std::uint32_t>(meetings_.size());
    meetings_.emplace_back();
  } else {
    m = free_meetings_.back();
    free_meetings_.pop_back();
  }
  Meeting& meeting = meetings_[m];
  meeting.group = group;
  meeting.sequence = sequence;
  meeting.kind = kind;
  meeting.arrived = 0;
  meeting.started = 0;
  meeting.ready_for_all = kUnknown;
  meeting.members.assign(costs_.folding.groups[group].distinct.size(), Member{});
  open_[group].push_back(m);
  return m;
}

void Engine::close(std::uint32_t m) {
  auto& open = open_[meetings_[m].group];
  open.erase(std::find(open.begin(), open.end(), m));
  free_meetings_.push_back(m);
}

void Engine::start_member(Meeting& meeting, std::size_t index) {
  Member& member = meeting.members[index];
  if (!member.here || member.missing != 0) {
    return;
  }
  const std::int64_t ready = ready_time(meeting, index);
  member.missing = 1;  // never again
  ++meeting.started;
  const std::int32_t r = costs_.folding.groups[meeting.group].distinct[index];
  const std::uint32_t t = new_transfer();
  Transfer& transfer = transfers_[t];
  describe(transfer, costs_.ops[static_cast<std::size_t>(r)], member.op);
  transfer.ready = ready;
  transfer.order = core_order(costs_.folding.groups[meeting.group].communicator, meeting.sequence);
  transfer.parties.push_back({r, member.stream});
  launch(t);
}

void Engine::start_all(Meeting& meeting) {
  const Group& group = costs_.folding.groups[meeting.group];
  const std::uint32_t t = new_transfer();
  Transfer& transfer = transfers_[t];
  transfer.ready = last_of_all(meeting);
  transfer.order = core_order(group.communicator, meeting.sequence);
  std::int64_t longest = -1;
  for (std::size_t i = 0; i < meeting.members.size(); ++i) {
    const Member& member = meeting.members[i];
    const OpCosts& costs = costs_.ops[static_cast<std::size_t>(group.distinct[i])];
    if (costs.ticks[member.op] > longest) {
      longest = costs.ticks[member.op];
      describe(transfer, costs, member.op);
    }
    transfer.parties.push_back({group.distinct[i], member.stream});
  }
  meeting.started = meeting.arrived;
  launch(t);
}

std::int32_t Engine::peer_of(const Rank& rank, const Op& op) const {
  const auto r = static_cast<std::int32_t>(&rank - ranks_.data());
  const std::int32_t g = costs_.folding.group(r, op.communicator);
  STEPCAST_CHECK(g >= 0, "rank {} is in no group of communicator {}", rank.rank, op.communicator);
  const auto& members = costs_.folding.groups[static_cast<std::size_t>(g)].members;
  STEPCAST_CHECK(op.peer >= 0 && static_cast<std::size_t>(op.peer) < members.size(),
                 "'{}' of rank {} names peer {} of {}", rank.order->program->name(op), rank.rank,
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
  const Op& source = rank.order->program->ops[op];
  const std::int32_t microbatch = rank.order->program->calls[stream.call].microbatch;
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
      describe(transfer, *receiver.costs, receiver.order->list[receiver.streams[waiting].at]);
      transfer.ready = std::max(posted, begun);
      transfer.order = core_order(source.communicator, microbatch, source.shape[1]);
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
  const Op& source = rank.order->program->ops[op];
  const std::int32_t microbatch = rank.order->program->calls[stream.call].microbatch;
  const std::int32_t sender = peer_of(rank, source);
  Channel& c = channel(source.communicator, sender, static_cast<std::int32_t>(r));
  for (std::size_t i = c.first_send; i < c.sends.size(); ++i) {
    if (c.sends[i].tag == source.shape[1] && c.sends[i].microbatch == microbatch) {
      const std::uint32_t t = new_transfer();
      Transfer& transfer = transfers_[t];
      describe(transfer, *rank.costs, op);
      transfer.ready = std::max(c.sends[i].time, stream.begin);
      transfer.order = core_order(source.communicator, microbatch, source.shape[1]);
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
      const std::uint32_t o = rank.order->list[stream.at];
      const Op& op = rank.order->program->ops[o];
      text += fmt::format(" rank {}, stream '{}': {} '{}' (call {}, microbatch {})", rank.rank,
                          rank.order->program->streams[op.stream], name_of(op.kind),
                          rank.order->program->name(op), stream.call,
                          rank.order->program->calls[stream.call].microbatch);
      if (stream.state == State::kOnRecord) {
        text += " waits for an event that is never recorded;";
      } else if (rank.order->role[o] == Role::kReceive) {
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
