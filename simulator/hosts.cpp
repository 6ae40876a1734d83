#include "simulator/hosts.h"

#include <algorithm>
#include <limits>

#include "core/access/row_order.h"
#include "core/error.h"

namespace stepcast::simulator {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

}  // namespace

Hosts::Hosts(const StepCosts& costs, EventQueue& queue, std::uint32_t first_source,
             std::span<RankState> ranks, Client& client)
    : costs_(costs),
      queue_(queue),
      ranks_(ranks),
      client_(client),
      first_core_(first_source),
      threads_(ranks.size()) {
  STEPCAST_CHECK(costs.core_of.empty() || costs.core_of.size() == ranks.size(),
                 "cores of {} ranks for {} instances", costs.core_of.size(), ranks.size());
  for (std::uint32_t r = 0; r < threads_.size(); ++r) {
    Thread& host = threads_[r];
    host.time = costs.step;
    host.core = costs.core_of.empty() ? r : static_cast<std::uint32_t>(costs.core_of[r]);
    cores_.resize(std::max<std::size_t>(cores_.size(), host.core + 1));
    Core& core = cores_[host.core];
    core.ranks.push_back(r);
    core.last = core.ranks.front();
  }
}

void Hosts::issue_all(std::uint32_t rank) {
  Thread& host = threads_[rank];
  ranks_[rank].host_ready = false;
  host.issued = ranks_[rank].order->ops();
  host.time += static_cast<std::int64_t>(host.issued) * costs_.issue;
}

void Hosts::finish(std::uint32_t rank, std::int64_t end) {
  const std::int64_t issued = threads_[rank].time;
  if (ranks_[rank].unbounded) {
    emit(rank, HostSpan::Kind::kIssue, 0, issued);
  }
  emit(rank, HostSpan::Kind::kSynchronize, issued, end);
}

/// Waits of a synchronising call: true once their time is known, and the host thread there.
bool Hosts::may_issue(std::uint32_t r, std::uint32_t op, std::int64_t& burst) {
  Thread& host = threads_[r];
  std::int64_t time = host.time;
  host.record = ranks_[r].unknown_record(host.call, op, time);
  if (host.record >= 0) {
    host.idle = HostSpan::Kind::kSynchronize;
    emit(r, HostSpan::Kind::kIssue, burst, host.time);
    return false;
  }
  if (time > host.time) {
    emit(r, HostSpan::Kind::kIssue, burst, host.time);
    emit(r, HostSpan::Kind::kSynchronize, host.time, time);
    host.time = burst = time;
  }
  return true;
}

void Hosts::issue(std::uint32_t r) {
  Thread& host = threads_[r];
  RankState& rank = ranks_[r];
  const ExecutionOrder& order = *rank.order;
  const Program& program = order.program();
  const auto depth = static_cast<std::uint64_t>(costs_.queue_depth);
  const std::int64_t* issue = rank.costs->issue.empty() ? nullptr : rank.costs->issue.data();
  const bool waits = order.host_waits();
  const bool observed = observer_ != nullptr;
  const bool shares_core = costs_.shares_core;
  StreamState* const streams = rank.streams.data();
  const std::int64_t usual = costs_.issue;
  std::int64_t burst = host.issued == 0 ? host.time - costs_.step : host.time;
  std::int64_t time = host.time;
  const auto leave = [&](std::uint32_t place) {
    host.issued += place - host.op;
    host.op = place;
    host.time = time;
  };
  for (; host.call < program.calls.size(); ++host.call, host.op = 0) {
    const Segment& segment = program.segments[program.calls[host.call].segment];
    for (std::uint32_t place = host.op; place < segment.op_count; ++place) {
      const std::uint32_t op = segment.first_op + place;
      if (waits && (program.ops[op].flags & op_flags::kHostWaits) != 0) {
        leave(place);
        if (!may_issue(r, op, burst)) {
          return;
        }
        time = host.time;
      }
      const std::uint8_t s = order.stream(op);
      StreamState& stream = streams[s];
      if (stream.issued >= depth) {
        if (stream.next + depth <= stream.issued) {
          leave(place);
          host.block = s;
          host.idle = HostSpan::Kind::kQueueFull;
          emit(r, HostSpan::Kind::kIssue, burst, time);
          return;
        }
        if (const std::int64_t room = stream.ring[stream.issue_slot]; room > time) {
          if (observed) {
            emit(r, HostSpan::Kind::kIssue, burst, time);
          }
          if (shares_core) {
            leave(place);
            host.room = room;
            host.idle = HostSpan::Kind::kQueueFull;
            return;
          }
          if (observed) {
            emit(r, HostSpan::Kind::kQueueFull, time, room);
          }
          time = burst = room;
        }
      }
      time += issue == nullptr ? usual : issue[op];
      stream.ring[stream.issue_slot] = time;
      stream.issue_slot = stream.issue_slot + 1 == stream.capacity ? 0 : stream.issue_slot + 1;
      ++stream.issued;
      if (stream.doing == StreamState::Doing::kUnissued) {
        stream.doing = StreamState::Doing::kReady;
        rank.runnable |= 1ULL << s;
      }
    }
    leave(segment.op_count);
  }
  emit(r, HostSpan::Kind::kIssue, burst, host.time);
}

void Hosts::release_core(std::uint32_t core) {
  cores_[core].busy = false;
  for (const std::uint32_t r : cores_[core].ranks) {
    client_.wake_rank(r);
  }
}

void Hosts::grant() {
  for (const std::uint32_t core : grants_) {
    cores_[core].listed = false;
    grant_core(core);
  }
  grants_.clear();
}

/// The first host thread that has ops to issue takes the core; else `next` is when one may.
bool Hosts::grant_host(std::uint32_t c, std::int64_t& next) {
  for (const std::uint32_t r : cores_[c].ranks) {
    Thread& host = threads_[r];
    if (host.issued == ranks_[r].order->ops() || host.block >= 0 || host.record >= 0) {
      continue;
    }
    const std::uint64_t before = host.issued;
    if (queue_.now() > host.time) {
      emit(r, host.idle, host.time, queue_.now());
      host.time = queue_.now();
    }
    issue(r);
    if (host.issued > before) {
      cores_[c].busy = true;
      queue_.schedule(first_core_ + c, host.time);
      client_.wake_rank(r);
      return true;
    }
    if (host.block < 0 && host.record < 0) {
      next = std::min(next, host.room);
    }
  }
  return false;
}

/// All members of a transfer on one core take part in it together.
void Hosts::grant_transfer(const Core& core, std::uint32_t transfer) {
  std::size_t parties = 0;
  for (const std::uint32_t r : core.ranks) {
    parties += std::erase_if(threads_[r].tasks, [transfer](const CoreTask& task) {
      return task.stream < 0 && task.transfer == transfer;
    });
  }
  client_.give_cores(transfer, parties);
}

/// The host threads first, then what was ready first; but a rank that computes goes on until it has
/// to wait, as a thread does that nothing pre-empts.
void Hosts::grant_core(std::uint32_t c) {
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
    for (const CoreTask& task : threads_[r].tasks) {
      if (before(task, first)) {
        first = &task;
        first_rank = r;
      }
      if (r == core.last && task.stream >= 0 && task.ready <= queue_.now() &&
          before(task, going_on)) {
        going_on = &task;
      }
    }
  }
  if (first == nullptr || first->ready > queue_.now()) {
    next = first == nullptr ? next : std::min(next, first->ready);
    if (next != kNever) {
      queue_.schedule(first_core_ + c, next);  // the core stays free until then
    }
    return;
  }
  if (going_on != nullptr && first->stream >= 0 && first_rank != core.last) {
    first = going_on;
    first_rank = core.last;
  }
  const CoreTask task = *first;
  queue_.cancel(first_core_ + c);
  core.busy = true;
  core.last = first_rank;
  if (task.stream < 0) {
    grant_transfer(core, task.transfer);
    return;
  }
  auto& tasks = threads_[first_rank].tasks;
  tasks.erase(tasks.begin() + (first - tasks.data()));
  client_.begin_compute(first_rank, static_cast<std::uint32_t>(task.stream),
                        queue_.now() + costs_.dispatch);
}

void Hosts::emit(std::uint32_t rank, HostSpan::Kind kind, std::int64_t begin, std::int64_t end) {
  if (observer_ != nullptr && end > begin) {
    observer_->on_host({ranks_[rank].rank, step_, kind, SimTime{begin}, SimTime{end}});
  }
}

}  // namespace stepcast::simulator
