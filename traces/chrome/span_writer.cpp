#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "traces/chrome/chrome_writer.h"
#include "traces/chrome/internal/chrome_events.h"
#include "traces/input/gzip.h"

namespace stepcast::traces {
namespace {

using internal::ChromeEvents;
using internal::json_text;

std::string microseconds_of(SimTime t) {
  return fmt::format("{:.3f}", static_cast<double>(ticks(t)) * 1e-6);
}

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

void add_slice(ChromeEvents& events, std::string_view category, std::string_view name,
               std::int32_t rank, int track, SimTime begin, SimTime end,
               std::string_view arguments) {
  events.slice({category, json_text(name), rank, track, microseconds_of(begin),
                microseconds_of(SimTime{ticks(end) - ticks(begin)})},
               [&](fmt::memory_buffer& text) { text.append(arguments); });
}

constexpr int kHostTrack = 0;

/// Tracks after the streams of a rank, in the order in which their names first come.
void add_annotations(ChromeEvents& events, const ExecutionGraph& graph,
                     std::span<const Annotation> annotations) {
  std::map<std::int32_t, std::vector<std::string>> tracks;
  for (const Annotation& a : annotations) {
    std::vector<std::string>& names = tracks[a.rank];
    const auto first = static_cast<int>(graph.program_of(a.rank).streams.size()) + 1;
    auto at = std::find(names.begin(), names.end(), a.track);
    const int track = first + static_cast<int>(at - names.begin());
    if (at == names.end()) {
      names.push_back(a.track);
      events.label("thread_name", a.rank, track, json_text(a.track));
    }
    add_slice(events, "report", a.name, a.rank, track, a.begin, a.end, "");
  }
}

}  // namespace

void write_timeline(const std::filesystem::path& file, const ExecutionGraph& graph,
                    std::span<const OpSpan> ops, std::span<const HostSpan> host,
                    const std::string& title, std::span<const Annotation> annotations) {
  ChromeEvents events;
  std::set<std::int32_t> ranks;
  for (const OpSpan& s : ops) {
    ranks.insert(s.rank);
  }
  for (const std::int32_t rank : ranks) {
    events.label("process_name", rank, 0, fmt::format("\"rank {}\"", rank));
    events.label("thread_name", rank, kHostTrack, "\"host\"");
    const auto& streams = graph.program_of(rank).streams;
    for (std::size_t s = 0; s < streams.size(); ++s) {
      events.label("thread_name", rank, static_cast<int>(s) + 1, json_text(streams[s]));
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
      add_slice(events, "wait", program.name(op) + " (wait)", s.rank, track, s.begin, s.ready,
                arguments);
    }
    add_slice(events, name_of(class_of(op.kind)), program.name(op), s.rank, track,
              std::max(s.begin, s.ready), s.end, arguments);
  }
  for (const HostSpan& s : host) {
    add_slice(events, "host", name_of(s.kind), s.rank, kHostTrack, s.begin, s.end,
              fmt::format(R"("step":{})", s.step));
  }
  add_annotations(events, graph, annotations);
  write_by_extension(
      file, events.document(fmt::format(
                R"({{"displayTimeUnit":"ns","otherData":{{"producer":{}}},"traceEvents":[)",
                json_text(title))));
}

}  // namespace stepcast::traces
