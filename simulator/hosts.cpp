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
  const IssueOrder& order = *rank.order;
  const Program& program = *order.program;
  const auto depth = static_cast<std::uint64_t>(costs_.queue_depth);
  std::int64_t burst = rank.host_issued == 0 ? rank.host_time - costs_.step : rank.host_time;
  for (; rank.host_call < program.calls.size(); ++rank.host_call, rank.host_op = 0) {
    const Segment& segment = program.segments[program.calls[rank.host_call].segment];
    for (; rank.host_op < segment.op_count; ++rank.host_op) {
      const std::uint32_t op = segment.first_op + rank.host_op;
      if ((program.ops[op].flags & op_flags::kHostWaits) != 0 && !host_may_issue(rank, op, burst)) {
        return;
      }
      const std::uint8_t s = order.stream[op];
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

void Engine::grant_core(std::uint32_t r) {
  Rank& rank = ranks_[r];
  if (rank.core_busy) {
    return;
  }
  std::int64_t next = kNever;  // when there will be something to do
  if (rank.host_issued < rank.order->ops && rank.host_block < 0 && rank.host_record < 0) {
    const std::uint64_t before = rank.host_issued;
    if (now_ > rank.host_time) {
      emit_host(rank, rank.host_idle, rank.host_time, now_);
      rank.host_time = now_;
    }
    run_host(rank);
    if (rank.host_issued > before) {
      rank.core_busy = true;
      queue_.schedule(core_source(r), rank.host_time);
      enlist(r);
      return;
    }
    next = rank.host_block < 0 && rank.host_record < 0 ? rank.host_room : kNever;
  }
  const auto first = std::min_element(
      rank.core_tasks.begin(), rank.core_tasks.end(), [](const CoreTask& a, const CoreTask& b) {
        return a.ready != b.ready ? a.ready < b.ready : a.order < b.order;
      });
  if (first == rank.core_tasks.end() || first->ready > now_) {
    next = first == rank.core_tasks.end() ? next : std::min(next, first->ready);
    if (next != kNever) {
      queue_.schedule(core_source(r), next);  // the core stays free until then
    }
    return;
  }
  const CoreTask task = *first;
  queue_.cancel(core_source(r));
  rank.core_tasks.erase(first);
  rank.core_busy = true;
  if (task.stream >= 0) {
    start_running(r, static_cast<std::uint32_t>(task.stream), now_ + costs_.dispatch);
    return;
  }
  Transfer& transfer = transfers_[task.transfer];
  if (++transfer.granted == transfer.parties.size()) {
    transfer.place = Transfer::Place::kOnCore;
    queue_.schedule(first_transfer_ + task.transfer, now_ + transfer.duration);
  }
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
