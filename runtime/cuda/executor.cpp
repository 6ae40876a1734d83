#include "runtime/cuda/executor.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "core/graph/op_traits.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/host_clock.h"
#include "runtime/cuda/ops_attention.h"
#include "runtime/cuda/ops_experts.h"
#include "runtime/op_operands.h"

namespace stepcast::runtime::cuda {
namespace {

constexpr std::size_t kFamilies = 6;

/// Adam's factors depend on how often an op was executed: in every step, or once in several.
constexpr std::array<std::uint8_t, 2> kIntervals{0, op_flags::kEveryInterval};
std::size_t interval_of(const Op& op) { return (op.flags & op_flags::kEveryInterval) != 0 ? 1 : 0; }

/// Makes the rank's device the current one before anything else is made on it.
std::int32_t chosen_device(const Ranks& ranks) {
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  const std::int32_t device = ranks.local_rank % std::max(1, devices);
  check(cudaSetDevice(device), "cudaSetDevice");
  return device;
}

void require_fp8_device(int device) {
  int major = 0;
  int minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
        "cudaDeviceGetAttribute");
  if (10 * major + minor < 89) {
    throw InputError("formats.compute",
                     fmt::format("found fp8, but this device has compute capability {}.{}: fp8 "
                                 "products need 8.9 or newer (Ada, Hopper, Blackwell); use bf16",
                                 major, minor));
  }
}

}  // namespace

/// Part that this backend adds to an issue.
struct Executor::Task {
  OpFamily::Function function = nullptr;
  std::uint8_t family = 0;
  Communicator* communicator = nullptr;
  Stream* side = nullptr;        ///< where a send goes out
  std::unique_ptr<Event> begin;  ///< around the op: for the observer, and of every collective
  std::unique_ptr<Event> end;
  std::int64_t issued_ns = 0;
  double bytes_sent = 0;
};

Executor::Executor(const ExecutionGraph& graph, Ranks ranks, Options options, Observer* observer)
    : DeviceExecutor(graph, ranks.rank, options.epoch_ns, observer),
      ranks_(std::move(ranks)),
      options_(options),
      times_ops_(observer != nullptr && !observer->measures_ops()),
      device_(chosen_device(ranks_)),
      losses_(Buffer::Kind::kDevice, "losses", &ledger_),
      host_losses_(Buffer::Kind::kPinned, "losses"),
      factors_(Buffer::Kind::kDevice, "optimizer factors", &ledger_),
      host_factors_(Buffer::Kind::kPinned, "optimizer factors"),
      batch_(std::make_unique<DeviceBatch>(ledger_)),
      next_batch_(std::make_unique<DeviceBatch>(ledger_)),
      states_(kFamilies),
      watch_(program_, program_.streams.size() + 1, options_, ranks_.abort) {
  for (std::size_t s = 0; s < program_.streams.size(); ++s) {
    streams_.emplace_back();
    joins_.emplace_back(false);
    scratch_.emplace_back(Buffer::Kind::kDevice, "workspaces", &ledger_);
  }
  scratch_.emplace_back(Buffer::Kind::kDevice, "workspaces", &ledger_);
  for (std::int32_t e = 0; e < program_.events; ++e) {
    events_.emplace_back(false);
  }
  tensors_ = std::make_unique<DeviceTensors>(program_, rank_, graph.mesh, ledger_);
  losses_.reserve_of<double>(streams_.size());
  host_losses_.reserve_of<double>(streams_.size());
  factors_.reserve_of<AdamFactors>(kIntervals.size());
  host_factors_.reserve_of<AdamFactors>(kIntervals.size());
  quantised_ = quantised_copies(program_, order_, *tensors_, ledger_);
  count_taken("NCCL",
              [&] { communicators_ = std::make_unique<Communicators>(graph, ranks_, options_); });
  compile(graph);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

Executor::~Executor() {
  if (std::uncaught_exceptions() > 0 && communicators_ != nullptr) {
    communicators_->abort();  // or freeing memory would wait for a kernel that waits for a peer
  }
}

/// Enters into the ledger what a library takes of the device meanwhile. Ranks that share a device
/// would count each other's.
void Executor::count_taken(const char* library, const std::function<void()>& work) {
  int devices = 0;
  std::size_t before = 0;
  std::size_t after = 0;
  std::size_t capacity = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  check(cudaMemGetInfo(&before, &capacity), "cudaMemGetInfo");
  work();
  check(cudaMemGetInfo(&after, &capacity), "cudaMemGetInfo");
  if (ranks_.local_size <= devices && after < before) {
    ledger_.add(library, static_cast<double>(before - after));
  }
}

void Executor::compile(const ExecutionGraph& graph) {
  const OpDispatch<OpFamily, kFamilies> dispatch(
      {generic_ops(), collective_ops(), dlrm_ops(), expert_ops(), layer_ops(), transformer_ops()},
      "cuda");
  std::vector<AttentionProblem> attention;
  for (const Issue& issue : order_.issues) {
    if (is_fused_attention(*issue.op)) {
      attention.push_back(attention_problem(program_, *issue.op, *tensors_, issue.microbatch));
    }
  }
  if (!attention.empty()) {
    count_taken("cuDNN", [&] {
      attention_ = &CudnnAttention::open();
      attention_->prepare(attention, ranks_.local_size);
    });
  }
  tasks_.reserve(order_.issues.size());
  for (const Issue& issue : order_.issues) {
    const Op& op = *issue.op;
    const auto& entry = dispatch.of(program_, op);
    if (states_[entry.family] == nullptr && entry.make_state != nullptr) {
      states_[entry.family] = entry.make_state(graph_, program_, rank_, ledger_);
    }
    if (op.kind == OpKind::kGemm && op.format == Format::kFp8) {
      require_fp8_device(device_);
    }
    if (has_epilogue(op)) {
      const FusedProduct product = fused_product(
          program_, op, [&](TensorId id) { return tensors_->view(id, issue.microbatch); });
      Buffer& scratch = scratch_[op.stream];
      scratch.reserve(FusedProducts::workspace_bytes(product));
      products_.prepare(product, {scratch.data(), scratch.bytes()});
    }
    if (is_fused_attention(op)) {
      const AttentionProblem problem = attention_problem(program_, op, *tensors_, issue.microbatch);
      scratch_[op.stream].reserve(attention_->workspace_bytes(problem));
    }
    Task task;
    task.function = entry.function;
    task.family = entry.family;
    if (is_point_to_point(op.kind)) {
      const std::int32_t peer =
          graph.members(op.communicator, rank_).at(static_cast<std::size_t>(op.peer));
      const bool sends = op.kind == OpKind::kSend;
      task.communicator =
          communicators_->pair(op.communicator, sends ? rank_ : peer, sends ? peer : rank_);
      if (sends) {
        task.side = &sends_[task.communicator];
      }
    } else if (op.communicator >= 0) {
      task.communicator = communicators_->collective(op.communicator);
    }
    STEPCAST_CHECK(op.communicator < 0 || task.communicator != nullptr,
                   "rank {} executes '{}' outside its communicator", rank_, program_.name(op));
    const bool watched = task.communicator != nullptr && task.communicator->size() > 1;
    if (watched || times_ops_) {
      task.begin = std::make_unique<Event>(times_ops_);
      task.end = std::make_unique<Event>(times_ops_);
    }
    if (watched) {
      watch_.add({&op, task.communicator, task.begin.get(), task.end.get(),
                  task.side != nullptr ? streams_.size() : op.stream});
    }
    tasks_.push_back(std::move(task));
  }
  if (options_.graph) {
    reject_capture(program_, pipelined());
  }
}

std::vector<float> Executor::read(TensorId id, std::int32_t microbatch) const {
  return tensors_->read(id, microbatch);
}

void Executor::write(TensorId id, std::int32_t microbatch, std::span<const float> values) {
  tensors_->write(id, microbatch, values);
}

float* Executor::numbers(TensorId id) {
  const auto [at, is_new] = copies_.try_emplace(id);
  if (is_new) {
    at->second = tensors_->read(id, 0);
  }
  return at->second.data();
}

void Executor::settle() {
  for (auto& [id, copy] : copies_) {
    const std::vector<float> now = tensors_->read(id, 0);
    std::copy(now.begin(), now.end(), copy.begin());
  }
}

void Executor::take_numbers() {
  for (const auto& [id, copy] : copies_) {
    tensors_->write(id, 0, copy);
  }
  copies_.clear();
}

std::vector<RowTraffic> Executor::tier_traffic() const {
  return tier_traffic_of(states_, program_.tiers.size());
}

void Executor::begin_next_batch() {
  tensors_->begin_next_batch();
  std::swap(batch_, next_batch_);
  for (auto& state : states_) {
    if (state != nullptr) {
      state->begin_next_batch();
    }
  }
}

double Executor::run_ops() {
  check(cudaSetDevice(device_), "cudaSetDevice");  // of the calling thread
  try {
    const std::int64_t begin = now_ns();
    if (observed()) {
      observer_->on_step_begin(rank_, observed_step_, at(begin));
    }
    if (observed() && times_ops_) {  // one event that both clocks see
      begin_.record(streams_.front());
      begin_.wait();
    }
    const std::int64_t anchor = now_ns();
    const std::int64_t issue_begin = now_ns();
    const bool replayed = options_.graph && captured_.serves(batch_->layout());
    watch_.issuing(*communicators_);
    if (replayed) {
      for (auto& state : states_) {
        if (state != nullptr) {
          state->replay(step_);
        }
      }
      const std::int64_t launched = captured_.launch(streams_.front(), [this] { issue_all(true); });
      for (Task& task : tasks_) {
        task.issued_ns = launched;
      }
    } else {
      issue_all(false);
    }
    watch_.issued();
    const std::int64_t issued = now_ns();
    report_host(HostSpan::Kind::kIssue, issue_begin, issued);
    end_.record(streams_.front());
    watch_.wait_for(end_, replayed, *communicators_, works_);
    watch_.ended();
    report_host(HostSpan::Kind::kSynchronize, issued, now_ns());
    if (observed()) {
      report_ops(anchor);
      observer_->on_step_end(rank_, observed_step_, at(now_ns()));
    }
  } catch (const std::exception& e) {
    watch_.issued();
    watch_.ended();
    if (ranks_.size > 1 && ranks_.abort) {
      ranks_.abort(e);  // the others would wait for ever
    }
    throw;
  }
  double loss = 0;
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    loss += host_losses_.as<double>()[s];
  }
  return loss;
}

/// Page-locked copies of what the step reads of the host.
void Executor::stage_batches() {
  check(cudaSetDevice(device_), "cudaSetDevice");  // of the calling thread
  bool staged = false;
  for (const Issue& issue : order_.issues) {
    if (issue.op->kind == OpKind::kLoadBatch && does_work(*issue.op) && !staged) {
      DeviceBatch& batch = works_on_next(*issue.op) ? *next_batch_ : *batch_;
      batch.stage(batch_of(*issue.op));
      staged = true;
    }
  }
  for (std::size_t interval = 0; interval < kIntervals.size(); ++interval) {
    host_factors_.as<AdamFactors>()[interval] = adam_factors(optimizer_settings(
        OptimizerKind::kAdam, times_done(program_, kIntervals[interval], step_)));
  }
}

/// All ops of the step: from the first stream all others start, there they end.
void Executor::issue_all(bool captured) {
  Stream& first = streams_.front();
  check(cudaMemcpyAsync(factors_.data(), host_factors_.data(),
                        kIntervals.size() * sizeof(AdamFactors), cudaMemcpyHostToDevice,
                        first.handle()),
        "cudaMemcpyAsync");
  check(cudaMemsetAsync(losses_.data(), 0, streams_.size() * sizeof(double), first.handle()),
        "cudaMemsetAsync");
  joins_.front().record(first);
  const auto start = [&](const Stream& stream) { joins_.front().hold(stream); };
  for (std::size_t s = 1; s < streams_.size(); ++s) {
    start(streams_[s]);
  }
  for (const auto& [pair, stream] : sends_) {
    start(stream);
  }
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    issue(i, captured);
  }
  const auto join = [&](Event& event, const Stream& stream) {
    event.record(stream);
    event.hold(first);
  };
  for (std::size_t s = 1; s < streams_.size(); ++s) {
    join(joins_[s], streams_[s]);
  }
  for (const auto& [pair, stream] : sends_) {
    join(joins_.front(), stream);
  }
  check(cudaMemcpyAsync(host_losses_.data(), losses_.data(), streams_.size() * sizeof(double),
                        cudaMemcpyDeviceToHost, first.handle()),
        "cudaMemcpyAsync");
}

void Executor::issue(std::size_t i, bool captured) {
  const Issue& issue = order_.issues[i];
  const Op& op = *issue.op;
  Task& task = tasks_[i];
  const Stream& own = streams_[op.stream];
  const auto waits = program_.waits_of(op);
  watch_.issuing(op);
  for (std::size_t w = 0; w < waits.size(); ++w) {
    // An event of the step before has long happened.
    if (order_.awaited[issue.first_wait + w] > 0) {
      const Event& event = events_[static_cast<std::size_t>(waits[w])];
      event.hold(own);
      if ((op.flags & op_flags::kHostWaits) != 0 && !captured) {
        watch_.wait_for(event, false, *communicators_, works_);
      }
    }
  }
  if (does_work(op)) {
    const Stream& stream = task.side != nullptr ? *task.side : own;
    if (task.side != nullptr) {  // what is sent was made on the op's stream
      Event& made = joins_[op.stream];
      made.record(own);
      made.hold(stream);
    }
    OpContext context{.graph = graph_,
                      .program = program_,
                      .op = op,
                      .rank = rank_,
                      .microbatch = issue.microbatch,
                      .step = step_,
                      .stream = stream.handle(),
                      .tensors = *tensors_,
                      .batch = works_on_next(op) ? *next_batch_ : *batch_,
                      .communicator = task.communicator,
                      .communicators = *communicators_,
                      .multiply = multiply_,
                      .products = products_,
                      .quantised = *quantised_,
                      .attention = attention_,
                      .issue = i,
                      .scratch = task.side != nullptr ? scratch_.back() : scratch_[op.stream],
                      .adam_factors = factors_.as<AdamFactors>() + interval_of(op),
                      .loss = losses_.as<double>() + op.stream,
                      .ledger = ledger_,
                      .state = states_[task.family].get()};
    const bool marked = task.begin != nullptr;
    const bool named = observer_ != nullptr && (observed() || captured);
    task.issued_ns = now_ns();
    if (marked) {
      task.begin->record(stream, captured);
    }
    if (named) {
      observer_->on_launch_begin(issue.ref);
    }
    try {
      task.function(context);
    } catch (const RunError& e) {
      throw RunError(fmt::format("'{}': {}", program_.name(op), e.what()));
    }
    if (named) {
      observer_->on_launch_end();
    }
    if (marked) {
      task.end->record(stream, captured);
    }
    task.bytes_sent = context.bytes_sent;
  }
  if (op.record >= 0) {
    events_[static_cast<std::size_t>(op.record)].record(own);
  }
}

void Executor::report_ops(std::int64_t anchor_ns) {
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    const Task& task = tasks_[i];
    const Issue& issue = order_.issues[i];
    if (!does_work(*issue.op)) {
      continue;
    }
    const auto on_host = [&](const Event& e) {
      return anchor_ns + std::int64_t{std::llround(e.nanoseconds_since(begin_))};
    };
    const std::int64_t begin =
        times_ops_ ? std::max(task.issued_ns, on_host(*task.begin)) : task.issued_ns;
    const std::int64_t end = times_ops_ ? std::max(begin, on_host(*task.end)) : begin;
    observer_->on_op({rank_, observed_step_, issue.ref, at(task.issued_ns), at(begin), at(begin),
                      at(end), task.bytes_sent});
  }
}

}  // namespace stepcast::runtime::cuda
