#include "profiler/host/host_recorder.h"

namespace stepcast::profiler {

HostRecorder::HostRecorder(std::int32_t rank, const Program& program, std::int32_t steps)
    : program_(program), per_stream_(program.streams.size()) {
  trace_.rank = rank;
  std::vector<std::size_t> ops(program.streams.size(), 0);
  for (const Call& call : program.calls) {
    for (const Op& op : program.ops_of(program.segments[call.segment])) {
      ++ops[op.stream];
    }
  }
  for (std::size_t s = 0; s < ops.size(); ++s) {
    per_stream_[s].reserve(ops[s] * static_cast<std::size_t>(steps));
  }
  // Host intervals: one issue and one synchronisation per step, and one wait per op at the very
  // most; half of that is room enough.
  std::size_t all = 0;
  for (const std::size_t n : ops) {
    all += n;
  }
  trace_.host.reserve((all / 2 + 4) * static_cast<std::size_t>(steps));
  trace_.steps.reserve(static_cast<std::size_t>(steps));
}

void HostRecorder::on_step_begin(std::int32_t /*rank*/, std::int32_t step, SimTime at) {
  trace_.steps.push_back({step, at, at});
}

void HostRecorder::on_op(const OpSpan& span) {
  auto& buffer = per_stream_[program_.ops[span.ref.op].stream];
  if (buffer.size() == buffer.capacity()) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  buffer.push_back(span);
}

void HostRecorder::on_host(const HostSpan& span) {
  if (trace_.host.size() == trace_.host.capacity()) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  trace_.host.push_back(span);
}

void HostRecorder::on_step_end(std::int32_t /*rank*/, std::int32_t /*step*/, SimTime at) {
  if (!trace_.steps.empty()) {
    trace_.steps.back().end = at;
  }
}

traces::RankTrace HostRecorder::finish() {
  std::size_t total = 0;
  for (const auto& buffer : per_stream_) {
    total += buffer.size();
  }
  trace_.ops.reserve(total);
  for (auto& buffer : per_stream_) {
    trace_.ops.insert(trace_.ops.end(), buffer.begin(), buffer.end());
    buffer.clear();
  }
  trace_.dropped = dropped_.load();
  return std::move(trace_);
}

}  // namespace stepcast::profiler
