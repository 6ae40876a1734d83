#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "profiler/capture/capture_settings.h"
#include "profiler/capture/step_marks.h"
#include "profiler/cupti/collector.h"
#include "profiler/cupti/range_watch.h"

namespace stepcast::profiler::cupti {

/// A capture of the running process: when to collect, and a thread of its own that reads what was
/// collected, so that the application's threads only ever hand over buffers.
///
/// Collecting begins one step before the first that is asked for (CUPTI prepares itself at first
/// use, and launches in flight would be orphans), and what lies before it is cut afterwards by the
/// calls' times. It ends by its steps, its duration, a signal, its memory, or stop(). The work that
/// the window launched is waited for without synchronising anything: the device may run far behind.
class Capture {
 public:
  explicit Capture(CaptureSettings settings);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Subscribes and starts as the settings say. Empty reason: done.
  Collector::Rejection open();
  /// Called once, on the reading thread, when the capture has ended; from open() on.
  void on_end(std::function<void(Capture&)> end) { on_end_ = std::move(end); }

  // The application's threads.
  /// A step begins, by number or, without one, the next.
  void step(std::optional<std::int64_t> number = std::nullopt);
  void step_end();
  void called(const NcclCall& call);
  void detailed(const NcclDetail& detail);
  /// Kernels that the calling thread launches, or adds to a CUDA graph, until pop_op belong to this
  /// op. `elsewhere`: what other threads launch meanwhile too. Ops do not nest.
  void push_op(std::uint64_t op, bool elsewhere);
  void pop_op();
  void signalled() { signals_.fetch_add(1); }  ///< async-signal-safe

  /// Ends the capture if it runs, and waits until all is read. `exiting`: what is not complete by
  /// now will not be.
  void stop(bool exiting);
  /// After a fork the child has no reading thread and must not touch CUPTI.
  void abandon() { abandoned_ = true; }

  /// Takes what was captured; once, after the end. nullopt where nothing fell into the window.
  std::optional<traces::Recording> take(LaunchedRank rank);
  /// Why the capture gave nothing, or less than was asked for; empty: it did.
  [[nodiscard]] std::string shortfall() const;

 private:
  enum class State { kIdle, kCollecting, kEnding, kEnded };
  static void CUPTIAPI callback(void* user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                const void* data);
  void graph_node(CUpti_CallbackId made, const CUpti_GraphData& graph);
  void apply(StepWindow::Change change, std::int64_t at);
  void run();
  void start_collecting();
  void check_limits();
  void mark();
  void drain();
  void note_taken();

  CaptureSettings settings_;
  Collector collector_;
  RangeWatch ranges_;
  std::function<void(Capture&)> on_end_;
  std::unique_ptr<RecordParser> parser_;
  std::thread reader_;
  std::vector<std::int64_t>
      marks_;  ///< times of the calls by which the buffers are known to be ours
  std::atomic<bool> abandoned_{false}, start_{false}, end_{false}, exiting_{false}, over_{false};
  std::atomic<std::uint32_t> signals_{0};

  mutable std::mutex mutex_;  ///< never held over a call into CUPTI
  State state_ = State::kIdle;
  StepNames names_;
  std::optional<StepWindow> window_;
  std::int64_t next_step_ = 0;
  static constexpr std::int64_t kNever = INT64_MAX;
  std::int64_t begin_ = kNever, finish_ = kNever, collecting_since_ = kNever;  ///< ns
  std::vector<NcclCall> calls_;
  std::vector<NcclDetail> details_;
  std::unordered_map<std::uint64_t, std::uint64_t> node_ops_;  ///< of nodes made under an op
  std::vector<RecordParser::OpWindow> windows_;  ///< in which other threads launch for an op
  std::atomic<std::int64_t> elsewhere_{-1};      ///< the op for which they do now
  std::int64_t elsewhere_since_ = 0;
  std::uint64_t lost_calls_ = 0;
  ClockPair first_, last_;
  std::string failure_, taken_;
  bool truncated_ = false;
  std::uint32_t signals_seen_ = 0;
};

}  // namespace stepcast::profiler::cupti
