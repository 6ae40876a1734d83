#include "traces/xplane/xplane_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "traces/events/profiler_records.h"
#include "traces/input/whole_input.h"
#include "traces/input/wire.h"

namespace stepcast::traces {
namespace {

using internal::WireField;
using internal::WireReader;

/// Field numbers of xplane.proto.
enum SpaceField : std::uint32_t { kSpacePlanes = 1 };
enum PlaneField : std::uint32_t {
  kPlaneName = 2,
  kPlaneLines = 3,
  kPlaneEvents = 4,
  kPlaneStats = 5,
  kPlaneOwn = 6
};
enum LineField : std::uint32_t { kLineId = 1, kLineName = 2, kLineStart = 3, kLineEvents = 4 };
enum EventField : std::uint32_t {
  kEventName = 1,
  kEventOffset = 2,
  kEventDuration = 3,
  kEventStats = 4
};
enum StatField : std::uint32_t {
  kStatName = 1,
  kStatUnsigned = 3,
  kStatSigned = 4,
  kStatText = 5,
  kStatReference = 7
};
enum MapField : std::uint32_t { kMapKey = 1, kMapValue = 2 };
constexpr std::uint32_t kMetadataName = 2;

constexpr std::string_view kGpuPlane = "/device:GPU:";
constexpr std::string_view kHostPlane = "/host:";
constexpr std::string_view kStreamLine = "Stream #";
constexpr char kPythonFrame = '$';

/// A named value of an event: a number or a text.
struct XStat {
  std::string_view name;
  std::int64_t number = -1;
  std::string_view text;
};

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && value >= 0 ? std::optional(value) : std::nullopt;
}

/// Text behind "key:" in one such as "regs:32 grid:8,1,1".
std::string_view detail_of(std::string_view details, std::string_view key) {
  while (!details.empty()) {
    const std::size_t space = details.find(' ');
    const std::string_view item = details.substr(0, space);
    if (item.size() > key.size() && item.starts_with(key) && item[key.size()] == ':') {
      return item.substr(key.size() + 1);
    }
    details = space == std::string_view::npos ? std::string_view{} : details.substr(space + 1);
  }
  return {};
}

std::int32_t small_detail(std::string_view details, std::string_view key) {
  const auto value = whole_number(detail_of(details, key));
  return value && std::in_range<std::int32_t>(*value) ? static_cast<std::int32_t>(*value) : -1;
}

std::array<std::int32_t, 3> three_of(std::string_view text) {
  std::array<std::int32_t, 3> sizes{};
  for (std::int32_t& size : sizes) {
    const auto value = whole_number(text);
    size = value && std::in_range<std::int32_t>(*value) ? static_cast<std::int32_t>(*value) : 0;
    const std::size_t comma = text.find(',');
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
  }
  return sizes;
}

LaunchInfo launch_of(std::string_view details, std::int64_t graph, std::int64_t node) {
  LaunchInfo launch{.grid = three_of(detail_of(details, "grid")),
                    .block = three_of(detail_of(details, "block")),
                    .registers = small_detail(details, "regs"),
                    .graph = graph,
                    .graph_node = node};
  const std::int64_t own = small_detail(details, "static_shared");
  const std::int64_t asked = small_detail(details, "dynamic_shared");
  if (own >= 0 && asked >= 0 && own + asked <= INT32_MAX) {
    launch.shared_memory = static_cast<std::int32_t>(own + asked);
  }
  return launch;
}

/// "kind_src:pinned kind_dst:device size:4096": the direction by where the memory is; the event's
/// own name where that is not said.
std::string_view copy_name(std::string_view details, std::string_view otherwise) {
  const std::string_view source = detail_of(details, "kind_src");
  if (source.empty()) {
    return otherwise;
  }
  const bool from = source.starts_with("device");
  const bool to = detail_of(details, "kind_dst").starts_with("device");
  return from ? (to ? "Memcpy DtoD" : "Memcpy DtoH") : (to ? "Memcpy HtoD" : "Memcpy");
}

/// One plane: its tables of names first, as they stand behind the lines.
class XPlane {
 public:
  XPlane(const Input& input, std::string_view message, std::uint64_t offset) : input_(input) {
    WireReader reader(input, message, offset);
    for (WireField f; reader.next(f);) {
      if (f.number == kPlaneName && f.type == 2) {
        name_ = f.bytes;
      } else if (f.number == kPlaneLines && f.type == 2) {
        lines_.emplace_back(f.bytes, f.offset);
      } else if (f.number == kPlaneEvents && f.type == 2) {
        named(f, events_);
      } else if (f.number == kPlaneStats && f.type == 2) {
        named(f, stats_);
      } else if (f.number == kPlaneOwn && f.type == 2) {
        own_.emplace_back(f.bytes, f.offset);
      }
    }
  }

  using Part = std::pair<std::string_view, std::uint64_t>;  ///< a message and its place
  [[nodiscard]] std::string_view name() const { return name_; }
  [[nodiscard]] const std::vector<Part>& lines() const { return lines_; }
  [[nodiscard]] const Input& input() const { return input_; }
  [[nodiscard]] std::string_view event_name(std::int64_t id) const { return found(events_, id); }

  [[nodiscard]] XStat stat(const Part& part) const {
    XStat stat;
    WireReader reader(input_, part.first, part.second);
    for (WireField f; reader.next(f);) {
      if (f.number == kStatName && f.type == 0) {
        stat.name = found(stats_, f.integer());
      } else if ((f.number == kStatUnsigned || f.number == kStatSigned) && f.type == 0) {
        stat.number = f.integer();
      } else if (f.number == kStatText && f.type == 2) {
        stat.text = f.bytes;
      } else if (f.number == kStatReference && f.type == 0) {
        stat.text = found(stats_, f.integer());
      }
    }
    return stat;
  }
  /// For the plane itself; no number or text where it has none of that name.
  [[nodiscard]] XStat own(std::string_view name) const {
    for (const Part& part : own_) {
      if (const XStat s = stat(part); s.name == name) {
        return s;
      }
    }
    return {};
  }

 private:
  using Table = std::unordered_map<std::int64_t, std::string_view>;
  static std::string_view found(const Table& table, std::int64_t id) {
    const auto at = table.find(id);
    return at == table.end() ? std::string_view{} : at->second;
  }
  /// An entry of a map from ids to metadata.
  void named(const WireField& entry, Table& table) const {
    std::int64_t id = 0;
    std::string_view name;
    WireReader reader(input_, entry.bytes, entry.offset);
    for (WireField f; reader.next(f);) {
      if (f.number == kMapKey && f.type == 0) {
        id = f.integer();
      } else if (f.number == kMapValue && f.type == 2) {
        WireReader metadata(input_, f.bytes, f.offset);
        for (WireField m; metadata.next(m);) {
          name = m.number == kMetadataName && m.type == 2 ? m.bytes : name;
        }
      }
    }
    table[id] = name;
  }

  const Input& input_;
  std::string_view name_;
  std::vector<Part> lines_;
  std::vector<Part> own_;
  Table events_;
  Table stats_;
};

/// An event with what the model takes of its stats.
struct XEvent {
  ProfilerRecords::Span span;
  std::int64_t step = -1;
  std::int64_t graph = -1;
  std::int64_t graph_node = -1;
  bool whole_graph = false;
  bool correlated = false;
  std::string_view kernel, copy, fill;
};

class XPlaneRank {
 public:
  XPlaneRank(Input& input, Names& names) : records_(names, input.label()) {
    const std::string bytes = whole_input(input, kLargest);
    WireReader reader(input, bytes, 0);
    for (WireField f; reader.next(f);) {
      if (f.number == kSpacePlanes && f.type == 2) {
        plane(XPlane(input, f.bytes, f.offset));
      }
    }
    if (!device_work_) {
      throw InputError(input.label(),
                       fmt::format("holds no work of a GPU, only planes {}; expected "
                                   "a profile of a program that ran on GPUs",
                                   planes_.empty() ? "without events" : planes_));
    }
  }

  /// Lines count from the profile's start, or since 1970 where nobody has shifted them.
  RankRecording finish() && { return std::move(records_).finish(latest_ < base_ ? base_ : 0); }

 private:
  static constexpr std::size_t kLargest = std::size_t{1} << 31U;  // of a protobuf

  void plane(const XPlane& p) {
    if (const XStat start = p.own("profile_start_time"); start.number > 0) {
      constexpr std::int64_t kLatest = std::int64_t{1} << 62;
      base_ = start.number < kLatest ? start.number : 0;
    }
    if (!p.lines().empty() && planes_.size() < 200) {
      planes_ += (planes_.empty() ? "" : ", ") + std::string(p.name());
    }
    const bool host = p.name().starts_with(kHostPlane);
    const auto device = p.name().starts_with(kGpuPlane)
                            ? whole_number(p.name().substr(kGpuPlane.size()))
                            : std::nullopt;
    if (!host && !device) {
      unread(p.name(), p.lines().size());
      return;
    }
    if (device && *device < 1024) {
      auto& devices = records_.rank().devices;
      devices.resize(std::max(devices.size(), static_cast<std::size_t>(*device) + 1));
      devices[static_cast<std::size_t>(*device)] = p.own("gpu_device_name").text;
    }
    for (const auto& [message, offset] : p.lines()) {
      line(p, message, offset, device);
    }
  }

  void line(const XPlane& p, std::string_view message, std::uint64_t offset,
            std::optional<std::int64_t> device) {
    std::int64_t id = 0;
    std::int64_t start = 0;
    std::string_view name;
    std::vector<XPlane::Part> events;
    WireReader reader(p.input(), message, offset);
    for (WireField f; reader.next(f);) {
      if (f.number == kLineId && f.type == 0) {
        id = f.integer();
      } else if (f.number == kLineStart && f.type == 0) {
        start = f.integer();
      } else if (f.number == kLineName && f.type == 2) {
        name = f.bytes;
      } else if (f.number == kLineEvents && f.type == 2) {
        events.emplace_back(f.bytes, f.offset);
      }
    }
    if (device && !name.starts_with(kStreamLine)) {
      unread(name, events.size());  // what viewers derive from the streams, counters
      return;
    }
    latest_ = std::max(latest_, events.empty() ? 0 : start);
    for (const XPlane::Part& part : events) {
      const XEvent e = event(p, part, start);
      if (device) {
        work(e, {*device, -1, id}, name);
      } else {
        host(e, {0, id});
      }
    }
  }

  [[nodiscard]] static XEvent event(const XPlane& p, const XPlane::Part& part, std::int64_t start) {
    constexpr std::int64_t kPicoseconds = 1000;  // in a nanosecond
    XEvent e;
    std::int64_t offset = 0;
    std::int64_t duration = 0;
    WireReader reader(p.input(), part.first, part.second);
    for (WireField f; reader.next(f);) {
      if (f.number == kEventName && f.type == 0) {
        e.span.name = p.event_name(f.integer());
      } else if (f.number == kEventOffset && f.type == 0) {
        offset = f.integer();
      } else if (f.number == kEventDuration && f.type == 0) {
        duration = f.integer();
      } else if (f.number == kEventStats && f.type == 2) {
        take(p.stat({f.bytes, f.offset}), e);
      }
    }
    // Sums of what a damaged file may say stay in range; times that make no sense are left out.
    constexpr std::int64_t kLatest = std::int64_t{1} << 61;
    const bool sane = start >= 0 && start < kLatest && offset >= 0 && duration >= 0;
    e.span.begin = sane ? start + offset / kPicoseconds : -1;
    e.span.end = sane ? e.span.begin +
                            (offset % kPicoseconds + duration % kPicoseconds) / kPicoseconds +
                            duration / kPicoseconds
                      : -1;
    return e;
  }

  static void take(const XStat& s, XEvent& e) {
    if (s.name == "correlation_id") {
      e.span.correlation = std::max<std::int64_t>(0, s.number);
      e.correlated = true;
    } else if (s.name == "step_num") {
      e.step = s.number;
    } else if (s.name == "kernel_details") {
      e.kernel = s.text;
    } else if (s.name == "memcpy_details") {
      e.copy = s.text;
    } else if (s.name == "Memset_details") {
      e.fill = s.text;
    } else if (s.name == "cuda_graph_id") {
      e.graph = s.number;
    } else if (s.name == "cuda_graph_node_id") {
      e.graph_node = s.number;
    } else if (s.name == "cuda_graph_exec_id") {
      e.whole_graph = true;
    }
  }

  void work(const XEvent& e, const ProfilerRecords::Stream& stream, std::string_view line) {
    if (!e.kernel.empty() || e.whole_graph) {
      records_.kernel(e.span, stream, launch_of(e.kernel, e.graph, e.graph_node));
    } else if (!e.copy.empty()) {
      ProfilerRecords::Span span = e.span;
      span.name = copy_name(e.copy, e.span.name);
      records_.copy(span, stream, EventCategory::kMemcpy,
                    whole_number(detail_of(e.copy, "size")).value_or(-1));
    } else if (!e.fill.empty()) {
      records_.copy(e.span, stream, EventCategory::kMemset,
                    whole_number(detail_of(e.fill, "num_bytes")).value_or(-1));
    } else {
      unread(line, 1);  // allocations
      return;
    }
    device_work_ = true;
  }

  void host(const XEvent& e, const ProfilerRecords::Thread& thread) {
    if (e.correlated) {
      records_.call(e.span, thread);
    } else if (e.span.name.starts_with(kPythonFrame)) {
      records_.python(e.span, thread);
    } else if (e.step >= 0) {
      records_.step(e.span, thread, e.step);
    } else {
      records_.range(e.span, thread);
    }
  }

  void unread(std::string_view what, std::uint64_t count) {
    records_.rank().oddities.add(
        ParseWarning::kUnreadRecord,
        [&] { return fmt::format("{}: of '{}'", records_.rank().source, what.substr(0, 60)); },
        count);
  }

  ProfilerRecords records_;
  std::int64_t base_ = 0;    ///< start of the profile, where it is said
  std::int64_t latest_ = 0;  ///< start of a line
  bool device_work_ = false;
  std::string planes_;  ///< that hold lines, for the error
};

}  // namespace

RankRecording read_xplane(Input& input, Names& names) { return XPlaneRank(input, names).finish(); }

}  // namespace stepcast::traces
