#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/graph/op.h"
#include "traces/events/names.h"
#include "traces/events/narrow_column.h"
#include "traces/events/oddities.h"
#include "traces/trace.h"

namespace stepcast::traces {

/// Exact times. Profilers stamp nanoseconds since 1970, 19 digits, which a double cannot hold.
using Nanoseconds = std::chrono::nanoseconds;

/// Kind of an event. Host events lie on host lanes, device events on stream lanes.
enum class EventCategory : std::uint8_t {
  // Host.
  kCpuOp,           ///< an operator of the framework ("aten::mm"); ops nest
  kUserRange,       ///< a named range of the program ("ProfilerStep#3", "nccl:all_reduce"); nests
  kPythonFunction,  ///< a frame of the Python stack; nests
  kRuntimeCall,     ///< a call into CUDA or HIP: launches, copies, waits (host_calls.h tells which)
  kOverhead,        ///< the profiler's own work
  kHostOther,
  // Device.
  kKernel,       ///< a compute kernel
  kCollective,   ///< a kernel of a communication library, or a communication op of our own runtime
  kMemcpy,       ///< a copy
  kMemset,       ///< a fill
  kSync,         ///< a wait as the device saw it (detail: SyncInfo)
  kEventRecord,  ///< a point of a stream that waits refer to (detail: SyncInfo)
  kDeviceRange,  ///< the span of the work a user range launched; not work itself
  kDeviceOther,
  kCount
};
std::string_view name_of(EventCategory category);
constexpr bool on_device(EventCategory c) { return c >= EventCategory::kKernel; }
/// Occupies its stream: the events a replay must order and re-time.
constexpr bool is_device_work(EventCategory c) {
  return c >= EventCategory::kKernel && c <= EventCategory::kMemset;
}

/// Index of an event within its rank.
using EventId = std::uint32_t;
constexpr EventId kNoEvent = UINT32_MAX;
constexpr std::int32_t kNoDetail = -1;

/// The events of one rank, one array per field. Events of a lane are contiguous (Lane::first,
/// Lane::count) and in order of `begin`; of two that begin together the longer comes first, so that
/// a parent precedes its children.
struct Events {
  std::vector<Nanoseconds> begin;      ///< since Recording::origin
  NarrowColumn<Nanoseconds> duration;  ///< >= 0
  std::vector<NameId> name;
  std::vector<EventCategory> category;
  std::vector<std::uint16_t> lane;
  /// Joins a runtime call to the device work it launched. 0 where there is none. Join by this and
  /// never by time; `link` holds the result.
  NarrowColumn<std::int64_t> correlation;
  /// The framework's own id of an op, or the node id of an execution graph; -1 where none. Native
  /// traces: call * 2^32 + op, the OpRef of the graph that ran. In
  /// traces before 2023 that of a device event is only its correlation again.
  NarrowColumn<std::int64_t> external;
  /// Index into the rank's table for the category: cpu ops and ranges `ops`, kernels `launches`,
  /// collectives `collectives`, copies and fills `copies`, syncs and event records `syncs`;
  /// kNoDetail where nothing more is known.
  std::vector<std::int32_t> detail;
  /// Device events: the host call that launched it, kNoEvent for an orphan. Runtime calls: the
  /// first device event it launched (a CUDA graph launches many), kNoEvent for none.
  std::vector<EventId> link;

  /// Calls `f` with each column but `link`.
  template <typename F>
  void each_column(F&& f) {
    f(begin), f(duration), f(name), f(category), f(lane), f(correlation), f(external), f(detail);
  }
  [[nodiscard]] std::size_t size() const { return begin.size(); }
  [[nodiscard]] Nanoseconds end(EventId e) const { return begin[e] + duration[e]; }
};

/// A row of events that happen one after the other: a host thread, whose ranges nest, or a stream
/// of a device, which is a first-in first-out queue.
struct Lane {
  enum class Kind : std::uint8_t { kHostThread, kStream };
  Kind kind = Kind::kHostThread;
  std::int64_t process = 0;  ///< of the operating system; streams: the device
  std::int64_t thread = 0;   ///< of the operating system; streams: the stream
  std::int32_t device = -1;  ///< streams only
  /// Streams only. -1: the row of records that belong to no stream, such as host-side waits.
  std::int32_t stream = -1;
  std::int32_t context = -1;  ///< streams only, where known
  NameId name = kNoName;      ///< as the trace calls it
  EventId first = 0;
  std::uint32_t count = 0;
};

/// More about a cpu op or a range. Texts are JSON as recorded, e.g. shapes "[[1024,32],[32]]";
/// shapes_of() parses them.
struct OpInfo {
  NameId shapes = kNoName;
  NameId types = kNoName;               ///< e.g. ["float","float"]
  NameId inputs = kNoName;              ///< concrete values
  std::int32_t collective = kNoDetail;  ///< index into `collectives`: the op issues a collective
  std::int64_t sequence = -1;           ///< joins a forward op to its backward
  std::int64_t record_function = -1;    ///< the execution trace's rf_id
  std::int64_t forward_thread = -1;
};

/// How a kernel was launched; equal launches share one entry.
struct LaunchInfo {
  std::array<std::int32_t, 3> grid{};
  std::array<std::int32_t, 3> block{};
  std::int32_t registers = -1;
  std::int32_t shared_memory = -1;  ///< bytes
  std::int64_t graph = -1;          ///< CUDA graph it is a node of; -1: none
  std::int64_t graph_node = -1;
  bool operator==(const LaunchInfo&) const = default;
};

struct CopyInfo {
  std::int64_t bytes = -1;
  std::int32_t peer = -1;  ///< the other device of a peer copy
};

/// Facts known of one collective on one rank. Sizes are -1 where the trace does not say.
struct CollectiveInfo {
  OpKind kind = OpKind::kCount;  ///< kCount: unknown
  NameId name = kNoName;         ///< as recorded: "allreduce", "_allgather_base"
  std::int32_t group = -1;       ///< index into RankRecording::groups
  std::int64_t sequence = -1;    ///< within the communicator; -1: match by order
  std::int64_t elements_in = -1;
  std::int64_t elements_out = -1;
  NameId dtype = kNoName;
  std::int64_t bytes = -1;              ///< larger of input and output, this rank
  std::int32_t peer = -1;               ///< global rank of the other side, or the root
  std::vector<std::int64_t> split_in;   ///< elements to each member; empty: equal parts
  std::vector<std::int64_t> split_out;  ///< elements from each member
  bool from_host = false;  ///< taken from the host op that launched the kernel, not from the kernel
};

/// A communicator as a rank saw it.
struct Group {
  std::string name;
  std::string description;
  std::vector<std::int32_t> ranks;  ///< global ranks; empty where only the size is known
  std::int32_t size = 0;            ///< 0: unknown
};

/// A wait or the event it waits for. A stream wait orders two streams: work on `stream` that the
/// host issues after the call with this record's correlation starts no earlier than everything on
/// `source_stream` that was issued before the call `record_correlation` has ended. Events are
/// reused, so pairs are matched by `record_correlation`, never by `event`.
struct SyncInfo {
  enum class Kind : std::uint8_t { kRecord, kStreamWait, kEventSync, kStreamSync, kContextSync };
  Kind kind = Kind::kRecord;
  std::int32_t stream = -1;              ///< that waits, or that the event was recorded on
  std::int32_t source_stream = -1;       ///< that is waited for; -1: unknown
  std::int64_t event = -1;               ///< handle or number of the event
  std::int64_t record_correlation = -1;  ///< of the cudaEventRecord call; -1: unknown
};

/// A step of the program: a host interval. Device work it launched may run past `end`, so define
/// iteration time as begin to begin, or include the drain explicitly; never use the recorded end of
/// the step that is predicted (R5).
struct StepRange {
  std::int64_t number = 0;
  Nanoseconds begin{};
  Nanoseconds end{};
  EventId event = kNoEvent;  ///< the range that marks it
};

/// A change of a device's memory, as the allocator told the profiler.
struct MemoryChange {
  Nanoseconds at{};
  std::int64_t address = 0;
  std::int64_t bytes = 0;                    ///< negative: freed
  std::int64_t allocated = 0, reserved = 0;  ///< of the device, after it
  std::int64_t process = 0, thread = 0;      ///< of the host
  std::int32_t device = 0;
};

/// Edges of an execution graph (PyTorch execution traces, Chakra): the predecessors of event e are
/// targets[offsets[e]] .. targets[offsets[e + 1]]. Empty for traces that are timelines.
struct Dependencies {
  enum class Kind : std::uint8_t { kControl, kData };
  std::vector<std::uint32_t> offsets;
  std::vector<EventId> targets;
  std::vector<Kind> kinds;
  /// For a timeline: edges that an execution graph added to what its times and launches imply.
  bool added = false;
  [[nodiscard]] bool empty() const { return targets.empty(); }
  [[nodiscard]] std::span<const EventId> of(EventId e) const {
    return offsets.empty() ? std::span<const EventId>{}
                           : std::span(targets).subspan(offsets[e], offsets[e + 1] - offsets[e]);
  }
};

/// Which times a trace has. Execution graphs carry durations without begins, or no times at all;
/// their events begin at 0.
enum class Timing : std::uint8_t { kTimeline, kDurations, kNone };

/// Record of one rank.
///
/// For replay: device work of a stream lane runs in lane order; `events.link` gives its launch, so
/// host time from launch to launch on one host lane is the host's own work once waits are stripped
/// (R2: HostCall says which calls wait; a launch may too, when its queue is full). Device work with
/// no launch is kept, flagged by link == kNoEvent: attribute it by stream order. `syncs` give the
/// edges between streams where the profiler recorded them; where it did not (kUnpairedWait, or no
/// sync records at all) they must be inferred. Steps bound what is rebuilt and what is predicted
/// (R4).
struct RankRecording {
  std::int32_t rank = 0;
  std::int32_t world_size = 0;  ///< as the trace says; 0: not said
  std::string source;           ///< the file, as given
  Timing timing = Timing::kTimeline;
  Events events;
  std::vector<Lane> lanes;  ///< host threads first, then streams by device and stream
  std::vector<OpInfo> ops;
  std::vector<LaunchInfo> launches;
  std::vector<CopyInfo> copies;
  std::vector<CollectiveInfo> collectives;
  std::vector<SyncInfo> syncs;
  std::vector<MemoryChange> memory;  ///< by time; empty where memory was not recorded
  std::vector<Group> groups;
  std::vector<StepRange> steps;  ///< by begin; empty where the trace marks none
  Dependencies dependencies;
  /// For execution graphs, by node id (Events::external): what a node holds beyond the events, such
  /// as its outputs, as fields of a node in Chakra's wire format.
  std::map<std::int64_t, std::string> node_fields;
  std::vector<std::string> devices;  ///< names, by device number
  /// What else the file says of itself: "backend", "nccl_version", "schema", ... in words.
  std::map<std::string, std::string> metadata;
  /// Records of the source by its own kind ("X", "f", "node", ...), kept or not.
  std::map<std::string, std::uint64_t> records;
  /// Events by category, of those that this version does not know; "" for none said.
  std::map<std::string, std::uint64_t> unknown_categories;
  ParseWarnings oddities;

  [[nodiscard]] std::uint64_t count(EventCategory category) const;
};

/// Content of a trace, whatever recorded it: `open_trace` (traces/open_trace.h) makes it from any
/// format, the writers make any format from it. Either the graph that our own runtime ran with the
/// times of its ops (`own`), or the events of any program (`ranks`); `events_of`
/// (traces/events/open_native.h) tells the first as the second.
struct Recording {
  std::string format;    ///< of the source: "native", "kineto", "pytorch-et", "chakra"
  std::string producer;  ///< tool and version, where known
  std::string job;       ///< native traces: the resolved job, JSON text
  /// Event times count from here. Nanoseconds since 1970 where `absolute`, else of any clock.
  /// Ranks share it: their times are comparable as far as their clocks agree (not aligned here).
  Nanoseconds origin{};
  bool absolute = false;
  Names names;
  std::shared_ptr<const GraphRun> own;  ///< then `ranks` have no events; else null
  std::vector<RankRecording> ranks;     ///< by rank, each once
  ParseWarnings oddities;               ///< of the set; the ranks' own are theirs

  [[nodiscard]] ParseWarnings all_oddities() const;
};

/// The dimensions in a text such as "[[1024, 32], [], [32]]": one list per operand; operands that
/// are lists of tensors are flattened in order. Anything that is not such a text gives no lists.
std::vector<std::vector<std::int64_t>> shapes_of(std::string_view text);

}  // namespace stepcast::traces
