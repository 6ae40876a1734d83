#include "traces/native/native_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/input/csv.h"
#include "core/json_text.h"
#include "core/whole_file.h"
#include "traces/events/open_native.h"
#include "traces/input/whole_input.h"
#include "traces/native/graph_json.h"
#include "traces/native/internal/event_tables.h"
#include "traces/native/internal/json_node.h"

namespace stepcast::traces {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
constexpr const char* kManifest = "trace.json";
constexpr int kSchema = 2;
constexpr std::int64_t kLargest = std::int64_t{1} << 53;  // what a double still counts exactly

std::int64_t nanoseconds_of(SimTime t) { return ticks(t) / 1000; }

using Node = internal::JsonNode;

/// Optional; recordings of earlier versions lack it.
Seconds cost_in(const Node& host, const char* key) {
  if (!host.has(key)) {
    return {};
  }
  const double ns = host[key].number();
  if (!(ns >= 0 && ns < 1e6)) {
    host[key].fail(fmt::format("{} is no time of one record", ns));
  }
  return nanoseconds(ns);
}

/// A choice that a run made, and why.
void read_choice(const Node& root, const char* key, const char* name, std::string& choice,
                 std::string& reason) {
  if (root.has(key)) {
    choice = root[key][name].text();
    reason = root[key]["reason"].text();
  }
}

json parsed_manifest(const std::string& text, const std::string& file) {
  expect_shallow_json(text, file);
  try {
    return json::parse(text);
  } catch (const json::exception& e) {
    throw InputError(file, fmt::format("is not JSON: {}; was the file cut?", e.what()));
  }
}

/// A run without its spans.
GraphRun run_of(json& parsed, const Node& root, const std::string& file) {
  GraphRun trace;
  trace.producer = root["producer"].text();
  trace.job = root.has("job") && !parsed["job"].is_null() ? parsed["job"].dump() : "";
  const int ranks = root["ranks"].whole<int>();
  if (root.has("host")) {
    const Node host = root["host"];
    trace.shares_core = host["shares_core"].truth();
    trace.collectives_hold_core = host["collectives_hold_core"].truth();
    trace.clock_cost = cost_in(host, "clock_ns");
    trace.store_cost = cost_in(host, "store_ns");
    if (host.has("core_probe_ns")) {
      const double ns = host["core_probe_ns"].number();
      if (!(ns > 0 && ns < 1e12)) {
        host["core_probe_ns"].fail(fmt::format("found {}, expected a time above 0", ns));
      }
      trace.core_probe = nanoseconds(ns);
    }
  }
  read_choice(root, "op_clock", "source", trace.op_clock, trace.op_clock_reason);
  if (!trace.op_clock.empty() && trace.op_clock != "cupti" && trace.op_clock != "events") {
    root["op_clock"]["source"].fail(
        fmt::format("'{}' is none of cupti, events", trace.op_clock.substr(0, 40)));
  }
  if (root.has("attention")) {
    trace.attention = root["attention"]["kernels"].text();
  }
  read_choice(root, "epilogues", "kernels", trace.epilogues, trace.epilogues_reason);
  (void)root["graph"].object();
  trace.graph = graph_from_json(std::move(parsed["graph"]), file + ": graph");
  if (ranks != trace.graph.ranks()) {
    root["ranks"].fail(fmt::format("{} ranks, but the mesh has {}", ranks, trace.graph.ranks()));
  }
  return trace;
}

/// JSON that a diff can be read of: what fits on a line stands on one.
void put_lines(const json& j, const std::string& indent, std::string& out) {
  constexpr std::size_t kLine = 200;
  std::string line = j.dump();
  if (line.size() <= kLine || !j.is_structured()) {
    out += line;
    return;
  }
  const bool keyed = j.is_object();
  const bool flat =
      !keyed && std::none_of(j.begin(), j.end(), [](const json& e) { return e.is_structured(); });
  if (flat) {
    out += line;
    return;
  }
  out += keyed ? "{" : "[";
  const char* before = "\n";
  for (const auto& [key, value] : j.items()) {
    out += before + indent + " ";
    out += keyed ? json(key).dump() + ": " : "";
    put_lines(value, indent + " ", out);
    before = ",\n";
  }
  out += "\n" + indent + (keyed ? "}" : "]");
}

/// A time given in nanoseconds: within 2^50 of them, 13 days, sums and differences cannot
/// overflow.
SimTime time_in(CsvReader& line) { return SimTime{line.whole(-kLargest / 8, kLargest / 8) * 1000}; }
std::int32_t step_in(CsvReader& line) {
  return static_cast<std::int32_t>(line.whole(0, INT32_MAX));
}
std::uint32_t index_in(CsvReader& line) {
  return static_cast<std::uint32_t>(line.whole(0, UINT32_MAX));
}

void check_span(const OpSpan& s, const Program& program, const CsvReader& line) {
  if (s.ref.call >= program.calls.size()) {
    line.fail(fmt::format("names call {} of {}", s.ref.call, program.calls.size()));
  }
  const Segment& segment = program.segments[program.calls[s.ref.call].segment];
  if (s.ref.op < segment.first_op || s.ref.op >= segment.first_op + segment.op_count) {
    line.fail(fmt::format("names op {}, which is not in segment '{}'", s.ref.op, segment.name));
  }
  if (s.end < s.begin) {
    line.fail("ends before it begins");
  }
}

RankTrace spans_of(CsvReader line, std::int32_t rank, const Program& program) {
  RankTrace trace;
  trace.rank = rank;
  bool closed = false;
  while (line.next()) {
    const std::string_view tag = line.word();
    if (tag == "op") {
      OpSpan s;
      s.rank = rank;
      s.step = step_in(line);
      s.ref.call = index_in(line);
      s.ref.op = index_in(line);
      s.issued = time_in(line);
      s.begin = s.ready = time_in(line);
      s.end = time_in(line);
      s.bytes = static_cast<double>(line.whole(0, INT64_MAX));
      check_span(s, program, line);
      trace.ops.push_back(s);
    } else if (tag == "host") {
      HostSpan s;
      s.rank = rank;
      s.step = step_in(line);
      // 0 issue, 1 queue full, 2 synchronize
      s.kind = static_cast<HostSpan::Kind>(line.whole(0, 2));
      s.begin = time_in(line);
      s.end = time_in(line);
      trace.host.push_back(s);
    } else if (tag == "step") {
      StepMark s;
      s.step = step_in(line);
      s.begin = time_in(line);
      s.end = time_in(line);
      trace.steps.push_back(s);
    } else if (tag == "end") {
      trace.dropped = static_cast<std::uint64_t>(line.whole(0, INT64_MAX));
      closed = true;
    } else {
      line.fail(fmt::format("'{}' is none of op, host, step, end", tag.substr(0, 20)));
    }
    line.end_record();
  }
  if (!closed) {
    throw InputError(line.label(), "has no closing 'end' line: the rank stopped while writing");
  }
  return trace;
}

bool is_rank_file(const fs::path& file) {
  const std::string stem = file.stem().string();
  constexpr std::string_view kBegin = "rank-";
  return file.extension() == ".csv" && stem.starts_with(kBegin) && stem.size() > kBegin.size() &&
         std::all_of(stem.begin() + kBegin.size(), stem.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

json manifest_of(const std::string& producer, const std::string& job, std::size_t ranks) {
  return {{"schema", kSchema},
          {"producer", producer},
          {"job", job.empty() ? json() : json::parse(job)},
          {"ranks", ranks}};
}

}  // namespace

void begin_trace(const fs::path& folder) {
  try {
    fs::create_directories(folder);
    if (is_native(folder)) {
      fs::remove(folder / kManifest);
      std::vector<fs::path> older;
      for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
        if (is_rank_file(entry.path())) {
          older.push_back(entry.path());
        }
      }
      for (const fs::path& file : older) {
        fs::remove(file);
      }
    }
  } catch (const fs::filesystem_error& e) {
    throw InputError(folder.string(), "cannot be written: " + e.code().message());
  }
}

void write_rank(const fs::path& folder, const RankTrace& rank) {
  fs::create_directories(folder);
  fmt::memory_buffer out;
  const auto at = [](SimTime t) { return nanoseconds_of(t); };
  for (const StepMark& s : rank.steps) {
    fmt::format_to(std::back_inserter(out), "step,{},{},{}\n", s.step, at(s.begin), at(s.end));
  }
  for (const OpSpan& s : rank.ops) {
    fmt::format_to(std::back_inserter(out), "op,{},{},{},{},{},{},{}\n", s.step, s.ref.call,
                   s.ref.op, at(s.issued), at(s.begin), at(s.end),
                   static_cast<std::int64_t>(s.bytes));
  }
  for (const HostSpan& s : rank.host) {
    fmt::format_to(std::back_inserter(out), "host,{},{},{},{}\n", s.step, static_cast<int>(s.kind),
                   at(s.begin), at(s.end));
  }
  fmt::format_to(std::back_inserter(out), "end,{}\n", rank.dropped);
  write_whole_file(folder / fmt::format("rank-{}.csv", rank.rank), fmt::to_string(out));
}

void write_manifest(const fs::path& folder, const GraphRun& trace, int ranks) {
  json manifest = manifest_of(trace.producer, trace.job, static_cast<std::size_t>(ranks));
  manifest["host"] = {{"shares_core", trace.shares_core},
                      {"collectives_hold_core", trace.collectives_hold_core},
                      {"clock_ns", trace.clock_cost.base() * 1e9},
                      {"store_ns", trace.store_cost.base() * 1e9}};
  manifest["graph"] = graph_to_json(trace.graph);
  if (trace.core_probe > Seconds{}) {
    manifest["host"]["core_probe_ns"] = trace.core_probe.base() * 1e9;
  }
  if (!trace.op_clock.empty()) {
    manifest["op_clock"] = {{"source", trace.op_clock}, {"reason", trace.op_clock_reason}};
  }
  if (!trace.attention.empty()) {
    manifest["attention"] = {{"kernels", trace.attention}};
  }
  if (!trace.epilogues.empty()) {
    manifest["epilogues"] = {{"kernels", trace.epilogues}, {"reason", trace.epilogues_reason}};
  }
  fs::create_directories(folder);
  std::string text;
  put_lines(manifest, "", text);
  write_whole_file(folder / kManifest, text + "\n");
}

void write_recording(const fs::path& folder, const Recording& recording) {
  begin_trace(folder);
  if (recording.own != nullptr) {
    for (const RankTrace& rank : recording.own->ranks) {
      write_rank(folder, rank);
    }
    write_manifest(folder, *recording.own, static_cast<int>(recording.own->ranks.size()));
    return;
  }
  for (const RankRecording& rank : recording.ranks) {
    write_whole_file(folder / fmt::format("rank-{}.csv", rank.rank), internal::events_csv(rank));
  }
  json manifest = manifest_of(recording.producer, recording.job, recording.ranks.size());
  manifest["events"] = internal::event_tables(recording);
  write_whole_file(folder / kManifest,
                   manifest.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
}

bool is_native(const fs::path& folder) { return fs::is_regular_file(folder / kManifest); }

Recording read_recording(const fs::path& folder) {
  return read_recording(folder.string(), [&folder](const std::string& name) {
    const fs::path part = folder / name;
    if (!fs::is_regular_file(part)) {
      throw InputError(part.string(), "cannot be opened; expected the folder of a trace, whole");
    }
    return Input::of_file(part);
  });
}

Recording read_recording(const std::string& label, const OpenPart& open) {
  const std::string file = label + "/" + kManifest;
  Input manifest = open(kManifest);
  json parsed = parsed_manifest(whole_input(manifest, std::size_t{1} << 32U), file);
  const Node root(file, parsed, "");
  if (const int schema = root["schema"].whole<int>(); schema != kSchema) {
    root["schema"].fail(
        fmt::format("found {}, expected {}; record the run again with this version of stepcast",
                    schema, kSchema));
  }
  if (root.has("events")) {
    Recording recording = internal::read_events(root["events"], open);
    for (RankRecording& rank : recording.ranks) {
      rank.source = fmt::format("{}/rank-{}.csv", label, rank.rank);
    }
    recording.producer = root["producer"].text();
    recording.job = parsed["job"].is_null() ? "" : parsed["job"].dump();
    return recording;
  }
  GraphRun trace = run_of(parsed, root, file);
  for (std::int32_t r = 0; r < trace.graph.ranks(); ++r) {
    CsvReader lines(open(fmt::format("rank-{}.csv", r)));
    trace.ranks.push_back(spans_of(std::move(lines), r, trace.graph.program_of(r)));
  }
  align_clocks(trace);
  return recording_of(std::move(trace), label);
}

GraphRun read_native(const fs::path& folder) {
  const Recording recording = read_recording(folder);
  if (recording.own == nullptr) {
    throw InputError(folder.string(),
                     "holds the events of another program; expected a run of ours");
  }
  return *recording.own;
}

}  // namespace stepcast::traces
