#include "traces/perfetto/perfetto_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "traces/input/gzip.h"

namespace stepcast::traces {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  return out;
}

double microseconds_of(SimTime t) { return static_cast<double>(ticks(t)) * 1e-6; }

std::string_view name_of(HostSpan::Kind kind) {
  switch (kind) {
    case HostSpan::Kind::kIssue:
      return "issue";
    case HostSpan::Kind::kQueueFull:
      return "queue full";
    case HostSpan::Kind::kSynchronize:
      return "synchronize";
  }
  return "host";
}

class EventList {
 public:
  void slice(std::string_view name, std::string_view category, int process, int track,
             SimTime begin, SimTime end, const std::string& arguments) {
    add(fmt::format(
        R"({{"ph":"X","name":"{}","cat":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
        escaped(name), category, process, track, microseconds_of(begin),
        microseconds_of(SimTime{ticks(end) - ticks(begin)}), arguments));
  }
  void label(std::string_view what, int process, int track, std::string_view name) {
    add(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":"{}"}}}})", what,
                    process, track, escaped(name)));
  }
  [[nodiscard]] std::string document(const std::string& title) const {
    return fmt::format(
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"producer\":\"{}\"}},\"traceEvents\":[\n{}"
        "\n]}}\n",
        escaped(title), fmt::to_string(text_));
  }

 private:
  void add(const std::string& event) {
    if (text_.size() > 0) {
      fmt::format_to(std::back_inserter(text_), ",\n");
    }
    fmt::format_to(std::back_inserter(text_), "{}", event);
  }
  fmt::memory_buffer text_;
};

constexpr int kHostTrack = 0;

/// Tracks after the streams of a rank, in the order in which their names first come.
void add_annotations(EventList& events, const ExecutionGraph& graph,
                     std::span<const Annotation> annotations) {
  std::map<std::int32_t, std::vector<std::string>> tracks;
  for (const Annotation& a : annotations) {
    std::vector<std::string>& names = tracks[a.rank];
    const auto first = static_cast<int>(graph.program_of(a.rank).streams.size()) + 1;
    auto at = std::find(names.begin(), names.end(), a.track);
    const int track = first + static_cast<int>(at - names.begin());
    if (at == names.end()) {
      names.push_back(a.track);
      events.label("thread_name", a.rank, track, a.track);
    }
    events.slice(a.name, "report", a.rank, track, a.begin, a.end, "");
  }
}

}  // namespace

void write_perfetto(const std::filesystem::path& file, const ExecutionGraph& graph,
                    std::span<const OpSpan> ops, std::span<const HostSpan> host,
                    const std::string& title, std::span<const Annotation> annotations) {
  EventList events;
  std::set<std::int32_t> ranks;
  for (const OpSpan& s : ops) {
    ranks.insert(s.rank);
  }
  for (const std::int32_t rank : ranks) {
    events.label("process_name", rank, 0, fmt::format("rank {}", rank));
    events.label("thread_name", rank, kHostTrack, "host");
    const auto& streams = graph.program_of(rank).streams;
    for (std::size_t s = 0; s < streams.size(); ++s) {
      events.label("thread_name", rank, static_cast<int>(s) + 1, streams[s]);
    }
  }
  for (const OpSpan& s : ops) {
    const Program& program = graph.program_of(s.rank);
    const Op& op = program.ops[s.ref.op];
    const int track = op.stream + 1;
    const std::string arguments = fmt::format(
        R"("kind":"{}","phase":"{}","microbatch":{},"call":{},"op":{},"step":{})", name_of(op.kind),
        name_of(op.phase), program.calls[s.ref.call].microbatch, s.ref.call, s.ref.op, s.step);
    if (s.ready > s.begin) {
      events.slice(program.name(op) + " (wait)", "wait", s.rank, track, s.begin, s.ready,
                   arguments);
    }
    events.slice(program.name(op), name_of(class_of(op.kind)), s.rank, track,
                 std::max(s.begin, s.ready), s.end, arguments);
  }
  for (const HostSpan& s : host) {
    events.slice(name_of(s.kind), "host", s.rank, kHostTrack, s.begin, s.end,
                 fmt::format(R"("step":{})", s.step));
  }
  add_annotations(events, graph, annotations);
  write_by_extension(file, events.document(title));
}

}  // namespace stepcast::traces
