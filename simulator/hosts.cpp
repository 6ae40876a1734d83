// The engine's host threads: issuing, full queues, and the core they may share with their streams.
#include <algorithm>

#include "simulator/engine.h"

namespace stepcast::simulator {

/// Waits of a synchronising call: true once their time is known, and the host thread there.
bool Engine::host_may_issue(Rank& rank, std::uint32_t op, std::int64_t& burst) {
  std::int64_t time = rank.host_time;
  rank.host_record = unknown_record(rank, rank.host_call, op, time);
  if (rank.host_record >= 0) {
    rank.host_idle = HostSpan::Kind::kSynchronize;
    emit_host(rank, HostSpan::Kind::kIssue, burst, rank.host_time);
    return false;
  }
  if (time > rank.host_time) {
    emit_host(rank, HostSpan::Kind::kIssue, burst, rank.host_time);
    emit_host(rank, HostSpan::Kind::kSynchronize, rank.host_time, time);
    rank.host_time = burst = time;
  }
  return true;
}

void Engine::run_host(Rank& rank) {
  const ExecutionOrder& order = *rank.order;
  const Program& program = order.program();
  const auto depth = static_cast<std::uint64_t>(costs_.queue_depth);
  std::int64_t burst = rank.host_issued == 0 ? rank.host_time - costs_.step : rank.host_time;
  for (; rank.host_call < program.calls.size(); ++rank.host_call, rank.host_op = 0) {
    const Segment& segment = program.segments[program.calls[rank.host_call].segment];
    for (; rank.host_op < segment.op_count; ++rank.host_op) {
      const std::uint32_t op = segment.first_op + rank.host_op;
      if ((program.ops[op].flags & op_flags::kHostWaits) != 0 && !host_may_issue(rank, op, burst)) {
        return;
      }
      const std::uint8_t s = order.stream(op);
      Stream& stream = rank.streams[s];
      if (stream.issued >= depth) {
        if (stream.next + depth <= stream.issued) {
          rank.host_block = s;
          rank.host_idle = HostSpan::Kind::kQueueFull;
          emit_host(rank, HostSpan::Kind::kIssue, burst, rank.host_time);
          return;
        }
        const std::int64_t room = stream.ring[stream.issue_slot];
        if (room > rank.host_time && core_) {
          rank.host_room = room;  // leaves the core until then
          rank.host_idle = HostSpan::Kind::kQueueFull;
          emit_host(rank, HostSpan::Kind::kIssue, burst, rank.host_time);
          return;
        }
        if (room > rank.host_time) {
          emit_host(rank, HostSpan::Kind::kIssue, burst, rank.host_time);
          emit_host(rank, HostSpan::Kind::kQueueFull, rank.host_time, room);
          rank.host_time = room;
          burst = room;
        }
      }
      rank.host_time += rank.costs->issue.empty() ? costs_.issue : rank.costs->issue[op];
      stream.ring[stream.issue_slot] = rank.host_time;
      stream.issue_slot = stream.issue_slot + 1 == stream.capacity ? 0 : stream.issue_slot + 1;
      ++stream.issued;
      ++rank.host_issued;
      if (stream.state == State::kUnissued) {
        stream.state = State::kReady;
        rank.runnable |= 1ULL << s;
      }
    }
  }
  emit_host(rank, HostSpan::Kind::kIssue, burst, rank.host_time);
}

void Engine::release_core(std::uint32_t core) {
  cores_[core].busy = false;
  for (const std::uint32_t r : cores_[core].ranks) {
    enlist(r);
  }
}

/// The first host thread that has ops to issue takes the core; else `next` is when one may.
bool Engine::grant_host(std::uint32_t c, std::int64_t& next) {
  for (const std::uint32_t r : cores_[c].ranks) {
    Rank& rank = ranks_[r];
    if (rank.host_issued == rank.order->ops() || rank.host_block >= 0 || rank.host_record >= 0) {
      continue;
    }
    const std::uint64_t before = rank.host_issued;
    if (now_ > rank.host_time) {
      emit_host(rank, rank.host_idle, rank.host_time, now_);
      rank.host_time = now_;
    }
    run_host(rank);
    if (rank.host_issued > before) {
      cores_[c].busy = true;
      queue_.schedule(core_source(c), rank.host_time);
      enlist(r);
      return true;
    }
    if (rank.host_block < 0 && rank.host_record < 0) {
      next = std::min(next, rank.host_room);
    }
  }
  return false;
}

/// All members of a transfer on one core take part in it together.
void Engine::grant_transfer(Core& core, std::uint32_t t) {
  Transfer& transfer = transfers_[t];
  for (const std::uint32_t r : core.ranks) {
    transfer.granted += std::erase_if(
        ranks_[r].core_tasks, [t](const CoreTask& c) { return c.stream < 0 && c.transfer == t; });
  }
  if (transfer.granted == transfer.parties.size()) {
    transfer.place = Transfer::Place::kOnCore;
    queue_.schedule(first_transfer_ + t, now_ + transfer.duration);
  }
}

/// The host threads first, then what was ready first; but a rank that computes goes on until it has
/// to wait, as a thread does that nothing pre-empts.
void Engine::grant_core(std::uint32_t c) {
  Core& core = cores_[c];
  std::int64_t next = kNever;  // when there will be something to do
  if (core.busy || grant_host(c, next)) {
    return;
  }
  const CoreTask* first = nullptr;
  const CoreTask* going_on = nullptr;
  std::uint32_t first_rank = 0;
  const auto before = [](const CoreTask& a, const CoreTask* b) {
    return b == nullptr || (a.ready != b->ready ? a.ready < b->ready : a.order < b->order);
  };
  for (const std::uint32_t r : core.ranks) {
    for (const CoreTask& task : ranks_[r].core_tasks) {
      if (before(task, first)) {
        first = &task;
        first_rank = r;
      }
      if (r == core.last && task.stream >= 0 && task.ready <= now_ && before(task, going_on)) {
        going_on = &task;
      }
    }
  }
  if (first == nullptr || first->ready > now_) {
    next = first == nullptr ? next : std::min(next, first->ready);
    if (next != kNever) {
      queue_.schedule(core_source(c), next);  // the core stays free until then
    }
    return;
  }
  if (going_on != nullptr && first->stream >= 0 && first_rank != core.last) {
    first = going_on;
    first_rank = core.last;
  }
  const CoreTask task = *first;
  queue_.cancel(core_source(c));
  core.busy = true;
  core.last = first_rank;
  if (task.stream < 0) {
    grant_transfer(core, task.transfer);
    return;
  }
  auto& tasks = ranks_[first_rank].core_tasks;
  tasks.erase(tasks.begin() + (first - tasks.data()));
  start_running(first_rank, static_cast<std::uint32_t>(task.stream), now_ + costs_.dispatch);
}

void Engine::leave_queue(Rank& rank, Stream& stream, std::uint32_t stream_index, std::int64_t end) {
  if (rank.unbounded) {
    return;
  }
  stream.ring[stream.end_slot] = end;
  stream.end_slot = stream.end_slot + 1 == stream.capacity ? 0 : stream.end_slot + 1;
  if (rank.host_block == static_cast<std::int32_t>(stream_index)) {
    rank.host_block = -1;
    rank.host_ready = true;
  }
}

}  // namespace stepcast::simulator
