#include "runtime/cpu/executor.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <atomic>
#include <exception>
#include <thread>

#include "core/error.h"
#include "core/graph/op_traits.h"
#include "core/graph/step_traffic.h"
#include "runtime/cpu/kernels/gemm.h"
#include "runtime/emulation/core_lease.h"
#include "runtime/futex.h"

namespace stepcast::runtime::cpu {
namespace {

constexpr std::size_t kFamilies = 6;
constexpr std::uint32_t kQueueDepth = 1024;  ///< ops issued to a stream and not yet finished

void prepare_thread(const ExecutorOptions& options) {
  if (options.core >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(options.core), &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
  }
  if (options.real_time) {  // rejected without the privilege: then the run is merely noisier
    sched_param parameters{};
    parameters.sched_priority = 5;
    pthread_setschedparam(pthread_self(), SCHED_RR, &parameters);
  }
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
}

constexpr std::uint64_t kHostWaits = std::uint64_t{1} << 32;

bool needs_core(OpKind kind) { return !is_collective(kind) && !moves_between_tiers(kind); }

bool reached(std::uint32_t counter, std::uint32_t target) {
  return static_cast<std::int32_t>(counter - target) >= 0;
}

}  // namespace

/// Part that this backend adds to an issue.
struct Executor::Task {
  OpFamily::Function function = nullptr;
  Collectives* collectives = nullptr;
  std::uint8_t family = 0;
  bool compute = false;  ///< needs a core: everything but what waits for links
  TrafficKind traffic = TrafficKind::kOther;
  std::int64_t issued_ns = 0;
};

/// Holds the number of its latest record (Issue::record); a wait sleeps until that reaches the one
/// it was issued for.
struct alignas(64) Executor::Event {
  std::atomic<std::uint32_t> latest{0};
  std::atomic<std::uint32_t> waiters{0};
};

/// The counters run on from step to step and wrap; only their differences mean anything.
struct Executor::Stream {
  std::vector<std::uint32_t> issues;  ///< indices into order_.issues
  alignas(64) std::atomic<std::uint32_t> issued{0};
  std::atomic<std::uint32_t> asleep{0};
  alignas(64) std::atomic<std::uint32_t> done{0};
  std::atomic<std::uint64_t> host_target{0};  ///< kHostWaits + the `done` the host sleeps for
  std::atomic<bool> stop{false};
  std::atomic<bool> failed{false};
  std::exception_ptr failure;
  double loss = 0;
  std::int64_t lease_wait_ns = 0;
  std::vector<float> scratch;
  std::vector<double> sent;  ///< by kind of traffic and level; empty where nobody counts
  std::thread thread;
};

Executor::Executor(const ExecutionGraph& graph, std::int32_t rank,
                   std::vector<Collectives*> communicators, ExecutorOptions options,
                   Observer* observer)
    : StepExecutor(graph, rank, options.epoch_ns, observer),
      communicators_(std::move(communicators)),
      options_(std::move(options)),
      storage_(program_, rank, graph.mesh),
      states_(kFamilies) {
  kernels::products_library();  // what is missing is told here: a worker could only end the process
  compile(graph);
  if (sched_getaffinity(0, sizeof affinity_before_, &affinity_before_) != 0) {
    options_.core = -1;
  }
  prepare_thread(options_);
  for (auto& stream : streams_) {
    stream->thread = std::thread([this, s = stream.get()] { worker(*s); });
  }
}

Executor::~Executor() {
  for (auto& stream : streams_) {
    stream->stop = true;
    stream->issued.fetch_add(1);
    futex_wake_all(stream->issued);
  }
  for (auto& stream : streams_) {
    stream->thread.join();
  }
  if (options_.core >= 0) {
    sched_setaffinity(0, sizeof affinity_before_, &affinity_before_);
  }
}

Matrix Executor::tensor(TensorId id, std::int32_t microbatch) const {
  const Tensor& t = program_.tensors.at(id);
  return {storage_.at(id, microbatch), t.rows, t.columns};
}

std::vector<double> Executor::sent() const {
  std::vector<double> sum;
  for (const auto& stream : streams_) {
    sum.resize(std::max(sum.size(), stream->sent.size()));
    for (std::size_t i = 0; i < stream->sent.size(); ++i) {
      sum[i] += stream->sent[i];
    }
  }
  return sum;
}

std::vector<RowTraffic> Executor::tier_traffic() const {
  return tier_traffic_of(states_, program_.tiers.size());
}

void Executor::settle() {
  for (const auto& state : states_) {
    if (state != nullptr) {
      state->settle(program_, storage_.table());
    }
  }
}

Seconds Executor::lease_wait() const {
  std::int64_t sum = 0;
  for (const auto& stream : streams_) {
    sum += stream->lease_wait_ns;
  }
  return nanoseconds(static_cast<double>(sum));
}

void Executor::compile(const ExecutionGraph& graph) {
  const OpDispatch<OpFamily, kFamilies> dispatch(
      {generic_ops(), collective_ops(), dlrm_ops(), transformer_ops(), expert_ops(), layer_ops()},
      "cpu");
  for (std::size_t s = 0; s < program_.streams.size(); ++s) {
    streams_.push_back(std::make_unique<Stream>());
  }
  events_ = std::make_unique<Event[]>(static_cast<std::size_t>(program_.events));
  tasks_.reserve(order_.issues.size());
  for (const Issue& issue : order_.issues) {
    const Op& op = *issue.op;
    const auto& entry = dispatch.of(program_, op);
    if (states_[entry.family] == nullptr && entry.make_state != nullptr) {
      states_[entry.family] = entry.make_state(graph_, program_, rank_);
    }
    Task task;
    task.function = entry.function;
    task.family = entry.family;
    task.compute = needs_core(op.kind);
    if (op.communicator >= 0) {
      task.collectives = communicators_.at(static_cast<std::size_t>(op.communicator));
      STEPCAST_CHECK(task.collectives != nullptr, "rank {} executes '{}' outside '{}'", rank_,
                     program_.name(op),
                     graph.communicators.at(static_cast<std::size_t>(op.communicator)).name);
      task.traffic = op.traffic;
      auto& sent = streams_.at(op.stream)->sent;
      sent.resize(std::max(sent.size(), kTrafficKinds * task.collectives->sent_by_level().size()));
    }
    streams_.at(op.stream)->issues.push_back(static_cast<std::uint32_t>(tasks_.size()));
    tasks_.push_back(task);
  }
}

double Executor::run_ops() {
  for (std::int32_t e = 0; e < program_.events; ++e) {
    events_[static_cast<std::size_t>(e)].latest.store(0, std::memory_order_relaxed);
  }
  for (auto& stream : streams_) {
    stream->loss = 0;
    stream->lease_wait_ns = 0;
  }
  std::int64_t issue_begin = steady_ns();
  if (observed()) {
    observer_->on_step_begin(rank_, observed_step_, at(issue_begin));
  }
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    Stream& stream = *streams_[order_.issues[i].op->stream];
    const std::uint32_t issued = stream.issued.load(std::memory_order_relaxed);
    if (issued - stream.done.load(std::memory_order_acquire) >= kQueueDepth) {
      report_host(HostSpan::Kind::kIssue, issue_begin, steady_ns());
      wake_workers();
      wait_until_done(stream, issued - kQueueDepth / 2, HostSpan::Kind::kQueueFull);
      issue_begin = steady_ns();
    }
    if (observed()) {
      tasks_[i].issued_ns = steady_ns();
    }
    stream.issued.store(issued + 1, std::memory_order_release);
  }
  report_host(HostSpan::Kind::kIssue, issue_begin, steady_ns());
  wake_workers();
  double loss = 0;
  for (auto& stream : streams_) {
    wait_until_done(*stream, stream->issued.load(std::memory_order_relaxed),
                    HostSpan::Kind::kSynchronize);
    loss += stream->loss;
  }
  for (Collectives* c : communicators_) {
    if (c != nullptr) {
      c->finish_sends();
    }
  }
  if (observed()) {
    observer_->on_step_end(rank_, observed_step_, at(steady_ns()));
  }
  for (auto& stream : streams_) {
    if (stream->failed) {
      std::rethrow_exception(stream->failure);
    }
  }
  return loss;
}

void Executor::begin_next_batch() {
  storage_.begin_next_batch(program_);
  for (auto& state : states_) {
    if (state != nullptr) {
      state->begin_next_batch();
    }
  }
}

void Executor::wake_workers() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (auto& stream : streams_) {
    if (stream->asleep.load(std::memory_order_seq_cst) != 0) {
      futex_wake_all(stream->issued);
    }
  }
}

void Executor::wait_until_done(Stream& stream, std::uint32_t target, HostSpan::Kind why) {
  const std::int64_t begin = steady_ns();
  stream.host_target.store(kHostWaits + target, std::memory_order_seq_cst);
  while (true) {
    const std::uint32_t done = stream.done.load(std::memory_order_seq_cst);
    if (reached(done, target)) {
      break;
    }
    futex_wait(stream.done, done);
  }
  stream.host_target.store(0, std::memory_order_relaxed);
  report_host(why, begin, steady_ns());
}

void Executor::worker(Stream& stream) {
  prepare_thread(options_);
  kernels::use_one_thread();
  std::uint32_t done = 0;
  std::uint32_t position = 0;  // within the step
  while (true) {
    const std::uint32_t issued = stream.issued.load(std::memory_order_acquire);
    if (stream.stop.load(std::memory_order_relaxed)) {
      return;
    }
    if (issued != done) {
      execute(stream, position);
      position = position + 1 == stream.issues.size() ? 0 : position + 1;
      stream.done.store(++done, std::memory_order_seq_cst);
      const std::uint64_t target = stream.host_target.load(std::memory_order_seq_cst);
      if (target != 0 && reached(done, static_cast<std::uint32_t>(target))) {
        futex_wake_all(stream.done);
      }
      continue;
    }
    stream.asleep.store(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (stream.issued.load(std::memory_order_seq_cst) == issued) {
      futex_wait(stream.issued, issued);
    }
    stream.asleep.store(0, std::memory_order_relaxed);
  }
}

void Executor::execute(Stream& stream, std::uint32_t position) {
  const Issue& issue = order_.issues[stream.issues[position]];
  const Task& task = tasks_[stream.issues[position]];
  const auto waits = program_.waits_of(*issue.op);
  for (std::size_t i = 0; i < waits.size(); ++i) {
    wait_for(events_[static_cast<std::size_t>(waits[i])], order_.awaited[issue.first_wait + i]);
  }
  if (does_work(*issue.op) && !stream.failed.load(std::memory_order_relaxed)) {
    const bool leased = task.compute && options_.lease != nullptr;
    if (leased) {
      stream.lease_wait_ns += options_.lease->acquire();
    }
    const std::int64_t begin = observed() ? steady_ns() : 0;
    OpContext context{.graph = graph_,
                      .program = program_,
                      .op = *issue.op,
                      .microbatch = issue.microbatch,
                      .step = step_,
                      .batch = batch_of(*issue.op),
                      .collectives = task.collectives,
                      .scratch = stream.scratch,
                      .state = states_[task.family].get(),
                      .bytes_sent = 0,
                      .loss = &stream.loss,
                      .tiers = options_.tiers,
                      .storage = &storage_.table(),
                      .rank = rank_};
    try {
      task.function(context);
    } catch (const std::exception& e) {
      if (options_.on_failure) {
        options_.on_failure(e);
      }
      stream.failure = std::current_exception();
      stream.failed = true;
    }
    if (task.collectives != nullptr) {
      count_sent(task, stream);
    }
    if (observed()) {
      const std::int64_t end = steady_ns();
      observer_->on_op({rank_, observed_step_, issue.ref, at(task.issued_ns), at(begin), at(begin),
                        at(end), context.bytes_sent});
    }
    if (leased) {
      options_.lease->release();
    }
  }
  if (issue.record > 0) {
    record(events_[static_cast<std::size_t>(issue.op->record)], issue.record);
  }
}

void Executor::count_sent(const Task& task, Stream& stream) {
  const std::span<double> sent = task.collectives->sent_by_level();
  for (std::size_t level = 0; level < sent.size(); ++level) {
    stream.sent[static_cast<std::size_t>(task.traffic) * sent.size() + level] += sent[level];
    sent[level] = 0;
  }
}

void Executor::wait_for(Event& event, std::uint32_t target) {
  std::uint32_t latest = event.latest.load(std::memory_order_acquire);
  if (latest >= target) {
    return;
  }
  event.waiters.fetch_add(1, std::memory_order_seq_cst);
  while ((latest = event.latest.load(std::memory_order_seq_cst)) < target) {
    futex_wait(event.latest, latest);
  }
  event.waiters.fetch_sub(1, std::memory_order_relaxed);
}

void Executor::record(Event& event, std::uint32_t number) {
  std::uint32_t current = event.latest.load(std::memory_order_relaxed);
  while (current < number &&
         !event.latest.compare_exchange_weak(current, number, std::memory_order_seq_cst)) {
  }
  if (event.waiters.load(std::memory_order_seq_cst) != 0) {
    futex_wake_all(event.latest);
  }
}

}  // namespace stepcast::runtime::cpu
