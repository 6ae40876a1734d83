// The engine's part in which the members of a collective wait for each other.
#include <algorithm>

#include "core/error.h"
#include "simulator/engine.h"

namespace stepcast::simulator {

/// A collective of ranks that this one stands for, on links that nothing else uses.
void Engine::meet_equals(Rank& rank, std::uint32_t r, std::uint32_t s, std::uint32_t op) {
  Stream& stream = rank.streams[s];
  const std::int32_t g =
      costs_.folding.group(static_cast<std::int32_t>(r), rank.order->program().ops[op].communicator);
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
  const Op& source = rank.order->program().ops[op];
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
  const std::uint32_t sequence = rank.order->sequence(stream.call, op);
  if (group.distinct.size() == 1) {
    const std::uint32_t t = new_transfer();
    Transfer& transfer = transfers_[t];
    describe(transfer, *rank.costs, op);
    const Arrival all{static_cast<double>(stream.begin), spread,
                      static_cast<std::int64_t>(group.members.size())};
    transfer.ready = spread > 0 ? expected_last({&all, 1}) : stream.begin;
    transfer.order = collective_order(source.communicator, sequence);
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
        rank.rank, name_of(source.kind), rank.order->program().name(source), name_of(meeting.kind)));
  }
  Member& own = meeting.members[member];
  own.here = true;
  own.arrival = stream.begin;
  own.spread = spread;
  own.stream = static_cast<std::int32_t>(s);
  own.op = op;
  ++meeting.arrived;
  switch (rank.order->role(op)) {
    case OpRole::kSymmetric:
      if (meeting.arrived == meeting.members.size()) {
        start_all(meeting);
      }
      break;
    case OpRole::kBroadcast: {
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
  transfer.order =
      collective_order(costs_.folding.groups[meeting.group].communicator, meeting.sequence);
  transfer.parties.push_back({r, member.stream});
  launch(t);
}

void Engine::start_all(Meeting& meeting) {
  const Group& group = costs_.folding.groups[meeting.group];
  const std::uint32_t t = new_transfer();
  Transfer& transfer = transfers_[t];
  transfer.ready = last_of_all(meeting);
  transfer.order = collective_order(group.communicator, meeting.sequence);
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

}  // namespace stepcast::simulator
