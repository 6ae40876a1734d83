#include "simulator/engine.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.h"
#include "simulator/random.h"

namespace stepcast::simulator {
namespace {

constexpr std::uint64_t kCommon = 1ULL << 40;  // above every rank: draws shared by all ranks

}  // namespace

SimulationResult Engine::run() {
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    if (observer_ != nullptr) {
      observer_->on_step_begin(ranks_[r].rank, options_.step, SimTime{0});
    }
    enlist(r);
  }
  while (true) {
    while (work_first_ < work_.size()) {
      drive(work_[work_first_++]);
    }
    work_.clear();
    work_first_ = 0;
    // Cores are granted, and links shared out, when all that happens now is known.
    if (!grants_.empty() && (queue_.empty() || queue_.top().time > now_)) {
      for (const std::uint32_t core : grants_) {
        cores_[core].listed = false;
        grant_core(core);
      }
      grants_.clear();
      continue;
    }
    if (network_.dirty() && (queue_.empty() || queue_.top().time > now_)) {
      network_.settle(now_);
      if (network_.idle()) {
        queue_.cancel(network_source_);
      } else {
        queue_.schedule(network_source_, network_.next_end());
      }
    }
    if (queue_.empty()) {
      break;
    }
    const EventQueue::Event event = queue_.pop();
    now_ = event.time;
    handle(event);
  }
  SimulationResult result;
  finish_ranks(result);
  return result;
}

void Engine::handle(const EventQueue::Event& event) {
  if (event.source < first_core_) {
    const std::uint32_t r = source_rank_[event.source];
    const std::uint32_t s = event.source - first_source_[r];
    const Stream& stream = ranks_[r].streams[s];
    ranks_[r].compute += event.time - stream.begin;
    cores_[ranks_[r].core].busy = false;
    finish_op(r, s, event.time);
    wake(r, s);
  } else if (event.source < network_source_) {
    release_core(event.source - first_core_);
  } else if (event.source == network_source_) {
    network_.settle(event.time);  // a start at this very time may have changed what ends now
    if (network_.next_end() > event.time) {
      queue_.schedule(network_source_, network_.next_end());
      return;
    }
    const std::uint32_t t = network_.finish_next();
    if (!network_.dirty() && !network_.idle()) {
      queue_.schedule(network_source_, network_.next_end());
    }
    set_in_flight(transfers_[t], -1);
    complete(t, event.time);
  } else {
    const std::uint32_t t = event.source - first_transfer_;
    Transfer& transfer = transfers_[t];
    if (transfer.place == Transfer::Place::kScheduled) {
      fly(t);
      return;
    }
    for (const Party& party : transfer.parties) {
      release_core(ranks_[static_cast<std::size_t>(party.rank)].core);
    }
    complete(t, event.time);
  }
}

void Engine::enlist(std::uint32_t rank) {
  if (!ranks_[rank].listed) {
    ranks_[rank].listed = true;
    work_.push_back(rank);
  }
}

void Engine::wake(std::uint32_t rank, std::uint32_t stream) {
  ranks_[rank].streams[stream].state = State::kReady;
  ranks_[rank].runnable |= 1ULL << stream;
  enlist(rank);
}

void Engine::drive(std::uint32_t r) {
  Rank& rank = ranks_[r];
  while (true) {
    if (rank.host_ready && !core_) {
      rank.host_ready = false;
      run_host(rank);
    } else if (rank.runnable != 0) {
      const auto s = static_cast<std::uint32_t>(std::countr_zero(rank.runnable));
      rank.runnable &= rank.runnable - 1;
      advance(r, s);
    } else {
      break;
    }
  }
  rank.listed = false;
  if (core_ && !cores_[rank.core].busy && !cores_[rank.core].listed) {
    cores_[rank.core].listed = true;
    grants_.push_back(rank.core);
  }
}

void Engine::seek(const Rank& rank, Stream& stream, std::uint32_t stream_index) {
  const ExecutionOrder& order = *rank.order;
  while (stream.at == stream.at_end) {
    ++stream.call;
    const ExecutionOrder::Row row = order.row(stream.call, stream_index);
    stream.at = row.first;
    stream.at_end = row.last;
  }
}

std::int64_t Engine::issue_time(const Rank& rank, const Stream& stream, std::uint32_t op) const {
  return costs_.step +
         static_cast<std::int64_t>(rank.order->number(stream.call, op) + 1) * costs_.issue;
}

std::int64_t Engine::unknown_record(const Rank& rank, std::uint32_t call, std::uint32_t op,
                                    std::int64_t& time) const {
  const ExecutionOrder& order = *rank.order;
  for (const ExecutionOrder::Wait wait : order.waits(op)) {
    const std::int32_t record = order.awaited(call, wait);
    if (record < 0) {
      continue;  // the step before has ended
    }
    const std::int64_t recorded = rank.record_time[static_cast<std::size_t>(record)];
    if (recorded == kUnknown) {
      return record;
    }
    time = std::max(time, recorded);
  }
  return -1;
}

void Engine::advance(std::uint32_t r, std::uint32_t s) {
  Rank& rank = ranks_[r];
  Stream& stream = rank.streams[s];
  const ExecutionOrder& order = *rank.order;
  while (true) {
    if (stream.next == stream.total) {
      stream.state = State::kDone;
      return;
    }
    if (stream.next == stream.issued) {
      stream.state = State::kUnissued;
      return;
    }
    seek(rank, stream, s);
    if (rank.ahead && !jitter_ && order.plain_from(stream.at) > 0) {
      run_plain(rank, stream, s);
      continue;
    }
    const std::uint32_t op = order.entries()[stream.at];
    stream.issued_at = rank.unbounded ? issue_time(rank, stream, op) : stream.ring[stream.end_slot];
    std::int64_t time = std::max(stream.free, stream.issued_at + latency_of(rank, op));
    const std::int64_t unknown = unknown_record(rank, stream.call, op, time);
    if (unknown >= 0) {
      stream.state = State::kOnRecord;
      stream.record = static_cast<std::uint32_t>(unknown);
      return;
    }
    switch (order.role(op)) {
      case OpRole::kCompute:
        start_compute(r, s, time, op);
        break;
      case OpRole::kSend:
        stream.begin = time + costs_.dispatch;
        stream.ready = stream.begin;
        post_send(r, s, op);
        break;
      case OpRole::kReceive:
        stream.begin = time + costs_.dispatch;
        stream.state = State::kInCollective;
        post_receive(r, s, op);
        return;
      default:
        stream.begin = time + costs_.dispatch;
        if (!rank.alone.empty() && rank.alone[op] != 0) {
          meet_equals(rank, r, s, op);
          break;
        }
        stream.state = State::kInCollective;
        arrive(r, s, op);
        return;
    }
    if (stream.state != State::kReady) {
      return;
    }
  }
}

void Engine::run_plain(Rank& rank, Stream& stream, std::uint32_t stream_index) {
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
      const std::int64_t begin = std::max(free, issued + latency_of(rank, list[i])) + dispatch;
      free = begin + ticks[list[i]];
      ring[slot] = free;
      slot = slot + 1 == stream.capacity ? 0 : slot + 1;
      if (observer_ != nullptr) {
        emit(rank, stream, list[i], issued, begin, begin, free);
      }
    }
    stream.end_slot = slot;
    if (rank.host_block == static_cast<std::int32_t>(stream_index)) {
      rank.host_block = -1;
      rank.host_ready = true;
    }
  }
  rank.compute += sum - static_cast<std::int64_t>(count) * dispatch;
  stream.free = free;
  stream.next += count;
  stream.at += count;
}

std::int64_t Engine::jittered(const Rank& rank, const Stream& stream, std::uint32_t op) const {
  const std::uint64_t number = rank.order->number(stream.call, op);
  const Jitter& j = options_.jitter;
  const double z =
      std::sqrt(j.rho) * normal_at(j.seed, number, kCommon) +
      std::sqrt(1 - j.rho) * normal_at(j.seed, number, static_cast<std::uint64_t>(rank.rank));
  return std::llround(static_cast<double>(rank.costs->ticks[op]) * std::max(0.0, 1 + j.sigma * z));
}

void Engine::start_compute(std::uint32_t r, std::uint32_t s, std::int64_t time, std::uint32_t op) {
  Rank& rank = ranks_[r];
  Stream& stream = rank.streams[s];
  stream.work = jitter_ ? jittered(rank, stream, op) : rank.costs->ticks[op];
  if (core_) {
    stream.state = State::kOnCore;
    rank.core_tasks.push_back(
        {.ready = time, .order = s, .stream = static_cast<std::int32_t>(s), .transfer = 0});
  } else if (rank.ahead) {
    stream.begin = time + costs_.dispatch;
    stream.ready = stream.begin;
    rank.compute += stream.work;
    finish_op(r, s, stream.begin + stream.work);
  } else {
    start_running(r, s, time + costs_.dispatch);
  }
}

void Engine::start_running(std::uint32_t r, std::uint32_t s, std::int64_t begin) {
  Rank& rank = ranks_[r];
  Stream& stream = rank.streams[s];
  stream.state = State::kRunning;
  stream.begin = begin;
  stream.ready = begin;
  stream.mark = begin;
  stream.remaining = static_cast<double>(stream.work);
  stream.slowed = rank.in_flight > 0 && costs_.slowdown > 1;
  stream.end =
      begin + (stream.slowed ? std::llround(stream.remaining * costs_.slowdown) : stream.work);
  queue_.schedule(stream_source(r, s), stream.end);
}

void Engine::rerate(std::uint32_t r) {
  Rank& rank = ranks_[r];
  const bool slowed = rank.in_flight > 0;
  for (std::uint32_t s = 0; s < rank.streams.size(); ++s) {
    Stream& stream = rank.streams[s];
    if (stream.state != State::kRunning || stream.slowed == slowed) {
      continue;
    }
    if (now_ > stream.mark) {
      const double passed = static_cast<double>(now_ - stream.mark);
      stream.remaining =
          std::max(0.0, stream.remaining - (stream.slowed ? passed / costs_.slowdown : passed));
      stream.mark = now_;
    }
    stream.slowed = slowed;
    stream.end = stream.mark + std::llround(stream.remaining * (slowed ? costs_.slowdown : 1.0));
    queue_.schedule(stream_source(r, s), stream.end);
  }
}

void Engine::finish_op(std::uint32_t r, std::uint32_t s, std::int64_t end) {
  Rank& rank = ranks_[r];
  Stream& stream = rank.streams[s];
  const std::uint32_t op = rank.order->entries()[stream.at];
  if (observer_ != nullptr) {
    emit(rank, stream, op, stream.issued_at, stream.begin, stream.ready, end);
  }
  stream.free = end;
  leave_queue(rank, stream, s, end);
  if (const std::int32_t made = rank.order->record(stream.call, op); made >= 0) {
    const auto record = static_cast<std::uint32_t>(made);
    rank.record_time[record] = end;
    if (rank.host_record == record) {
      rank.host_record = -1;
      rank.host_ready = true;
      enlist(r);
    }
    for (std::uint32_t i = 0; i < rank.streams.size(); ++i) {
      if (rank.streams[i].state == State::kOnRecord && rank.streams[i].record == record) {
        wake(r, i);
      }
    }
  }
  ++stream.next;
  ++stream.at;
  stream.state = State::kReady;
}

void Engine::emit(const Rank& rank, const Stream& stream, std::uint32_t op, std::int64_t issued,
                  std::int64_t begin, std::int64_t ready, std::int64_t end) {
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

void Engine::emit_host(const Rank& rank, HostSpan::Kind kind, std::int64_t begin,
                       std::int64_t end) {
  if (observer_ != nullptr && end > begin) {
    observer_->on_host({rank.rank, options_.step, kind, SimTime{begin}, SimTime{end}});
  }
}

void Engine::finish_ranks(SimulationResult& result) {
  bool drained = true;
  for (const Rank& rank : ranks_) {
    for (const Stream& stream : rank.streams) {
      drained = drained && stream.next == stream.total;
    }
  }
  if (!drained) {
    throw InternalError(stuck());
  }
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    std::int64_t end = rank.host_time;
    for (const Stream& stream : rank.streams) {
      end = std::max(end, stream.free);
    }
    if (rank.unbounded) {
      emit_host(rank, HostSpan::Kind::kIssue, 0, rank.host_time);
    }
    emit_host(rank, HostSpan::Kind::kSynchronize, rank.host_time, end);
    end += costs_.finish;
    if (observer_ != nullptr) {
      observer_->on_step_end(rank.rank, options_.step, SimTime{end});
    }
    result.ops += rank.order->ops();
    result.ranks.push_back({.rank = rank.rank,
                            .ranks = costs_.folding.instances[i].ranks,
                            .host_end = SimTime{rank.host_time},
                            .end = SimTime{end},
                            .compute = SimTime{rank.compute},
                            .wait = SimTime{rank.wait},
                            .transfer = SimTime{rank.transfer}});
    const RankSummary& best = result.ranks[result.critical];
    const RankSummary& own = result.ranks.back();
    if (own.end > best.end || (own.end == best.end && own.wait < best.wait)) {
      result.critical = i;
    }
    result.makespan = std::max(result.makespan, own.end);
  }
}

SimulationResult simulate(const ExecutionGraph& graph, const StepCosts& costs,
                          const SimulationOptions& options, Observer* observer) {
  return Engine(graph, costs, options, observer).run();
}

}  // namespace stepcast::simulator
