#include "runtime/trainer.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>

#include "core/error.h"
#include "runtime/counted_collectives.h"
#include "runtime/cpu/executor.h"
#include "runtime/data/batch_source.h"
#include "runtime/emulation/core_lease.h"
#include "runtime/emulation/emulated_collectives.h"
#include "runtime/futex.h"
#include "runtime/launch.h"

namespace stepcast::runtime {
namespace {

struct Usage {
  double switches = 0;
  double cpu = 0;
  double peak_bytes = 0;
};

Usage usage_now() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  const auto seconds_of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return {static_cast<double>(u.ru_nivcsw), seconds_of(u.ru_utime) + seconds_of(u.ru_stime),
          static_cast<double>(u.ru_maxrss) * 1024};
}

/// Memory the kernel says is free for use; 0 when it does not say.
double available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  double kilobytes = 0;
  std::string unit;
  while (file >> key >> kilobytes >> unit) {
    if (key == "MemAvailable:") {
      return kilobytes * 1024;
    }
  }
  return 0;
}

void reject_too_much_memory(const ExecutionGraph& graph, bool checkpoints, MpiSession& session) {
  double own = cpu::storage_bytes(graph.program_of(session.rank())).base();
  own += checkpoints ? checkpoint_bytes(graph, session.rank()).base() : 0;
  const auto all = static_cast<double>(session.local_sum(static_cast<std::int64_t>(own)));
  const double available = available_memory();
  if (available > 0 && all > 0.95 * available) {
    throw RunError(
        fmt::format("out of memory: the {} ranks of this machine need {:.3g} GB for "
                    "tensors, {:.3g} GB are free; use a smaller model (fewer table rows or "
                    "layers), a smaller batch or more machines",
                    session.local_size(), all * 1e-9, available * 1e-9));
  }
}

}  // namespace

// Members of ContinuedRun::Impl, so not of an anonymous namespace.
inline namespace trainer_parts {

/// An executor on the CPU with what it needs: collectives over MPI, a paced fabric and core leases
/// if emulated.
class CpuRank final {
 public:
  CpuRank(const ExecutionGraph& graph, const System& system, const RunOptions& options,
          MpiSession& session)
      : options_(options),
        session_(session),
        levels_(options.emulate != nullptr ? *options.emulate : system) {
    const Program& program = graph.program_of(session.rank());
    reject_too_much_memory(graph, !options.checkpoint.folder.empty(), session);
    // A stream that waits by polling would take the core from the other streams of its rank.
    // On a paced fabric ranks come together asleep, and the call inside is short.
    const bool shares =
        options.emulate == nullptr && (program.streams.size() > 1 || session.local_size() > cores_);
    communicators_ = session.communicators(graph, shares ? Waiting::kYield : Waiting::kBlocking);
    if (options.emulate != nullptr) {
      emulation_ = std::make_unique<Emulation>(*options.emulate, graph, cores_, session);
      communicators_ = emulation_->paced(std::move(communicators_));
    }
    for (std::size_t c = 0; c < communicators_.size(); ++c) {
      if (communicators_[c] != nullptr) {
        communicators_[c] = std::make_unique<CountedCollectives>(
            std::move(communicators_[c]), levels_,
            graph.members(static_cast<std::int32_t>(c), session.rank()));
      }
    }
  }

  [[nodiscard]] const LinkLevels& levels() const { return levels_; }

  std::unique_ptr<StepExecutor> executor(const ExecutionGraph& graph, std::int64_t epoch_ns,
                                         Observer* observer) {
    std::vector<Collectives*> collectives;
    for (const auto& c : communicators_) {
      collectives.push_back(c.get());
    }
    cpu::ExecutorOptions executor;
    executor.core = session_.local_size() <= cores_ ? nth_core(session_.local_rank()) : -1;
    if (emulation_ != nullptr && session_.local_size() > cores_) {
      executor.lease = &emulation_->core_lease();
      executor.core = nth_core(core_of(session_.local_rank(), session_.local_size(), cores_));
    }
    executor.tiers = emulation_ != nullptr ? emulation_->tiers() : nullptr;
    executor.real_time = options_.real_time;
    if (session_.size() > 1) {
      executor.on_failure = [this](const std::exception& e) { session_.abort(e); };
    }
    executor.epoch_ns = epoch_ns;
    return std::make_unique<cpu::Executor>(graph, session_.rank(), std::move(collectives), executor,
                                           observer);
  }

 private:
  const RunOptions& options_;
  MpiSession& session_;
  const LinkLevels levels_;
  const int cores_ = session_.cores();
  std::unique_ptr<Emulation> emulation_;
  std::vector<std::unique_ptr<Collectives>> communicators_;
};

/// One rank, from set-up to its last step; the members depend on each other in this order.
class Rank {
 public:
  Rank(const ExecutionGraph& graph, const System& system, const RunOptions& options,
       MpiSession& session, Observer* observer)
      : options_(options),
        system_(system),
        tiers_(graph.program_of(session.rank()).tiers),
        session_(session) {
    session.set_up(true);
    if (!options.executor) {
      cpu_ = std::make_unique<CpuRank>(graph, system, options, session);
    }
    source_ = make_batch_source(graph.inputs, graph.mesh, session.rank(), options.seed,
                                options.data_file, session.cores() / session.local_size());
    session.world().barrier();
    const std::int64_t here = steady_ns();
    epoch_ns_ = session.local_size() == session.size() ? session.from_rank_zero(here) : here;
    executor_ = cpu_ != nullptr ? cpu_->executor(graph, epoch_ns_, observer)
                                : options.executor(graph, session, epoch_ns_, observer);
    if (!options.resume.empty()) {
      const std::int64_t saved = resume(options.resume, graph, session.rank(), *executor_);
      if (saved != options.first_step) {
        throw InputError((options.resume / kCheckpointManifest).string(),
                         fmt::format("is of step {}, the state beside it of step {}; resume from "
                                     "another step's folder",
                                     options.first_step, saved));
      }
    }
    if (!options.checkpoint.folder.empty()) {
      checkpoints_ = std::make_unique<Checkpoints>(options.checkpoint, graph, session, *executor_);
    }
  }

  /// Work before the first step; the end of the set-up.
  void begin() {
    if (executor_->pipelined()) {
      source_->draw(options_.first_step, batch_);
      executor_->fill_pipeline(batch_);
    }
    session_.world().barrier();
    session_.set_up(false);
  }

  RunResult run() {
    RunResult result;
    result.ranks = session_.size();
    result.epoch_ns = epoch_ns_;
    begin();
    const std::int64_t timed = options_.first_step + options_.warmup;
    const std::int64_t end = timed + options_.steps;
    for (std::int64_t step = options_.first_step; step < end; ++step) {
      if (step == timed) {
        sent_before_ = executor_->sent();
        moved_before_ = executor_->tier_traffic();
      }
      const StepRecord record = run_step(step);
      (step < timed ? result.warmup : result.steps).push_back(record);
      if (options_.on_step && session_.rank() == 0) {
        options_.on_step(record);
      }
      if (checkpoints_ != nullptr) {
        checkpoints_->after_step(step + 1, step + 1 == end, anyone_writes_);
      }
    }
    if (checkpoints_ != nullptr) {
      result.checkpoints = checkpoints_->finish();
    }
    const auto peaks = session_.maximum({executor_->allocated().base(), usage_now().peak_bytes});
    result.allocated = Bytes(peaks[0]);
    result.peak_resident = Bytes(peaks[1]);
    result.attention = executor_->attention();
    result.epilogues = executor_->epilogues();
    if (options_.steps > 0) {
      if (cpu_ != nullptr) {
        result.traffic = traffic();
      }
      result.tiers = tier_use();
    }
    return result;
  }

  StepRecord run_step(std::int64_t step) {
    if (executor_->pipelined()) {
      source_->draw(step + 1, next_);
    } else {
      source_->draw(step, batch_);
    }
    const HostBatch* const next = executor_->pipelined() ? &next_ : nullptr;
    executor_->stage(step, batch_, next);
    session_.world().barrier();
    const Usage before = usage_now();
    const std::int64_t begin = steady_ns();
    const double loss = executor_->run_step(
        step, batch_, static_cast<std::int32_t>(step - options_.first_step - options_.warmup),
        next);
    const std::int64_t end = steady_ns();
    if (executor_->pipelined()) {
      std::swap(batch_, next_);
    }
    const Usage after = usage_now();
    const auto worst =
        session_.maximum({static_cast<double>(end - begin), after.switches - before.switches,
                          -(after.cpu - before.cpu), executor_->lease_wait().base(),
                          checkpoints_ != nullptr && checkpoints_->writes() ? 1.0 : 0.0});
    anyone_writes_ = worst[4] > 0;
    StepRecord record;
    record.step = step;
    record.loss = session_.sum({loss})[0];
    record.time = nanoseconds(worst[0]);
    record.involuntary_switches = worst[1];
    record.cpu = seconds(-worst[2]);
    record.lease_wait = seconds(worst[3]);
    return record;
  }

 private:
  /// For all ranks, a step after the warm-up.
  StepTraffic traffic() {
    StepTraffic t(cpu_->levels());
    std::vector<double> sent = executor_->sent();
    sent.resize(kTrafficKinds * t.levels.size());
    for (std::size_t i = 0; i < sent_before_.size(); ++i) {
      sent[i] -= sent_before_[i];
    }
    sent = session_.sum(std::move(sent));
    for (std::size_t i = 0; i < sent.size(); ++i) {
      t.bytes[i / t.levels.size()][i % t.levels.size()] =
          sent[i] / static_cast<double>(options_.steps);
    }
    return t;
  }

  /// Ranks may use different tiers: they meet by the names of the system.
  std::map<std::string, RunResult::TierUse> tier_use() {
    const std::vector<RowTraffic> moved = executor_->tier_traffic();
    const std::vector<double> allocated = executor_->allocated_in_tiers();
    std::map<std::string, RunResult::TierUse> use;
    for (const Tier& tier : system_.tiers) {
      const auto at = std::find(tiers_.begin(), tiers_.end(), tier.name);
      const auto i = static_cast<std::size_t>(at - tiers_.begin());
      const bool here = at != tiers_.end();
      RowTraffic own = here ? moved[i] : RowTraffic{};
      if (here && i < moved_before_.size()) {
        RowTraffic before = moved_before_[i];
        own += (before *= -1);
      }
      const auto sum = session_.sum({own.lookups, own.touched, own.fetched, own.written,
                                     own.fetched_bytes, own.written_bytes});
      const auto most = session_.maximum({here ? allocated[i] : 0});
      RowTraffic all{sum[0], sum[1], sum[2], sum[3], sum[4], sum[5]};
      if (most[0] > 0) {
        use[tier.name] = {all *= 1 / static_cast<double>(options_.steps), Bytes(most[0])};
      }
    }
    return use;
  }

  const RunOptions& options_;
  const System& system_;
  const std::vector<std::string>& tiers_;  ///< of this rank's program
  MpiSession& session_;
  std::int64_t epoch_ns_ = 0;
  std::vector<double> sent_before_;  ///< the steps that count
  std::vector<RowTraffic> moved_before_;
  std::unique_ptr<CpuRank> cpu_;
  std::unique_ptr<BatchSource> source_;
  HostBatch batch_, next_;
  std::unique_ptr<StepExecutor> executor_;
  std::unique_ptr<Checkpoints> checkpoints_;
  bool anyone_writes_ = false;  ///< a checkpoint, after the last step
};

}  // namespace trainer_parts

namespace {

void check_ranks(const ExecutionGraph& graph, const MpiSession& session) {
  if (graph.ranks() != session.size()) {
    throw InputError("job: devices", fmt::format("{} devices, but {} ranks were started; they must "
                                                 "be equal",
                                                 graph.ranks(), session.size()));
  }
}

}  // namespace

struct ContinuedRun::Impl {
  MpiSession& session;
  Rank rank;
  std::int64_t next = 0;
};

ContinuedRun::ContinuedRun(const ExecutionGraph& graph, const System& system,
                           const RunOptions& options, MpiSession& session, Observer* observer) {
  check_ranks(graph, session);
  try {
    impl_.reset(new Impl{session, Rank(graph, system, options, session, observer)});
    impl_->rank.begin();
  } catch (const std::exception& e) {
    if (session.size() == 1) {
      throw;
    }
    session.abort(e);
  }
}

ContinuedRun::~ContinuedRun() = default;

StepRecord ContinuedRun::step() {
  try {
    return impl_->rank.run_step(impl_->next++);
  } catch (const std::exception& e) {
    if (impl_->session.size() == 1) {
      throw;
    }
    impl_->session.abort(e);
  }
}

RunResult run_training(const ExecutionGraph& graph, const System& system, const RunOptions& options,
                       MpiSession& session, Observer* observer) {
  check_ranks(graph, session);
  if (session.size() == 1) {
    return Rank(graph, system, options, session, observer).run();
  }
  try {
    return Rank(graph, system, options, session, observer).run();
  } catch (const std::exception& e) {
    session.abort(e);
  }
}

}  // namespace stepcast::runtime
