#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiler/capture/step_marks.h"
#include "profiler/cupti/cupti_records.h"
#include "profiler/nccl/nccl_calls.h"
#include "traces/events/rank_builder.h"

namespace stepcast::profiler::cupti {

/// One reading of two clocks at the same moment, in ns.
struct ClockPair {
  std::int64_t capture = 0;   ///< the clock of all records
  std::int64_t realtime = 0;  ///< since 1970
};

/// Facts that the parser cannot know from the records.
struct CaptureFacts {
  std::int32_t rank = 0;
  std::int32_t world_size = 0;  ///< 0: not known
  std::int64_t process = 0;
  /// Host calls that begin in [begin, end) are kept, with the work they launched, and work of
  /// others that runs meanwhile.
  std::int64_t begin = INT64_MIN, end = INT64_MAX;
  ClockPair first, last;
  std::vector<StepMark> steps;  ///< empty: found by the names of ranges
  std::string mark;             ///< of those names; empty: the usual ones
  std::uint64_t dropped = 0;    ///< records CUPTI says it lost
  std::map<std::string, std::string> metadata;
};

/// Turns CUPTI activity records into a recording of one rank. Makes no CUPTI call, so that it runs
/// wherever the headers are; records come in any order.
///
/// - Device work is joined to its launch by correlation id, never by time. Driver calls inside a
///   runtime call are that call.
/// - A wait is paired with the record it waits for by cudaEventSyncId; events are reused.
/// - Work of a CUDA graph shares its launch; its op is that of its node, where that is known.
/// - Records without times are counted, never used. Work whose launch is not there is kept.
/// - Stream ids count per context: where two contexts use one, the later gets a number of its own.
///
/// Texts are copied when a record is added, and overhead details freed, as CUPTI asks for.
class RecordParser {
 public:
  /// "cudaLaunchKernel_v7000" for a call, by its domain and number.
  using ApiName = std::function<std::string(bool runtime, std::uint32_t callback)>;
  RecordParser(std::string source, ApiName api_name);

  void add(const Record& record);
  /// Stamps of records plus this are times of the capture's clock.
  void shift_stamps(std::int64_t ns) { shift_ = ns; }
  /// Calls of this thread are the capture's own: not kept, only the time of the last.
  void own_thread(std::uint32_t thread) { own_thread_ = thread; }
  [[nodiscard]] std::int64_t last_own_call() const { return last_own_call_; }
  void add(const NcclCall& call) { nccl_.add(call); }
  void add(const NcclDetail& detail) { nccl_.add(detail); }
  /// The node of a CUDA graph does work of this op: known when the graph was made, by node.
  void add_node(std::uint64_t node, std::uint64_t op) { node_ops_[node] = op; }
  /// Launches in [begin, end) without an id belong to this op, whichever thread made them.
  struct OpWindow {
    std::int64_t begin = 0, end = 0;
    std::uint64_t op = 0;
  };
  void add(const OpWindow& window) { windows_.push_back(window); }
  /// Records held.
  [[nodiscard]] std::size_t size() const {
    return apis_.size() + work_.size() + syncs_.size() + records_.size() + ranges_.size();
  }

  /// Whether the work of every launch that was added is there too.
  [[nodiscard]] bool complete() const;

  /// The recording of the rank. Its origin is a time of the capture's clock; the metadata says what
  /// time of day that is.
  [[nodiscard]] traces::Recording finish(const CaptureFacts& facts) &&;

 private:
  using NameId = traces::NameId;
  struct Api {
    std::int64_t begin, end;
    std::uint32_t correlation;
    std::uint32_t process, thread;
    NameId name;
    bool runtime;
  };
  struct Work {
    std::int64_t begin, end;
    std::uint32_t correlation;
    std::uint32_t device, context, stream;
    NameId name;
    traces::EventCategory category;
    std::int32_t detail;     ///< launches or copies of the builder
    std::uint64_t node = 0;  ///< of a CUDA graph; 0: none
  };
  struct Sync {
    std::int64_t begin, end;
    std::uint32_t correlation, context, stream, event;
    std::uint64_t sync_id;
    traces::SyncInfo::Kind kind;
  };
  struct Recorded {
    std::uint32_t correlation, context, stream, event;
    std::uint64_t sync_id;
  };
  struct Range {
    std::int64_t begin, end;
    std::uint32_t process, thread, correlation;
    NameId name;
    traces::EventCategory category;
  };
  struct OpenRange {
    std::uint64_t begin;  ///< as stamped
    std::uint32_t process, thread;
    NameId name;
  };

  void add_kernel(const KernelRecord& r);
  /// Time on a device, of a record with correlation, device, context, stream, start and end.
  template <typename DeviceRecordType>
  void add_work(const DeviceRecordType& r, NameId name, traces::EventCategory category,
                std::int32_t detail);
  void add_api(const ApiRecord& r, bool runtime);
  void add_sync(const SyncRecord& r);
  void add_event(const EventRecord& r);
  void add_external(const ExternalRecord& r);
  void add_overhead(const OverheadRecord& r);
  void add_marker(const MarkerRecord& r);
  void add_device(const DeviceRecord& r);
  void add_stream(const StreamRecord& r);
  bool timed(std::uint64_t begin, std::uint64_t end, std::string_view what);
  [[nodiscard]] std::int64_t time(std::uint64_t stamp) const {
    return static_cast<std::int64_t>(stamp) + shift_;
  }
  std::int32_t append_copy(std::uint64_t bytes, std::int32_t peer);
  NameId kernel_name(const char* mangled);
  bool communicates(NameId kernel);

  void join_nested_calls();
  void name_calls_in_windows();
  void cut(const CaptureFacts& facts);
  void write_calls();
  void write_work();
  void write_syncs();
  void write_ranges(const CaptureFacts& facts);
  [[nodiscard]] std::uint32_t joined(std::uint32_t correlation) const;
  std::int32_t stream_number(std::uint32_t context, std::uint32_t stream);
  [[nodiscard]] std::int32_t device_of(std::uint32_t context) const;

  traces::Recording recording_;
  std::unique_ptr<traces::RankBuilder> builder_;
  ApiName api_name_;
  std::int64_t shift_ = 0;
  std::uint32_t own_thread_ = 0;
  std::int64_t last_own_call_ = 0;  ///< 0: none came
  std::map<std::pair<bool, std::uint32_t>, NameId> api_names_;
  std::unordered_map<std::string, NameId> demangled_;
  std::unordered_map<NameId, bool> communicates_;
  std::vector<Api> apis_;
  std::vector<Work> work_;
  std::vector<Sync> syncs_;
  std::vector<Recorded> records_;
  std::vector<Range> ranges_;
  std::unordered_map<std::uint32_t, OpenRange> open_;
  std::unordered_map<std::uint32_t, std::uint64_t> op_ids_, nccl_ids_;  ///< by correlation
  std::vector<OpWindow> windows_;
  std::unordered_map<std::uint64_t, std::uint64_t> node_ops_;  ///< by node of a graph
  std::unordered_map<std::uint32_t, std::uint32_t> outer_;     ///< nested call: the call around it
  std::map<std::uint32_t, std::uint32_t> devices_;             ///< by context
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::int32_t> streams_;
  std::map<std::int32_t, std::uint32_t> stream_taken_;  ///< number: context
  NcclCalls nccl_;
};

}  // namespace stepcast::profiler::cupti
