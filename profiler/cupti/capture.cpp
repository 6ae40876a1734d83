#include "profiler/cupti/capture.h"

#include <cupti_runtime_cbid.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

namespace stepcast::profiler::cupti {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::size_t kMostCalls = 4'000'000;  // of NCCL, waiting or kept: about 300 MB

std::int32_t this_thread() { return static_cast<std::int32_t>(syscall(SYS_gettid)); }

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "host";
}

/// Equal on all processes of one boot of one machine, which share a monotonic clock.
std::string boot_id() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  return std::getline(in, id) ? id : host_name();
}

/// The op of the calling thread; -1: none.
thread_local std::int64_t own_op = -1;

}  // namespace

void Capture::push_op(std::uint64_t op, bool elsewhere) {
  own_op = static_cast<std::int64_t>(op);
  Collector::push(kOpIds, op);
  if (elsewhere) {
    elsewhere_since_ = Collector::now();
    elsewhere_ = own_op;
  }
}

void Capture::pop_op() {
  if (elsewhere_ >= 0) {
    elsewhere_ = -1;
    const std::lock_guard lock(mutex_);
    windows_.push_back({elsewhere_since_, Collector::now(), static_cast<std::uint64_t>(own_op)});
  }
  own_op = -1;
  Collector::pop(kOpIds);
}

Capture::Capture(CaptureSettings settings)
    : settings_(std::move(settings)),
      collector_(settings_.buffer_bytes, settings_.whole_graphs),
      ranges_(
          [this](const char* name) {
            std::optional<std::int64_t> number;
            {
              const std::lock_guard lock(mutex_);
              number = names_.step(name);
            }
            if (number) {
              step(number);
            }
            return number.has_value();
          },
          [this] { step_end(); }),
      names_(settings_.mark) {
  const auto [first, last] =
      settings_.steps.value_or(std::pair<std::int64_t, std::int64_t>{0, INT64_MAX});
  window_.emplace(first, last);
  parser_ = std::make_unique<RecordParser>(fmt::format("{} process {}", host_name(), getpid()),
                                           &Collector::api_name);
}

Capture::~Capture() {
  if (reader_.joinable()) {
    if (abandoned_) {
      reader_.detach();
    } else {
      stop(true);
      reader_.join();
    }
  }
}

void CUPTIAPI Capture::callback(void* user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                const void* data) {
  auto& self = *static_cast<Capture*>(user);
  // Once it is over, threads may be past the end of what they keep for themselves.
  if (self.abandoned_ || self.over_ || data == nullptr) {
    return;
  }
  if (domain == CUPTI_CB_DOMAIN_NVTX) {
    self.ranges_.called(id, *static_cast<const CUpti_NvtxData*>(data));
    return;
  }
  if (domain == CUPTI_CB_DOMAIN_RESOURCE &&
      (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED || id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED)) {
    const void* graph = static_cast<const CUpti_ResourceData*>(data)->resourceDescriptor;
    if (graph != nullptr) {
      self.graph_node(id, *static_cast<const CUpti_GraphData*>(graph));
    }
    return;
  }
  // A context goes, and its records with it.
  const bool reset = domain == CUPTI_CB_DOMAIN_RUNTIME_API &&
                     static_cast<const CUpti_CallbackData*>(data)->callbackSite == CUPTI_API_ENTER;
  if (reset || domain == CUPTI_CB_DOMAIN_RESOURCE) {
    self.collector_.flush(false);
  }
}

/// A node belongs to the op under which it was made; an executable graph has clones of its nodes.
void Capture::graph_node(CUpti_CallbackId made, const CUpti_GraphData& graph) {
  const std::uint64_t node = Collector::node_id(graph.node);
  if (node == 0) {
    return;
  }
  if (made == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
    if (const std::int64_t op = own_op >= 0 ? own_op : elsewhere_.load(); op >= 0) {
      const std::lock_guard lock(mutex_);
      node_ops_[node] = static_cast<std::uint64_t>(op);
    }
    return;
  }
  const std::uint64_t original = Collector::node_id(graph.originalNode);
  const std::lock_guard lock(mutex_);
  if (const auto found = node_ops_.find(original); found != node_ops_.end()) {
    node_ops_[node] = found->second;
  }
}

Collector::Rejection Capture::open() {
  Collector::Rejection rejection = collector_.open(&Capture::callback, this);
  if (!rejection.reason.empty()) {
    return rejection;
  }
  first_ = Collector::clocks();
  if (settings_.steps) {
    collector_.watch_ranges(true);
  }
  if (settings_.own_ops) {
    collector_.watch_graph_nodes();
  }
  const bool at_once = settings_.steps ? settings_.steps->first == 0 : !settings_.on_signal;
  if (at_once) {
    if (std::string failure = collector_.enable(); !failure.empty()) {
      collector_.close();
      return {false, failure};
    }
    const std::lock_guard lock(mutex_);
    state_ = State::kCollecting;
    collecting_since_ = Collector::now();
    begin_ = settings_.steps ? kNever : collecting_since_;
  }
  // Signals are the application's: none is delivered to the reading thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  reader_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return {};
}

void Capture::apply(StepWindow::Change change, std::int64_t at) {
  switch (change) {
    case StepWindow::Change::kNone:
      return;
    case StepWindow::Change::kWarmUp:
      start_ = true;
      break;
    case StepWindow::Change::kBegin:
      if (settings_.steps) {
        begin_ = at;
        start_ = true;
      }
      break;
    case StepWindow::Change::kEnd:
      if (settings_.steps) {
        finish_ = at;
        end_ = true;
      }
      break;
  }
  collector_.wake();
}

void Capture::step(std::optional<std::int64_t> number) {
  if (abandoned_ || over_) {
    return;
  }
  const std::int64_t at = Collector::now();
  const std::lock_guard lock(mutex_);
  if (state_ == State::kEnding || state_ == State::kEnded) {
    return;
  }
  const std::int64_t this_one = number.value_or(next_step_);
  next_step_ = this_one + 1;
  apply(window_->begin(this_one, at, this_thread()), at);
}

void Capture::step_end() {
  if (abandoned_ || over_) {
    return;
  }
  const std::int64_t at = Collector::now();
  const std::lock_guard lock(mutex_);
  if (state_ != State::kEnding && state_ != State::kEnded) {
    apply(window_->end(at), at);
  }
}

void Capture::called(const NcclCall& call) {
  if (abandoned_ || over_) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (state_ == State::kCollecting || state_ == State::kEnding) {
    if (calls_.size() < kMostCalls) {
      calls_.push_back(call);
    } else {
      ++lost_calls_;
    }
  }
}

void Capture::detailed(const NcclDetail& detail) {
  if (abandoned_ || over_) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if ((state_ == State::kCollecting || state_ == State::kEnding) && details_.size() < kMostCalls) {
    details_.push_back(detail);
  }
}

void Capture::start_collecting() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kIdle) {
      return;
    }
  }
  std::string failure = collector_.enable();
  const std::int64_t at = Collector::now();
  const std::lock_guard lock(mutex_);
  state_ = State::kCollecting;
  collecting_since_ = at;
  if (!settings_.steps) {
    begin_ = at;
  }
  if (!failure.empty()) {
    failure_ = std::move(failure);
    end_ = true;
  }
}

/// Reasons to begin or end that lie outside the application's steps.
void Capture::check_limits() {
  const std::uint32_t signals = signals_.load();
  while (settings_.on_signal && signals_seen_ < signals) {
    ++signals_seen_;
    (signals_seen_ % 2 == 1 ? start_ : end_) = true;
  }
  const std::lock_guard lock(mutex_);
  if (state_ != State::kCollecting) {
    return;
  }
  const std::int64_t from = settings_.steps ? begin_ : collecting_since_;
  if (settings_.seconds && from != kNever) {
    const auto last = from + static_cast<std::int64_t>(*settings_.seconds * kSecond);
    if (Collector::now() >= last) {
      finish_ = std::min(finish_, last);
      end_ = true;
    }
  }
  if (parser_->size() > settings_.most_records) {
    truncated_ = true;
    end_ = true;
  }
}

/// Leaves a record now and then, more often at first.
void Capture::mark() {
  const std::int64_t at = Collector::now();
  const std::int64_t pause = marks_.size() < 10 ? kSecond / 10 : kSecond;
  const std::int64_t before = marks_.empty() ? collecting_since_ : marks_.back();
  if (at - before >= pause && collector_.mark()) {
    marks_.push_back(at);
  }
}

/// Tells from the marks that came back, and from when on none did, whether CUPTI's buffers went to
/// somebody else. Where none ever came, but other records did, marks say nothing.
void Capture::note_taken() {
  const std::int64_t last = parser_->last_own_call();
  const auto lost = std::upper_bound(marks_.begin(), marks_.end(), last);
  const bool known = last > 0 || parser_->size() == 0;
  if (lost == marks_.end() || !known) {
    return;
  }
  const std::lock_guard lock(mutex_);
  const std::int64_t from = lost == marks_.begin() ? collecting_since_ : *(lost - 1);
  taken_ = fmt::format(
      "another tool took CUPTI's buffers {:.1f} s after the capture began (torch.profiler does): "
      "what came after is missing; leave that tool out",
      static_cast<double>(from - collecting_since_) / kSecond);
}

/// Reads until the device has caught up with what was launched, or for long enough.
void Capture::drain() {
  constexpr std::int64_t kLongest = 5 * kSecond;
  const std::int64_t until = Collector::now() + kLongest;
  collector_.flush(false);
  collector_.read(*parser_, 0);
  while (!exiting_ && Collector::now() < until && !parser_->complete()) {
    collector_.flush(false);
    collector_.read(*parser_, 100);
  }
  if (!parser_->complete()) {
    collector_.flush(true);
    collector_.read(*parser_, 0);
  }
}

void Capture::run() {
  constexpr std::uint32_t kPoll = 50;
  parser_->own_thread(static_cast<std::uint32_t>(this_thread()));
  while (!end_ && !abandoned_) {
    if (start_) {
      start_collecting();
    }
    if (state_ == State::kCollecting) {  // which only this thread changes by now
      mark();
    }
    if (collector_.half_full(kPoll)) {
      collector_.read(*parser_, 0);
    }
    check_limits();
  }
  if (abandoned_) {
    return;
  }
  bool collected = false;
  {
    const std::lock_guard lock(mutex_);
    collected = state_ == State::kCollecting && failure_.empty();
    state_ = State::kEnding;
    finish_ = std::min(finish_, Collector::now());
  }
  if (collected) {
    if (const std::int64_t at = Collector::now(); collector_.mark()) {
      marks_.push_back(at);
    }
    collector_.disable();
    drain();
    note_taken();
  }
  last_ = Collector::clocks();
  if (!exiting_) {
    collector_.close();
  }
  {
    const std::lock_guard lock(mutex_);
    for (const NcclCall& call : calls_) {
      parser_->add(call);
    }
    for (const NcclDetail& detail : details_) {
      parser_->add(detail);
    }
    for (const auto& [node, op] : node_ops_) {
      parser_->add_node(node, op);
    }
    for (const RecordParser::OpWindow& window : windows_) {
      parser_->add(window);
    }
    calls_.clear();
    details_.clear();
    state_ = State::kEnded;
    over_ = true;
  }
  if (on_end_) {
    on_end_(*this);
  }
}

void Capture::stop(bool exiting) {
  if (abandoned_ || !reader_.joinable()) {
    return;
  }
  exiting_ = exiting;
  end_ = true;
  collector_.wake();
  if (reader_.get_id() != std::this_thread::get_id()) {
    reader_.join();
  }
}

std::optional<traces::Recording> Capture::take(LaunchedRank rank) {
  CaptureFacts facts;
  {
    const std::lock_guard lock(mutex_);
    facts.begin = begin_;
    facts.end = finish_;
    facts.first = first_;
    facts.last = last_;
    facts.steps = window_->steps(std::min(finish_, last_.capture));
    facts.dropped = lost_calls_;
    if (collecting_since_ > begin_ && collecting_since_ != kNever) {
      facts.metadata["late_start_ns"] = std::to_string(collecting_since_ - begin_);
    }
  }
  if (parser_ == nullptr || facts.begin == kNever) {
    return std::nullopt;
  }
  facts.rank = rank.rank;
  facts.world_size = rank.world_size;
  facts.process = getpid();
  facts.mark = settings_.mark;
  facts.dropped += collector_.dropped() + collector_.declined_buffers();
  facts.metadata["cupti"] = Collector::version();
  facts.metadata["clock.boot"] = boot_id();
  facts.metadata["host"] = host_name();
  if (const std::string problems = collector_.problems(); !problems.empty()) {
    facts.metadata["cupti.problems"] = problems;
  }
  if (collector_.declined_buffers() > 0) {
    facts.metadata["cupti.declined_buffers"] = std::to_string(collector_.declined_buffers());
  }
  if (const auto [records, seconds] = collector_.read_so_far(); records > 0 && seconds > 0) {
    const double window = static_cast<double>(last_.capture - collecting_since_) / kSecond;
    const auto count = static_cast<double>(records);
    facts.metadata["cupti.records"] =
        fmt::format("{} records in {:.3g} s ({:.3g} a second), read at {:.3g} a second", records,
                    window, count / window, count / seconds);
  }
  if (!taken_.empty()) {
    facts.metadata["cupti.taken"] = taken_;
  }
  if (truncated_) {
    facts.metadata["truncated"] = fmt::format("after {} records", settings_.most_records);
  }
  const std::unique_ptr<RecordParser> parser = std::move(parser_);
  traces::Recording recording = std::move(*parser).finish(facts);
  const traces::Events& events = recording.ranks.front().events;
  const bool any = std::any_of(events.category.begin(), events.category.end(), [](auto c) {
    return traces::is_device_work(c) || c == traces::EventCategory::kRuntimeCall;
  });
  return any ? std::optional(std::move(recording)) : std::nullopt;
}

std::string Capture::shortfall() const {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) {
    return failure_;
  }
  if (!taken_.empty()) {
    return taken_;
  }
  if (settings_.steps && begin_ == kNever) {
    return fmt::format(
        "step {} never began: the program marks no such step (NVTX ranges \"step N\", "
        "\"iteration N\" or those named by --mark, or calls of stepcast_profile_step())",
        settings_.steps->first);
  }
  if (settings_.on_signal && signals_seen_ == 0) {
    return "no SIGUSR2 came";
  }
  return {};
}

}  // namespace stepcast::profiler::cupti
