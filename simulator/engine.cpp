#include "simulator/engine.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/access/row_order.h"
#include "core/error.h"
#include "simulator/steady_rounds.h"

namespace stepcast::simulator {

SimulationResult Engine::run() {
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    if (observer_ != nullptr) {
      observer_->on_step_begin(ranks_[r].rank, options_.step, SimTime{0});
    }
    wake_rank(r);
  }
  while (true) {
    while (work_first_ < work_.size()) {
      drive(work_[work_first_++]);
    }
    work_.clear();
    work_first_ = 0;
    // Cores are granted, and links shared out, when all that happens now is known.
    if (queue_.present_done()) {
      if (hosts_.grants_wait()) {
        hosts_.grant();
        continue;
      }
      links_.settle();
    }
    if (queue_.empty()) {
      break;
    }
    handle(queue_.pop());
  }
  SimulationResult result;
  finish_ranks(result);
  return result;
}

void Engine::handle(const EventQueue::Event& event) {
  if (event.source >= first_link_) {
    links_.handle(event);
  } else if (event.source >= first_core_) {
    hosts_.handle(event);
  } else {
    const std::uint32_t r = source_rank_[event.source];
    const std::uint32_t s = event.source - first_source_[r];
    ranks_[r].compute += event.time - ranks_[r].streams[s].begin;
    hosts_.end_compute(r);
    finish_op(r, s, event.time);
    wake(r, s);
  }
}

void Engine::drive(std::uint32_t r) {
  RankState& rank = ranks_[r];
  while (true) {
    if (rank.host_ready && !core_) {
      rank.host_ready = false;
      hosts_.issue(r);
    } else if (rank.runnable != 0) {
      const auto s = static_cast<std::uint32_t>(std::countr_zero(rank.runnable));
      rank.runnable &= rank.runnable - 1;
      advance(r, s);
    } else {
      break;
    }
  }
  rank.listed = false;
  hosts_.list_core(r);
}

void Engine::seek(const RankState& rank, StreamState& stream, std::uint32_t stream_index) {
  const ExecutionOrder& order = *rank.order;
  while (stream.at == stream.at_end) {
    ++stream.call;
    const ExecutionOrder::Row row = order.row(stream.call, stream_index);
    stream.at = row.first;
    stream.at_end = row.last;
  }
}

std::int64_t Engine::issue_time(const RankState& rank, const StreamState& stream,
                                std::uint32_t op) const {
  return costs_.step +
         static_cast<std::int64_t>(rank.order->number(stream.call, op) + 1) * costs_.issue;
}

void Engine::advance(std::uint32_t r, std::uint32_t s) {
  RankState& rank = ranks_[r];
  StreamState& stream = rank.streams[s];
  const ExecutionOrder& order = *rank.order;
  while (true) {
    if (stream.next == stream.total) {
      stream.doing = Doing::kDone;
      return;
    }
    if (stream.next == stream.issued) {
      stream.doing = Doing::kUnissued;
      return;
    }
    seek(rank, stream, s);
    if (rank.ahead && order.plain_from(stream.at) > 0) {
      run_plain(r, s);
      continue;
    }
    const std::uint32_t op = order.entries()[stream.at];
    stream.issued_at = rank.unbounded ? issue_time(rank, stream, op) : stream.ring[stream.end_slot];
    std::int64_t time = std::max(stream.free, stream.issued_at + latency_of(rank, op));
    const std::int64_t unknown = rank.unknown_record(stream.call, op, time);
    if (unknown >= 0) {
      stream.doing = Doing::kOnRecord;
      stream.record = static_cast<std::uint32_t>(unknown);
      return;
    }
    if (order.role(op) == OpRole::kCompute) {
      start_compute(r, s, time, op);
      if (stream.doing != Doing::kReady) {
        return;
      }
    } else if (!start_shared(r, s, op, time + dispatch_of(rank, op))) {
      return;
    }
  }
}

bool Engine::start_shared(std::uint32_t r, std::uint32_t s, std::uint32_t op, std::int64_t begin) {
  RankState& rank = ranks_[r];
  StreamState& stream = rank.streams[s];
  const OpRole role = rank.order->role(op);
  stream.begin = begin;
  const Attendance here{.rank = r, .stream = s, .call = stream.call, .op = op, .time = begin};
  if (role == OpRole::kSend) {
    stream.ready = begin;
    finish_op(r, s, begin);
    rendezvous_.post_send(here);
    return true;
  }
  if (!rank.alone.empty() && rank.alone[op] != 0) {
    meet_equals(here);
    return true;
  }
  stream.doing = Doing::kInCollective;
  if (role == OpRole::kReceive) {
    rendezvous_.post_receive(here);
  } else {
    rendezvous_.reach(here);
  }
  return false;
}

/// A collective of ranks that this one stands for, on links that nothing else uses.
void Engine::meet_equals(const Attendance& here) {
  RankState& rank = ranks_[here.rank];
  StreamState& stream = rank.streams[here.stream];
  stream.ready = rendezvous_.ready_among_equals(here);
  rank.wait += stream.ready - stream.begin;
  rank.transfer += rank.costs->ticks[here.op];
  finish_op(here.rank, here.stream, stream.ready + rank.costs->ticks[here.op]);
}

void Engine::run_plain(std::uint32_t r, std::uint32_t s) {
  RankState& rank = ranks_[r];
  StreamState& stream = rank.streams[s];
  const ExecutionOrder& order = *rank.order;
  const auto count = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(order.plain_from(stream.at), stream.issued - stream.next));
  const std::uint32_t* list = order.entries().data() + stream.at;
  const std::int64_t* ticks = rank.costs->ticks.data();
  const std::int64_t dispatch = costs_.dispatch;
  const std::int64_t sum = rank.prefix[stream.at + count] - rank.prefix[stream.at];
  std::int64_t free = stream.free;
  if (rank.unbounded && options_.presum && observer_ == nullptr &&
      issue_time(rank, stream, list[count - 1]) <= free) {
    free += sum;  // all issued before the first can begin: one block
  } else if (rank.unbounded) {
    std::int64_t issued = issue_time(rank, stream, list[0]);
    for (std::uint32_t i = 0; i < count; ++i) {
      issued += i == 0 ? 0 : static_cast<std::int64_t>(list[i] - list[i - 1]) * costs_.issue;
      const std::int64_t begin = std::max(free, issued) + dispatch;
      free = begin + ticks[list[i]];
      if (observer_ != nullptr) {
        emit(rank, stream, list[i], issued, begin, begin, free);
      }
    }
  } else {
    std::int64_t* ring = stream.ring;
    std::uint32_t slot = stream.end_slot;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::int64_t issued = ring[slot];
      const std::int64_t begin =
          std::max(free, issued + latency_of(rank, list[i])) + dispatch_of(rank, list[i]);
      free = begin + ticks[list[i]];
      ring[slot] = free;
      slot = slot + 1 == stream.capacity ? 0 : slot + 1;
      if (observer_ != nullptr) {
        emit(rank, stream, list[i], issued, begin, begin, free);
      }
    }
    stream.end_slot = slot;
    hosts_.make_room(r, s);
  }
  rank.compute += sum - static_cast<std::int64_t>(count) * dispatch;
  stream.free = free;
  stream.next += count;
  stream.at += count;
}

void Engine::start_compute(std::uint32_t r, std::uint32_t s, std::int64_t time, std::uint32_t op) {
  RankState& rank = ranks_[r];
  StreamState& stream = rank.streams[s];
  stream.work = rank.costs->ticks[op];
  if (core_) {
    stream.doing = Doing::kOnCore;
    hosts_.want_core(
        r, {.ready = time, .order = s, .stream = static_cast<std::int32_t>(s), .transfer = 0});
  } else if (rank.ahead) {
    stream.begin = time + dispatch_of(rank, op);
    stream.ready = stream.begin;
    rank.compute += stream.work;
    finish_op(r, s, stream.begin + stream.work);
  } else {
    begin_compute(r, s, time + dispatch_of(rank, op));
  }
}

void Engine::begin_compute(std::uint32_t r, std::uint32_t s, std::int64_t begin) {
  RankState& rank = ranks_[r];
  StreamState& stream = rank.streams[s];
  stream.doing = Doing::kRunning;
  stream.begin = begin;
  stream.ready = begin;
  stream.mark = begin;
  stream.remaining = static_cast<double>(stream.work);
  stream.slowed = links_.in_flight(r) > 0 && costs_.slowdown > 1;
  stream.end =
      begin + (stream.slowed ? std::llround(stream.remaining * costs_.slowdown) : stream.work);
  queue_.schedule(stream_source(r, s), stream.end);
}

void Engine::change_rate(std::uint32_t r) {
  RankState& rank = ranks_[r];
  const bool slowed = links_.in_flight(r) > 0;
  for (std::uint32_t s = 0; s < rank.streams.size(); ++s) {
    StreamState& stream = rank.streams[s];
    if (stream.doing != Doing::kRunning || stream.slowed == slowed) {
      continue;
    }
    if (queue_.now() > stream.mark) {
      const double passed = static_cast<double>(queue_.now() - stream.mark);
      stream.remaining =
          std::max(0.0, stream.remaining - (stream.slowed ? passed / costs_.slowdown : passed));
      stream.mark = queue_.now();
    }
    stream.slowed = slowed;
    stream.end = stream.mark + std::llround(stream.remaining * (slowed ? costs_.slowdown : 1.0));
    queue_.schedule(stream_source(r, s), stream.end);
  }
}

void Engine::finish_op(std::uint32_t r, std::uint32_t s, std::int64_t end) {
  RankState& rank = ranks_[r];
  StreamState& stream = rank.streams[s];
  const std::uint32_t op = rank.order->entries()[stream.at];
  if (observer_ != nullptr) {
    emit(rank, stream, op, stream.issued_at, stream.begin, stream.ready, end);
  }
  stream.free = end;
  if (!rank.unbounded) {
    stream.ring[stream.end_slot] = end;
    stream.end_slot = stream.end_slot + 1 == stream.capacity ? 0 : stream.end_slot + 1;
    hosts_.make_room(r, s);
  }
  if (const std::int32_t made = rank.order->record(stream.call, op); made >= 0) {
    const auto record = static_cast<std::uint32_t>(made);
    rank.record_time[record] = end;
    hosts_.note_record(r, record);
    for (std::uint32_t i = 0; i < rank.streams.size(); ++i) {
      if (rank.streams[i].doing == Doing::kOnRecord && rank.streams[i].record == record) {
        wake(r, i);
      }
    }
  }
  ++stream.next;
  ++stream.at;
  stream.doing = Doing::kReady;
}

void Engine::emit(const RankState& rank, const StreamState& stream, std::uint32_t op,
                  std::int64_t issued, std::int64_t begin, std::int64_t ready, std::int64_t end) {
  const Op& source = rank.order->program().ops[op];
  observer_->on_op({.rank = rank.rank,
                    .step = options_.step,
                    .ref = {stream.call, op},
                    .issued = SimTime{issued},
                    .begin = SimTime{begin},
                    .ready = SimTime{ready},
                    .end = SimTime{end},
                    .bytes = is_collective(source.kind) ? source.bytes_read.base() : 0});
}

void Engine::want_cores(std::uint32_t id, const Transfer& transfer) {
  for (const Transfer::Party& party : transfer.parties) {
    const auto r = static_cast<std::uint32_t>(party.rank);
    hosts_.want_core(
        r, {.ready = transfer.ready, .order = transfer.order, .stream = -1, .transfer = id});
    wake_rank(r);
  }
}

void Engine::give_cores(std::uint32_t transfer, std::size_t parties) {
  links_.take_cores(transfer, parties);
}

void Engine::end_transfer(const Transfer& transfer, std::int64_t end) {
  if (transfer.place == Transfer::Place::kOnCore) {
    for (const Transfer::Party& party : transfer.parties) {
      hosts_.release(static_cast<std::uint32_t>(party.rank));
    }
  }
  for (const Transfer::Party& party : transfer.parties) {
    const auto r = static_cast<std::uint32_t>(party.rank);
    const auto s = static_cast<std::uint32_t>(party.stream);
    RankState& rank = ranks_[r];
    StreamState& stream = rank.streams[s];
    stream.ready = transfer.ready;
    rank.wait += stream.ready - stream.begin;
    rank.transfer += end - stream.ready;
    if (transfer.meets) {
      rendezvous_.note_end(r, end);
    }
    finish_op(r, s, end);
    wake(r, s);
  }
}

void find_critical(SimulationResult& result) {
  result.critical = 0;
  for (std::size_t i = 0; i < result.ranks.size(); ++i) {
    const RankSummary& best = result.ranks[result.critical];
    const RankSummary& own = result.ranks[i];
    if (own.end > best.end || (own.end == best.end && own.wait < best.wait)) {
      result.critical = i;
    }
  }
  result.makespan = result.ranks.empty() ? SimTime{} : result.ranks[result.critical].end;
}

void Engine::finish_ranks(SimulationResult& result) {
  bool drained = true;
  for (const RankState& rank : ranks_) {
    for (const StreamState& stream : rank.streams) {
      drained = drained && stream.next == stream.total;
    }
  }
  if (!drained) {
    throw InternalError(stuck());
  }
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const RankState& rank = ranks_[i];
    const std::int64_t issued = hosts_.time(static_cast<std::uint32_t>(i));
    std::int64_t end = issued;
    for (const StreamState& stream : rank.streams) {
      end = std::max(end, stream.free);
    }
    hosts_.finish(static_cast<std::uint32_t>(i), end);
    end += costs_.finish;
    if (observer_ != nullptr) {
      observer_->on_step_end(rank.rank, options_.step, SimTime{end});
    }
    result.ops += rank.order->ops();
    result.ranks.push_back({.rank = rank.rank,
                            .ranks = costs_.folding.instances[i].ranks,
                            .host_end = SimTime{issued},
                            .end = SimTime{end},
                            .compute = SimTime{rank.compute},
                            .wait = SimTime{rank.wait},
                            .transfer = SimTime{rank.transfer}});
  }
  find_critical(result);
}

std::string Engine::stuck() const {
  std::string text = "the ranks wait for each other without end:";
  int listed = 0;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const RankState& rank = ranks_[r];
    for (const StreamState& stream : rank.streams) {
      if (stream.next == stream.total || stream.doing == Doing::kUnissued) {
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
      if (stream.doing == Doing::kOnRecord) {
        text += " waits for an event that is never recorded;";
      } else if (rank.order->role(o) == OpRole::kReceive) {
        text += fmt::format(
            " gets no matching send from rank {};",
            ranks_[static_cast<std::size_t>(rendezvous_.peer_of(static_cast<std::uint32_t>(r), op))]
                .rank);
      } else {
        text += fmt::format(" on communicator '{}' waits for",
                            graph_.communicators[static_cast<std::size_t>(op.communicator)].name);
        for (const std::int32_t absent :
             rendezvous_.missing(static_cast<std::uint32_t>(r), op.communicator)) {
          text += fmt::format(" rank {}", ranks_[static_cast<std::size_t>(absent)].rank);
        }
        text += ";";
      }
    }
  }
  return text;
}

SimulationResult simulate(const ExecutionGraph& graph, const StepCosts& costs,
                          const SimulationOptions& options, Observer* observer) {
  std::optional<SimulationResult> few;
  if (options.steady) {
    if (auto result = simulate_steady(graph, costs, options, observer, &few)) {
      return *result;
    }
  }
  const bool observed = observer == nullptr && options.otherwise && few;
  return Engine(graph, costs, options, observed ? options.otherwise(*few) : observer).run();
}

}  // namespace stepcast::simulator
