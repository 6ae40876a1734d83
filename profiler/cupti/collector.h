#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "profiler/capture/record_buffers.h"
#include "profiler/cupti/cupti_records.h"
#include "profiler/cupti/record_parser.h"

namespace stepcast::profiler::cupti {

/// Every call into CUPTI, and what of CUPTI's rules they keep:
///
/// - the timestamp callback is set before any kind is enabled, and gives the monotonic clock;
/// - single APIs are switched off after the kinds, which would override that;
/// - no lock of ours is held over a flush or a count of drops: both call back;
/// - the count of drops is read whenever a buffer comes back; a declined buffer is counted too.
///
/// CUPTI's buffer callbacks carry no user data: one collector is the current one of the process.
class Collector {
 public:
  Collector(std::uint64_t buffer_bytes, bool whole_graphs)
      : buffers_(buffer_bytes), whole_graphs_(whole_graphs) {}
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  struct Rejection {
    bool busy = false;   ///< another tool is subscribed
    std::string reason;  ///< with the version of CUPTI
  };
  /// Subscribes and registers. `callback` gets `user_data`. Empty reason: done.
  Rejection open(CUpti_CallbackFunc callback, void* user_data);
  /// Gives the subscription back; others may profile then.
  void close();

  /// Enables what a capture needs; a message where a needed kind cannot be.
  std::string enable();
  void disable();
  /// Buffers whose records are complete come back; all of them if `forced`. Waits for no device.
  void flush(bool forced);
  /// Callbacks of steps: ranges of the program.
  void watch_ranges(bool on);
  /// Callbacks of nodes of CUDA graphs as they are made.
  void watch_graph_nodes();
  /// The id by which records name a node; 0: CUPTI does not say.
  static std::uint64_t node_id(CUgraphNode node);

  /// A driver call that has no effect but its record. Whoever registers buffers of their own gets
  /// that from then on (torch.profiler does, whether or not it is subscribed). Returns whether the
  /// call was made.
  bool mark();

  /// Waits up to `milliseconds` until half of the buffers wait to be read; whether they do.
  bool half_full(std::uint32_t milliseconds) { return buffers_.half_full(milliseconds); }
  /// Hands records of filled buffers to the parser; waits up to `milliseconds` for the first.
  void read(RecordParser& parser, std::uint32_t milliseconds);
  /// Records read so far, and how long that took.
  [[nodiscard]] std::pair<std::uint64_t, double> read_so_far() const {
    return {records_, reading_s_};
  }
  void wake() { buffers_.wake(); }
  /// Records that CUPTI dropped, as it counts them.
  [[nodiscard]] std::uint64_t dropped() const { return dropped_.load(); }
  [[nodiscard]] std::uint64_t declined_buffers() const { return buffers_.declined(); }
  /// Calls that failed without being needed, for the trace's metadata.
  [[nodiscard]] std::string problems() const;

  /// External correlation ids of the calling thread: a stack of each kind.
  static void push(CUpti_ExternalCorrelationKind kind, std::uint64_t id) {
    cuptiActivityPushExternalCorrelationId(kind, id);
  }
  static void pop(CUpti_ExternalCorrelationKind kind) {
    cuptiActivityPopExternalCorrelationId(kind, nullptr);
  }

  static std::string api_name(bool runtime, std::uint32_t callback);
  /// ns of the clock all records bear.
  static std::int64_t now();
  static ClockPair clocks();
  /// "130001": of the library that is loaded.
  static std::string version();

  // Functions that CUPTI calls back.
  void give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records);
  void take_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                   std::size_t valid);

 private:
  Rejection subscribe(bool named, CUpti_CallbackFunc callback, void* user_data);
  bool note(CUptiResult result, const char* call);

  RecordBuffers buffers_;
  bool whole_graphs_;
  std::atomic<std::uint64_t> dropped_{0};
  std::int64_t shift_ = 0;  ///< from stamps of CUPTI's own clock to ours; 0: it takes ours
  std::uint64_t records_ = 0;
  double reading_s_ = 0;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  mutable std::mutex problems_mutex_;  ///< callbacks note theirs on the application's threads
  std::string problems_;
};

}  // namespace stepcast::profiler::cupti
