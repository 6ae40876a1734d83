#include "studies/run/recorded_run.h"

#include <numeric>
#include <type_traits>

#include "core/config/config.h"
#include "core/error.h"
#include "profiler/capture/device_recorder.h"
#include "profiler/host/host_recorder.h"
#include "profiler/host/recording_cost.h"
#include "runtime/loaded_module.h"
#include "studies/run/core_speed.h"
#include "traces/native/native_trace.h"

namespace stepcast::studies {
namespace {

/// Appends rank 0's view of what every rank holds: one all-to-all in which only rank 0 receives.
template <typename Record>
std::vector<std::vector<Record>> gather(const std::vector<Record>& own,
                                        runtime::MpiSession& session) {
  static_assert(std::is_trivially_copyable_v<Record>);
  const auto n = static_cast<std::size_t>(session.size());
  std::vector<double> counts(n, 0);
  counts[static_cast<std::size_t>(session.rank())] = static_cast<double>(own.size());
  counts = session.sum(counts);
  std::vector<std::int64_t> send(n, 0), receive(n, 0), offsets(n, 0), none(n, 0);
  send[0] = static_cast<std::int64_t>(own.size());
  std::vector<Record> all;
  if (session.rank() == 0) {
    for (std::size_t r = 0; r < n; ++r) {
      receive[r] = static_cast<std::int64_t>(counts[r]);
    }
    std::exclusive_scan(receive.begin(), receive.end(), offsets.begin(), std::int64_t{0});
    all.resize(static_cast<std::size_t>(offsets.back() + receive.back()));
  }
  session.world().all_to_all_v(own.data(), send, none, all.data(), receive, offsets,
                               sizeof(Record));
  std::vector<std::vector<Record>> parts(n);
  for (std::size_t r = 0; session.rank() == 0 && r < n; ++r) {
    parts[r].assign(all.begin() + offsets[r], all.begin() + offsets[r] + receive[r]);
  }
  return parts;
}

/// A run on this rank: what it recorded, and, on rank 0, what is known of all ranks' recordings.
struct RankRun {
  runtime::RunResult result;
  traces::RankTrace own;
  traces::GraphRun of_all;
};

void describe(traces::GraphRun& trace, const runtime::RunOptions& options, const OpClock& clock,
              const runtime::RunResult& result) {
  if (!options.executor) {
    trace.collectives_hold_core = options.emulate == nullptr;
    const profiler::RecordingCost cost = profiler::recording_cost();
    trace.clock_cost = cost.clock;
    trace.store_cost = cost.store;
    return;
  }
  // Times come from the device's own clock, net of what events around an op cost where they do.
  trace.shares_core = trace.collectives_hold_core = false;
  trace.op_clock = clock.cupti != nullptr ? "cupti" : "events";
  trace.op_clock_reason = clock.reason;
  trace.attention = result.attention;
  trace.epilogues = result.epilogues.kernels;
  trace.epilogues_reason = result.epilogues.reason;
}

/// Records steps and what the host does in them, and asks for no op's time.
class HostOnly final : public Observer {
 public:
  HostOnly(std::int32_t rank, const Program& program, std::int32_t steps)
      : host_(rank, program, steps) {}
  void on_step_begin(std::int32_t rank, std::int32_t step, SimTime at) override {
    host_.on_step_begin(rank, step, at);
  }
  void on_op(const OpSpan& /*span*/) override {}
  void on_host(const HostSpan& span) override { host_.on_host(span); }
  void on_step_end(std::int32_t rank, std::int32_t step, SimTime at) override {
    host_.on_step_end(rank, step, at);
  }
  [[nodiscard]] bool measures_ops() const override { return true; }
  [[nodiscard]] traces::RankTrace finish() { return host_.finish(); }

 private:
  profiler::HostRecorder host_;
};

RankRun record(const Job& job, const ExecutionGraph& graph, const runtime::RunOptions& options,
               runtime::MpiSession& session, const OpClock& clock) {
  const auto steps = static_cast<std::int32_t>(options.steps);
  const Program& program = graph.program_of(session.rank());
  RankRun run;
  const auto probe = [&] { return options.executor ? Seconds{} : probe_cores(session); };
  const Seconds before = probe();
  if (clock.cupti != nullptr) {
    profiler::DeviceRecorder recorder(session.rank(), session.size(), program, steps, *clock.cupti);
    run.result = runtime::run_training(graph, job.system, options, session, &recorder);
    run.own = recorder.finish(run.result.epoch_ns);
  } else {
    profiler::HostRecorder recorder(session.rank(), program, steps);
    run.result = runtime::run_training(graph, job.system, options, session, &recorder);
    run.own = recorder.finish();
  }
  run.of_all.core_probe = (before + probe()) / 2;
  if (session.rank() == 0) {
    run.of_all.graph = graph;
    describe(run.of_all, options, clock, run.result);
  }
  return run;
}

}  // namespace

RecordedRun run_recorded(const Job& job, const ExecutionGraph& graph,
                         const runtime::RunOptions& options, runtime::MpiSession& session,
                         const OpClock& clock) {
  RankRun run = record(job, graph, options, session, clock);
  std::vector<traces::RankTrace> alone;
  if (clock.cupti != nullptr) {
    HostOnly host(session.rank(), graph.program_of(session.rank()),
                  static_cast<std::int32_t>(options.steps));
    run.result = runtime::run_training(graph, job.system, options, session, &host);
    const traces::RankTrace own = host.finish();
    auto spans = gather(own.host, session);
    auto marks = gather(own.steps, session);
    for (std::size_t r = 0; session.rank() == 0 && r < marks.size(); ++r) {
      traces::RankTrace& rank = alone.emplace_back();
      rank.rank = static_cast<std::int32_t>(r);
      rank.host = std::move(spans[r]);
      rank.steps = std::move(marks[r]);
    }
  }
  auto ops = gather(run.own.ops, session);
  auto host = gather(run.own.host, session);
  auto steps = gather(run.own.steps, session);
  const auto dropped = gather(std::vector<std::uint64_t>{run.own.dropped}, session);
  if (session.rank() == 0) {
    for (std::size_t r = 0; r < ops.size(); ++r) {
      traces::RankTrace rank;
      rank.rank = static_cast<std::int32_t>(r);
      rank.ops = std::move(ops[r]);
      rank.host = std::move(host[r]);
      rank.steps = std::move(steps[r]);
      rank.dropped = dropped[r].front();
      run.of_all.ranks.push_back(std::move(rank));
    }
    traces::align_clocks(run.of_all);
  }
  return {std::move(run.result), std::move(run.of_all), std::move(alone)};
}

void write_recorded(const std::filesystem::path& folder, const Job& job, traces::GraphRun trace) {
  trace.job = config::job_to_json(job);
  traces::begin_trace(folder);
  for (const traces::RankTrace& rank : trace.ranks) {
    traces::write_rank(folder, rank);
  }
  traces::write_manifest(folder, trace, static_cast<int>(trace.ranks.size()));
}

OpClock start_cupti(const std::filesystem::path& file) {
  try {
    auto* entry = runtime::LoadedModule(file).function<profiler::CuptiModuleEntry>(
        profiler::kCuptiModuleEntry);
    profiler::CuptiModule* cupti = entry();
    std::string rejected = cupti->start({});
    return {rejected.empty() ? cupti : nullptr, std::move(rejected)};
  } catch (const EnvironmentError& e) {
    return {nullptr, e.what()};
  }
}

OpClock same_on_all_ranks(OpClock own, runtime::MpiSession& session) {
  const double without = session.sum({own.cupti == nullptr ? 1.0 : 0.0})[0];
  if (without > 0 && own.cupti != nullptr) {
    own.cupti->stop({session.rank(), session.size()});
    own = {nullptr,
           fmt::format("{:.0f} of {} ranks could not have CUPTI", without, session.size())};
  }
  return own;
}

runtime::RunResult run_traced(const Job& job, const ExecutionGraph& graph,
                              const runtime::RunOptions& options, runtime::MpiSession& session,
                              const TraceOptions& traced) {
  RankRun run = record(job, graph, options, session, traced.clock);
  if (session.rank() == 0) {
    traces::begin_trace(traced.folder);
  }
  session.world().barrier();  // an older trace is gone before the first rank writes
  traces::write_rank(traced.folder, run.own);
  session.world().barrier();
  if (session.rank() == 0) {
    run.of_all.job = traced.job;
    run.of_all.producer = traced.producer;
    traces::write_manifest(traced.folder, run.of_all, session.size());
  }
  return std::move(run.result);
}

}  // namespace stepcast::studies
