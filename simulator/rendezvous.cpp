#include "simulator/rendezvous.h"

#include <cmath>

#include "core/access/row_order.h"
#include "core/error.h"

namespace stepcast::simulator {
namespace {

/// Transfer::order of a collective.
std::uint64_t collective_order(std::int32_t communicator, std::uint32_t sequence) {
  return 64 + (static_cast<std::uint64_t>(communicator) << 33) + sequence;
}
/// For a message: after the collectives of its communicator.
std::uint64_t message_order(std::int32_t communicator, std::int32_t microbatch, std::int64_t tag) {
  return collective_order(communicator, 0) + (1ULL << 32) +
         ((static_cast<std::uint64_t>(microbatch) << 12) ^
          (static_cast<std::uint64_t>(tag) & 0xfff));
}

/// Index of an instance among the distinct ones of its group.
std::size_t index_in(const Group& group, std::int32_t instance) {
  return static_cast<std::size_t>(
      std::lower_bound(group.distinct.begin(), group.distinct.end(), instance) -
      group.distinct.begin());
}

}  // namespace

Rendezvous::Rendezvous(const ExecutionGraph& graph, const StepCosts& costs,
                       std::span<const RankState> ranks, Links& links)
    : graph_(graph),
      costs_(costs),
      ranks_(ranks),
      links_(links),
      spread_(costs.straggler.log_sigma * std::sqrt(std::max(0.0, 1 - costs.straggler.rho))),
      last_end_(ranks.size(), 0),
      sends_(ranks.size()),
      open_(costs.folding.groups.size()) {
  member_.reserve(ranks.size() * static_cast<std::size_t>(costs.folding.communicators));
  for (std::uint32_t r = 0; r < ranks.size(); ++r) {
    for (std::int32_t c = 0; c < costs.folding.communicators; ++c) {
      const std::int32_t g = group_of(r, c);
      member_.push_back(g < 0 ? -1
                              : static_cast<std::int32_t>(
                                    index_in(costs.folding.groups[static_cast<std::size_t>(g)],
                                             static_cast<std::int32_t>(r))));
    }
  }
}

/// How far apart the ranks that one stands for have come since they last met.
double Rendezvous::spread_at(const Attendance& at) const {
  return spread_ > 0 && at.time > last_end_[at.rank]
             ? spread_ * static_cast<double>(at.time - last_end_[at.rank])
             : 0;
}

std::int64_t Rendezvous::ready_among_equals(const Attendance& at) {
  const auto g = static_cast<std::size_t>(group_of(at.rank, op_of(at).communicator));
  const auto members = static_cast<std::int64_t>(costs_.folding.groups[g].members.size());
  std::int64_t ready = at.time;
  if (const double spread = spread_at(at); spread > 0) {
    const Arrival all{static_cast<double>(at.time), spread, members};
    ready = expected_last({&all, 1});
  }
  if (members > 1) {
    note_end(at.rank, ready + ranks_[at.rank].costs->ticks[at.op]);
  }
  return ready;
}

void Rendezvous::reach(const Attendance& at) {
  const RankState& rank = ranks_[at.rank];
  const Op& op = op_of(at);
  const std::int32_t g = group_of(at.rank, op.communicator);
  STEPCAST_CHECK(g >= 0, "rank {} is in no group of communicator '{}'", rank.rank,
                 graph_.communicators[static_cast<std::size_t>(op.communicator)].name);
  const Group& group = costs_.folding.groups[static_cast<std::size_t>(g)];
  const std::uint32_t sequence = rank.order->sequence(at.call, at.op);
  if (group.distinct.size() == 1) {
    reach_alone(at, group, sequence);
    return;
  }
  const std::uint32_t m = meeting_for(static_cast<std::uint32_t>(g), sequence, op.kind);
  Meeting& meeting = meetings_[m];
  if (meeting.kind != op.kind) {
    throw InternalError(fmt::format(
        "collective {} of communicator '{}': rank {} calls {} '{}' where a partner calls {}",
        sequence, graph_.communicators[static_cast<std::size_t>(op.communicator)].name, rank.rank,
        name_of(op.kind), rank.order->program().name(op), name_of(meeting.kind)));
  }
  const auto member = static_cast<std::size_t>(
      member_[at.rank * static_cast<std::size_t>(costs_.folding.communicators) +
              static_cast<std::size_t>(op.communicator)]);
  Member& own = meeting.members[member];
  own.here = true;
  own.arrival = at.time;
  own.spread = spread_at(at);
  own.stream = static_cast<std::int32_t>(at.stream);
  own.op = at.op;
  ++meeting.arrived;
  switch (rank.order->role(at.op)) {
    case OpRole::kSymmetric:
      if (meeting.arrived == meeting.members.size()) {
        start_all(meeting);
      }
      break;
    case OpRole::kBroadcast:
      meeting.root = group.members.at(static_cast<std::size_t>(op.peer));
      reach_root(meeting, member, meeting.root == static_cast<std::int32_t>(at.rank));
      break;
    default:
      reach_partners(meeting, member, rank.costs->needs[at.op]);
      break;
  }
  if (meeting.started == meeting.members.size()) {
    close(m);
  }
}

/// A collective of ranks that this one stands for.
void Rendezvous::reach_alone(const Attendance& at, const Group& group, std::uint32_t sequence) {
  const std::uint32_t t = links_.create(*ranks_[at.rank].costs, at.op);
  Transfer& transfer = links_[t];
  const double spread = spread_at(at);
  const Arrival all{static_cast<double>(at.time), spread,
                    static_cast<std::int64_t>(group.members.size())};
  transfer.ready = spread > 0 ? expected_last({&all, 1}) : at.time;
  transfer.order = collective_order(group.communicator, sequence);
  transfer.meets = group.members.size() > 1;
  transfer.parties.push_back(
      {static_cast<std::int32_t>(at.rank), static_cast<std::int32_t>(at.stream)});
  links_.launch(t);
}

/// A broadcast: members wait for the root only.
void Rendezvous::reach_root(Meeting& meeting, std::size_t index, bool root) {
  meeting.members[index].missing += root ? 0 : 1;
  for (std::size_t i = 0; root && i < meeting.members.size(); ++i) {
    if (i != index) {
      --meeting.members[i].missing;
      start_member(meeting, i);
    }
  }
  start_member(meeting, index);
}

/// An all-to-all-v: `needs` is symmetric (a pair exchanges bytes or not), so the arrival of a
/// member is what each of its partners waits for. Counts may go below zero until the partner is
/// here.
void Rendezvous::reach_partners(Meeting& meeting, std::size_t index, std::int32_t need) {
  const Group& group = costs_.folding.groups[meeting.group];
  const auto& partners = need < 0 ? group.distinct : costs_.needs[static_cast<std::size_t>(need)];
  for (const std::int32_t partner : partners) {
    const std::size_t i = index_in(group, partner);
    if (i != index) {
      ++meeting.members[index].missing;
      --meeting.members[i].missing;
      start_member(meeting, i);
    }
  }
  start_member(meeting, index);
}

std::int64_t Rendezvous::last_of_all(Meeting& meeting) {
  if (meeting.ready_for_all == kUnknownTime) {
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
std::int64_t Rendezvous::ready_time(Meeting& meeting, std::size_t index) {
  const Group& group = costs_.folding.groups[meeting.group];
  const Member& own = meeting.members[index];
  const OpCosts& costs = costs_.ops[static_cast<std::size_t>(group.distinct[index])];
  if (meeting.kind == OpKind::kBroadcast) {
    return meeting.root == group.distinct[index]
               ? own.arrival
               : std::max(own.arrival, meeting.members[index_in(group, meeting.root)].arrival);
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
    add(index_in(group, partner));
  }
  return spread_ > 0 ? expected_last(arrivals_) : latest;
}

std::uint32_t Rendezvous::meeting_for(std::uint32_t group, std::uint32_t sequence, OpKind kind) {
  for (const std::uint32_t m : open_[group]) {
    if (meetings_[m].sequence == sequence) {
      return m;
    }
  }
  std::uint32_t m = 0;
  if (free_.empty()) {
    m = static_cast<std::uint32_t>(meetings_.size());
    meetings_.emplace_back();
  } else {
    m = free_.back();
    free_.pop_back();
  }
  Meeting& meeting = meetings_[m];
  meeting.group = group;
  meeting.sequence = sequence;
  meeting.kind = kind;
  meeting.arrived = 0;
  meeting.started = 0;
  meeting.ready_for_all = kUnknownTime;
  meeting.members.assign(costs_.folding.groups[group].distinct.size(), Member{});
  open_[group].push_back(m);
  return m;
}

void Rendezvous::close(std::uint32_t m) {
  auto& open = open_[meetings_[m].group];
  open.erase(std::find(open.begin(), open.end(), m));
  free_.push_back(m);
}

void Rendezvous::start_member(Meeting& meeting, std::size_t index) {
  Member& member = meeting.members[index];
  if (!member.here || member.missing != 0) {
    return;
  }
  const std::int64_t ready = ready_time(meeting, index);
  member.missing = 1;  // never again
  ++meeting.started;
  const Group& group = costs_.folding.groups[meeting.group];
  const std::int32_t r = group.distinct[index];
  const std::uint32_t t = links_.create(costs_.ops[static_cast<std::size_t>(r)], member.op);
  Transfer& transfer = links_[t];
  transfer.ready = ready;
  transfer.order = collective_order(group.communicator, meeting.sequence);
  transfer.parties.push_back({r, member.stream});
  links_.launch(t);
}

/// All members end together, with the longest of their costs.
void Rendezvous::start_all(Meeting& meeting) {
  const Group& group = costs_.folding.groups[meeting.group];
  const auto costs_of = [&](std::size_t i) -> const OpCosts& {
    return costs_.ops[static_cast<std::size_t>(group.distinct[i])];
  };
  std::size_t longest = 0;
  for (std::size_t i = 1; i < meeting.members.size(); ++i) {
    if (costs_of(i).ticks[meeting.members[i].op] >
        costs_of(longest).ticks[meeting.members[longest].op]) {
      longest = i;
    }
  }
  const std::uint32_t t = links_.create(costs_of(longest), meeting.members[longest].op);
  Transfer& transfer = links_[t];
  transfer.ready = last_of_all(meeting);
  transfer.order = collective_order(group.communicator, meeting.sequence);
  for (std::size_t i = 0; i < meeting.members.size(); ++i) {
    transfer.parties.push_back({group.distinct[i], meeting.members[i].stream});
  }
  meeting.started = meeting.arrived;
  links_.launch(t);
}

std::int32_t Rendezvous::peer_of(std::uint32_t r, const Op& op) const {
  const RankState& rank = ranks_[r];
  const std::int32_t g = group_of(r, op.communicator);
  STEPCAST_CHECK(g >= 0, "rank {} is in no group of communicator {}", rank.rank, op.communicator);
  const auto& members = costs_.folding.groups[static_cast<std::size_t>(g)].members;
  STEPCAST_CHECK(op.peer >= 0 && static_cast<std::size_t>(op.peer) < members.size(),
                 "'{}' of rank {} names peer {} of {}", rank.order->program().name(op), rank.rank,
                 op.peer, members.size());
  return members[static_cast<std::size_t>(op.peer)];
}

Rendezvous::Channel& Rendezvous::channel(std::int32_t communicator, std::int32_t source,
                                         std::int32_t target) {
  auto& own = sends_[static_cast<std::size_t>(source)];
  for (const std::uint32_t c : own) {
    if (channels_[c].communicator == communicator && channels_[c].target == target) {
      return channels_[c];
    }
  }
  own.push_back(static_cast<std::uint32_t>(channels_.size()));
  channels_.push_back({.communicator = communicator,
                       .target = target,
                       .sends = {},
                       .receives = {},
                       .first_send = 0});
  return channels_.back();
}

Rendezvous::Posted Rendezvous::posted(const Attendance& at) const {
  return {.tag = op_of(at).shape[1],
          .microbatch = ranks_[at.rank].order->program().calls[at.call].microbatch,
          .stream = at.stream,
          .op = at.op,
          .time = at.time};
}

/// A message whose send and receive are posted.
void Rendezvous::send(const Posted& sent, const Posted& received, std::int32_t source,
                      const Channel& channel) {
  const auto target = static_cast<std::size_t>(channel.target);
  const std::uint32_t t = links_.create(*ranks_[target].costs, received.op);
  Transfer& transfer = links_[t];
  transfer.ready = std::max(sent.time, received.time);
  transfer.order = message_order(channel.communicator, sent.microbatch, sent.tag);
  transfer.sender = source;
  transfer.meets = false;
  transfer.parties.push_back({channel.target, static_cast<std::int32_t>(received.stream)});
  links_.launch(t);
}

void Rendezvous::post_send(const Attendance& at) {
  const Op& op = op_of(at);
  const auto source = static_cast<std::int32_t>(at.rank);
  Channel& c = channel(op.communicator, source, peer_of(at.rank, op));
  const Posted own = posted(at);
  for (std::size_t i = 0; i < c.receives.size(); ++i) {
    if (c.receives[i].tag == own.tag && c.receives[i].microbatch == own.microbatch) {
      const Posted receive = c.receives[i];
      c.receives.erase(c.receives.begin() + static_cast<std::ptrdiff_t>(i));
      send(own, receive, source, c);
      return;
    }
  }
  c.sends.push_back(own);
}

void Rendezvous::post_receive(const Attendance& at) {
  const Op& op = op_of(at);
  const std::int32_t sender = peer_of(at.rank, op);
  Channel& c = channel(op.communicator, sender, static_cast<std::int32_t>(at.rank));
  const Posted own = posted(at);
  for (std::size_t i = c.first_send; i < c.sends.size(); ++i) {
    if (c.sends[i].tag != own.tag || c.sends[i].microbatch != own.microbatch) {
      continue;
    }
    const Posted sent = c.sends[i];
    if (i != c.first_send) {
      c.sends.erase(c.sends.begin() + static_cast<std::ptrdiff_t>(i));
    } else if (++c.first_send == c.sends.size()) {
      c.sends.clear();
      c.first_send = 0;
    }
    send(sent, own, sender, c);
    return;
  }
  c.receives.push_back(own);
}

std::vector<std::int32_t> Rendezvous::missing(std::uint32_t rank, std::int32_t communicator) const {
  std::vector<std::int32_t> absent;
  const auto g = static_cast<std::size_t>(group_of(rank, communicator));
  const Group& group = costs_.folding.groups[g];
  const std::size_t own = index_in(group, static_cast<std::int32_t>(rank));
  for (const std::uint32_t m : open_[g]) {
    const auto& members = meetings_[m].members;
    for (std::size_t i = 0; members[own].here && i < members.size(); ++i) {
      if (!members[i].here) {
        absent.push_back(group.distinct[i]);
      }
    }
  }
  return absent;
}

}  // namespace stepcast::simulator
