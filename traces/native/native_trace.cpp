#include "traces/native/native_trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/graph/op_codes.h"
#include "core/json_text.h"
#include "core/whole_file.h"
#include "traces/native/internal/check_graph.h"
#include "traces/native/internal/trace_folder.h"

namespace stepcast::traces {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
constexpr int kTraceSchema = 1;
constexpr std::int64_t kLargest = std::int64_t{1} << 53;  // what a double still counts exactly

std::int64_t nanoseconds_of(SimTime t) { return ticks(t) / 1000; }

json op_to_json(const Program& p, const Op& op) {
  json waits = json::array();
  for (const std::int32_t w : p.waits_of(op)) {
    waits.push_back(w);
  }
  const OpCodes codes = codes_of(op);
  return json::array({name_of(op.kind), name_of(op.phase), name_of(op.format), op.flags,
                      codes.variant, op.stream, op.communicator, op.peer, op.record, op.name,
                      codes.sizes,
                      op.flops.base(), op.bytes_read.base(), op.bytes_written.base(), waits});
}

json program_to_json(const Program& p) {
  json ops = json::array();
  for (const Op& op : p.ops) {
    ops.push_back(op_to_json(p, op));
  }
  json segments = json::array();
  for (const Segment& s : p.segments) {
    segments.push_back(json::array({s.name, s.first_op, s.op_count}));
  }
  json calls = json::array();
  for (const Call& c : p.calls) {
    calls.push_back(json::array({c.segment, c.microbatch}));
  }
  return {{"streams", p.streams}, {"names", p.names},
          {"events", p.events},   {"microbatches", p.microbatches},
          {"ops", ops},           {"segments", segments},
          {"calls", calls}};
}

/// Reads the manifest; every access names the JSON path it failed at.
class ManifestReader {
 public:
  ManifestReader(std::string file, const json& root) : file_(std::move(file)), root_(root) {}

  void read_probes(Trace& trace, int ranks) const {
    const auto rows = at<std::vector<std::vector<double>>>(root_["host"], "core_probes_ns",
                                                           "host.core_probes_ns");
    const bool right = std::all_of(rows.begin(), rows.end(), [](const std::vector<double>& row) {
      return (row.size() == 2 || (row.size() == 3 && row[2] >= 0)) && row[0] > 0 && row[1] > 0;
    });
    if (!right || rows.size() != static_cast<std::size_t>(ranks)) {
      fail(
          "host.core_probes_ns",
          fmt::format("expected two times above 0 for each of {} ranks, and at most the time of an "
                      "exchange",
                      ranks));
    }
    for (const std::vector<double>& row : rows) {
      trace.core_probes.push_back(
          {nanoseconds(row[0]), nanoseconds(row[1]), nanoseconds(row.size() > 2 ? row[2] : 0.0)});
    }
  }

  Trace read(int& ranks) const {
    if (const int schema = at<int>(root_, "schema", "schema"); schema != kTraceSchema) {
      fail("schema", fmt::format("{} is not the schema this version reads ({}); convert the trace "
                                 "with the version that wrote it",
                                 schema, kTraceSchema));
    }
    Trace trace;
    trace.producer = at<std::string>(root_, "producer", "producer");
    trace.job = root_.contains("job") && !root_["job"].is_null() ? root_["job"].dump() : "";
    ranks = at<int>(root_, "ranks", "ranks");
    if (root_.contains("host")) {
      trace.shares_core = at<bool>(root_["host"], "shares_core", "host.shares_core");
      trace.collectives_hold_core =
          at<bool>(root_["host"], "collectives_hold_core", "host.collectives_hold_core");
      trace.clock_cost = cost(root_["host"], "clock_ns");
      trace.store_cost = cost(root_["host"], "store_ns");
      if (root_["host"].contains("core_probes_ns")) {
        read_probes(trace, ranks);
      }
    }
    if (root_.contains("op_clock")) {
      const json& clock = root_["op_clock"];
      trace.op_clock = at<std::string>(clock, "source", "op_clock.source");
      trace.op_clock_reason = at<std::string>(clock, "reason", "op_clock.reason");
      if (trace.op_clock != "cupti" && trace.op_clock != "events") {
        fail("op_clock.source",
             fmt::format("'{}' is none of cupti, events", trace.op_clock.substr(0, 40)));
      }
    }
    if (root_.contains("attention")) {
      const json& use = root_["attention"];
      trace.attention = at<std::string>(use, "kernels", "attention.kernels");
      trace.attention_reason = at<std::string>(use, "reason", "attention.reason");
    }
    if (root_.contains("epilogues")) {
      const json& use = root_["epilogues"];
      trace.epilogues = at<std::string>(use, "kernels", "epilogues.kernels");
      trace.epilogues_reason = at<std::string>(use, "reason", "epilogues.reason");
    }
    ExecutionGraph& g = trace.graph;
    const auto mesh = at<std::vector<std::int32_t>>(root_, "mesh", "mesh");
    if (mesh.size() != 4) {
      fail("mesh", "expected four degrees");
    }
    g.mesh = {mesh[0], mesh[1], mesh[2], mesh[3]};
    const json& communicators = list(root_, "communicators", "communicators");
    for (std::size_t i = 0; i < communicators.size(); ++i) {
      const std::string path = fmt::format("communicators[{}]", i);
      Communicator c;
      c.name = at<std::string>(communicators[i], "name", path + ".name");
      for (const int a : at<std::vector<int>>(communicators[i], "axes", path + ".axes")) {
        if (a < 0 || a >= static_cast<int>(Axis::kCount)) {
          fail(path + ".axes", fmt::format("{} is no mesh axis", a));
        }
        c.axes.push_back(static_cast<Axis>(a));
      }
      c.groups =
          at<std::vector<std::vector<std::int32_t>>>(communicators[i], "groups", path + ".groups");
      g.communicators.push_back(std::move(c));
    }
    const json& programs = list(root_, "programs", "programs");
    for (std::size_t i = 0; i < programs.size(); ++i) {
      g.programs.push_back(
          program(programs[i], fmt::format("programs[{}]", i), g.communicators.size()));
    }
    const json& classes = list(root_, "classes", "classes");
    for (std::size_t i = 0; i < classes.size(); ++i) {
      const std::string path = fmt::format("classes[{}]", i);
      RankClass c{at<std::int32_t>(classes[i], "program", path + ".program"),
                  at<std::vector<std::int32_t>>(classes[i], "ranks", path + ".ranks")};
      if (c.program < 0 || static_cast<std::size_t>(c.program) >= g.programs.size()) {
        fail(path + ".program", fmt::format("{} of {} programs", c.program, g.programs.size()));
      }
      g.classes.push_back(std::move(c));
    }
    internal::check_graph(g, file_);
    if (ranks != g.ranks()) {
      fail("ranks", fmt::format("{} ranks, but the mesh has {}", ranks, g.ranks()));
    }
    return trace;
  }

 private:
  [[noreturn]] void fail(const std::string& path, const std::string& what) const {
    throw InputError(file_ + ": " + path, what);
  }

  /// Optional; recordings of earlier versions lack it.
  Seconds cost(const json& host, const char* key) const {
    const double ns = host.contains(key) ? at<double>(host, key, fmt::format("host.{}", key)) : 0.0;
    if (!(ns >= 0 && ns < 1e6)) {
      fail(fmt::format("host.{}", key), fmt::format("{} is no time of one record", ns));
    }
    return nanoseconds(ns);
  }

  const json& child(const json& j, const char* key, const std::string& path) const {
    if (!j.is_object() || !j.contains(key)) {
      fail(path, "is missing; is this a stepcast trace, whole?");
    }
    return j[key];
  }
  const json& list(const json& j, const char* key, const std::string& path) const {
    const json& found = child(j, key, path);
    if (!found.is_array()) {
      fail(path, "expected a list");
    }
    return found;
  }
  template <typename T>
  T at(const json& j, const char* key, const std::string& path) const {
    return as<T>(child(j, key, path), path);
  }
  /// The library's own conversions truncate in silence what does not fit.
  template <typename T>
  T as(const json& j, const std::string& path) const {
    T value{};
    if (!convert(j, value)) {
      fail(path,
           fmt::format("found {}, which has the wrong type or range", j.dump().substr(0, 40)));
    }
    return value;
  }
  static bool convert(const json& j, bool& to) {
    to = j.is_boolean() && j.get<bool>();
    return j.is_boolean();
  }
  template <std::integral T>
  static bool convert(const json& j, T& to) {
    if (j.is_number_unsigned()) {
      const auto n = j.get<std::uint64_t>();
      to = static_cast<T>(n);
      return std::in_range<T>(n);
    }
    if (j.is_number_integer()) {
      const auto n = j.get<std::int64_t>();
      to = static_cast<T>(n);
      return std::in_range<T>(n);
    }
    return false;
  }
  static bool convert(const json& j, double& to) {
    to = j.is_number() ? j.get<double>() : 0;
    return j.is_number();
  }
  static bool convert(const json& j, std::string& to) {
    to = j.is_string() ? j.get<std::string>() : "";
    return j.is_string();
  }
  template <typename T>
  static bool convert(const json& j, std::vector<T>& to) {
    to.resize(j.is_array() ? j.size() : 0);
    return j.is_array() && convert_each(j, to);
  }
  template <typename T, std::size_t n>
  static bool convert(const json& j, std::array<T, n>& to) {
    return j.is_array() && j.size() == n && convert_each(j, to);
  }
  template <typename Container>
  static bool convert_each(const json& j, Container& to) {
    for (std::size_t i = 0; i < j.size(); ++i) {
      if (!convert(j[i], to[i])) {
        return false;
      }
    }
    return true;
  }

  Program program(const json& j, const std::string& path, std::size_t communicators) const {
    Program p;
    p.streams = at<std::vector<std::string>>(j, "streams", path + ".streams");
    p.names = at<std::vector<std::string>>(j, "names", path + ".names");
    p.events = at<std::int32_t>(j, "events", path + ".events");
    p.microbatches = at<std::int32_t>(j, "microbatches", path + ".microbatches");
    const json& ops = list(j, "ops", path + ".ops");
    for (std::size_t i = 0; i < ops.size(); ++i) {
      p.ops.push_back(op(ops[i], fmt::format("{}.ops[{}]", path, i), p, communicators));
    }
    const json& segments = list(j, "segments", path + ".segments");
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const std::string where = fmt::format("{}.segments[{}]", path, i);
      const json& s = segments[i];
      if (!s.is_array() || s.size() != 3) {
        fail(where, "expected [name, first op, op count]");
      }
      p.segments.push_back({as<std::string>(s[0], where), as<std::uint32_t>(s[1], where),
                            as<std::uint32_t>(s[2], where)});
      if (std::uint64_t{p.segments.back().first_op} + p.segments.back().op_count > p.ops.size()) {
        fail(where, fmt::format("reaches past the {} ops of the program", p.ops.size()));
      }
    }
    const json& calls = list(j, "calls", path + ".calls");
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const std::string where = fmt::format("{}.calls[{}]", path, i);
      const auto c = as<std::array<std::int64_t, 2>>(calls[i], where);
      if (c[0] < 0 || static_cast<std::size_t>(c[0]) >= p.segments.size() || c[1] < 0 ||
          c[1] >= p.microbatches) {
        fail(where, fmt::format("names segment {} and microbatch {}", c[0], c[1]));
      }
      p.calls.push_back({static_cast<std::uint32_t>(c[0]), static_cast<std::int32_t>(c[1])});
    }
    return p;
  }

  Op op(const json& j, const std::string& path, Program& p, std::size_t communicators) const {
    if (!j.is_array() || j.size() != 15) {
      fail(path, "expected the 15 columns of an op");
    }
    Op op;
    const auto kind = op_kind_named(as<std::string>(j[0], path + "[0]"));
    const auto phase = phase_named(as<std::string>(j[1], path + "[1]"));
    const auto format = format_named(as<std::string>(j[2], path + "[2]"));
    if (!kind || !phase || !format) {
      fail(path, fmt::format("unknown kind, phase or format: {}, {}, {}", j[0].dump(), j[1].dump(),
                             j[2].dump()));
    }
    op.kind = *kind, op.phase = *phase, op.format = *format;
    op.flags = as<std::uint8_t>(j[3], path + "[3]");
    OpCodes codes;
    codes.variant = as<std::uint8_t>(j[4], path + "[4]");
    op.stream = as<std::uint8_t>(j[5], path + "[5]");
    op.communicator = as<std::int32_t>(j[6], path + "[6]");
    op.peer = as<std::int32_t>(j[7], path + "[7]");
    op.record = as<std::int32_t>(j[8], path + "[8]");
    op.name = as<std::uint32_t>(j[9], path + "[9]");
    codes.sizes = as<std::array<std::int64_t, 6>>(j[10], path + "[10]");
    if (std::any_of(codes.sizes.begin(), codes.sizes.end(),
                    [](std::int64_t n) { return n < -kLargest || n > kLargest; })) {
      fail(path + "[10]", "a size beyond 2^53");
    }
    try {
      set_codes(op, codes);
    } catch (const InputError& e) {
      fail(path, e.what());
    }
    op.flops = Flops(as<double>(j[11], path + "[11]"));
    op.bytes_read = Bytes(as<double>(j[12], path + "[12]"));
    op.bytes_written = Bytes(as<double>(j[13], path + "[13]"));
    op.first_wait = static_cast<std::uint32_t>(p.waits.size());
    for (const std::int32_t w : as<std::vector<std::int32_t>>(j[14], path + "[14]")) {
      p.waits.push_back(w);
      ++op.waits;
      if (w < 0 || w >= p.events) {
        fail(path + "[14]", fmt::format("event {} of {}", w, p.events));
      }
    }
    if (op.stream >= p.streams.size() || op.name >= p.names.size() || op.record >= p.events ||
        (op.communicator >= 0 && static_cast<std::size_t>(op.communicator) >= communicators)) {
      fail(path, "names a stream, name, event or communicator that is not declared");
    }
    return op;
  }

  std::string file_;
  const json& root_;
};

/// One line of a rank file: a tag and integers separated by commas.
class LineReader {
 public:
  LineReader(const std::string& file, std::size_t number, std::string_view line)
      : file_(file), number_(number), rest_(line) {}
  std::string_view word() {
    if (done_) {
      fail("has too few columns");
    }
    const std::size_t comma = rest_.find(',');
    const std::string_view w = rest_.substr(0, comma);
    done_ = comma == std::string_view::npos;
    rest_ = done_ ? std::string_view() : rest_.substr(comma + 1);
    return w;
  }
  std::int64_t integer() {
    const std::string_view w = word();
    std::int64_t v = 0;
    const auto [end, error] = std::from_chars(w.data(), w.data() + w.size(), v);
    if (error != std::errc() || end != w.data() + w.size()) {
      fail(fmt::format("'{}' is not an integer", w.substr(0, 40)));
    }
    return v;
  }
  /// A time given in nanoseconds: within 2^50 of them, 13 days, sums and differences cannot
  /// overflow.
  SimTime time() { return SimTime{within(-kLargest / 8, kLargest / 8) * 1000}; }
  std::int32_t step() { return static_cast<std::int32_t>(within(0, INT32_MAX)); }
  std::uint32_t index() { return static_cast<std::uint32_t>(within(0, UINT32_MAX)); }
  std::int64_t within(std::int64_t least, std::int64_t most) {
    const std::int64_t v = integer();
    if (v < least || v > most) {
      fail(fmt::format("{} is not between {} and {}", v, least, most));
    }
    return v;
  }
  void finish() {
    if (!done_) {
      fail("has too many columns");
    }
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(fmt::format("{}:{}", file_, number_), what);
  }

 private:
  const std::string& file_;
  std::size_t number_;
  std::string_view rest_;
  bool done_ = false;
};

void check_span(const OpSpan& s, const Program& program, const LineReader& line) {
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

RankTrace read_rank(std::istream& in, const std::string& name, std::int32_t rank,
                    const Program& program) {
  RankTrace trace;
  trace.rank = rank;
  std::string text;
  bool closed = false;
  for (std::size_t number = 1; std::getline(in, text); ++number) {
    LineReader line(name, number, text);
    const std::string_view tag = line.word();
    if (tag == "op") {
      OpSpan s;
      s.rank = rank;
      s.step = line.step();
      s.ref.call = line.index();
      s.ref.op = line.index();
      s.issued = line.time();
      s.begin = s.ready = line.time();
      s.end = line.time();
      s.bytes = static_cast<double>(line.within(0, INT64_MAX));
      check_span(s, program, line);
      trace.ops.push_back(s);
    } else if (tag == "host") {
      HostSpan s;
      s.rank = rank;
      s.step = line.step();
      const std::int64_t kind = line.integer();
      if (kind < 0 || kind > 2) {
        line.fail(
            fmt::format("host kind {} is none of 0 issue, 1 queue full, 2 synchronize", kind));
      }
      s.kind = static_cast<HostSpan::Kind>(kind);
      s.begin = line.time();
      s.end = line.time();
      trace.host.push_back(s);
    } else if (tag == "step") {
      StepMark s;
      s.step = line.step();
      s.begin = line.time();
      s.end = line.time();
      trace.steps.push_back(s);
    } else if (tag == "end") {
      trace.dropped = static_cast<std::uint64_t>(line.within(0, INT64_MAX));
      closed = true;
    } else {
      line.fail(fmt::format("'{}' is none of op, host, step, end", tag.substr(0, 20)));
    }
    line.finish();
  }
  if (!closed) {
    throw InputError(name, "has no closing 'end' line: the rank stopped while writing");
  }
  return trace;
}

}  // namespace

void begin_trace(const fs::path& folder) {
  internal::begin_folder(folder, internal::kTraceManifest);
}

void write_rank(const fs::path& folder, const RankTrace& rank) {
  fs::create_directories(folder);
  internal::refuse_other_form(folder, internal::kTraceManifest);
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

void write_manifest(const fs::path& folder, const Trace& trace, int ranks) {
  const ExecutionGraph& g = trace.graph;
  json communicators = json::array();
  for (const Communicator& c : g.communicators) {
    std::vector<int> axes;
    for (const Axis a : c.axes) {
      axes.push_back(static_cast<int>(a));
    }
    communicators.push_back({{"name", c.name}, {"axes", axes}, {"groups", c.groups}});
  }
  json programs = json::array();
  for (const Program& p : g.programs) {
    programs.push_back(program_to_json(p));
  }
  json classes = json::array();
  for (const RankClass& c : g.classes) {
    classes.push_back({{"program", c.program}, {"ranks", c.ranks}});
  }
  json manifest = {{"schema", kTraceSchema},
                   {"producer", trace.producer},
                   {"job", trace.job.empty() ? json() : json::parse(trace.job)},
                   {"ranks", ranks},
                   {"host",
                    {{"shares_core", trace.shares_core},
                     {"collectives_hold_core", trace.collectives_hold_core},
                     {"clock_ns", trace.clock_cost.base() * 1e9},
                     {"store_ns", trace.store_cost.base() * 1e9}}},
                   {"mesh", {g.mesh.tensor, g.mesh.context, g.mesh.pipeline, g.mesh.data}},
                   {"communicators", communicators},
                   {"programs", programs},
                   {"classes", classes}};
  for (const auto& [multiply, stream, exchange] : trace.core_probes) {
    manifest["host"]["core_probes_ns"].push_back(
        {multiply.base() * 1e9, stream.base() * 1e9, exchange.base() * 1e9});
  }
  if (!trace.op_clock.empty()) {
    manifest["op_clock"] = {{"source", trace.op_clock}, {"reason", trace.op_clock_reason}};
  }
  if (!trace.attention.empty()) {
    manifest["attention"] = {{"kernels", trace.attention}, {"reason", trace.attention_reason}};
  }
  if (!trace.epilogues.empty()) {
    manifest["epilogues"] = {{"kernels", trace.epilogues}, {"reason", trace.epilogues_reason}};
  }
  fs::create_directories(folder);
  internal::refuse_other_form(folder, internal::kTraceManifest);
  write_whole_file(folder / internal::kTraceManifest, manifest.dump(1) + "\n");
}

bool is_native(const fs::path& folder) {
  return fs::is_regular_file(folder / internal::kTraceManifest);
}

Trace read_native(const fs::path& folder) {
  const fs::path file = folder / internal::kTraceManifest;
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    throw InputError(file.string(), "cannot be opened; expected the folder of a stepcast trace");
  }
  return read_native(in, folder.string(), [&folder](const std::string& name) {
    return std::make_unique<std::ifstream>(folder / name, std::ios::binary);
  });
}

Trace read_native(std::istream& manifest, const std::string& label, const OpenPart& open) {
  const std::string file = label + "/trace.json";
  json root;
  const std::string text{std::istreambuf_iterator<char>(manifest), {}};
  expect_shallow_json(text, file);
  try {
    root = json::parse(text);
  } catch (const json::exception& e) {
    throw InputError(file, fmt::format("is not JSON: {}", e.what()));
  }
  int ranks = 0;
  Trace trace = ManifestReader(file, root).read(ranks);
  for (std::int32_t r = 0; r < ranks; ++r) {
    const std::string name = fmt::format("rank-{}.csv", r);
    const std::unique_ptr<std::istream> part = open(name);
    if (!*part) {
      throw InputError(label + "/" + name, "cannot be opened; the trace is not whole");
    }
    trace.ranks.push_back(read_rank(*part, label + "/" + name, r, trace.graph.program_of(r)));
  }
  align_clocks(trace);
  return trace;
}

}  // namespace stepcast::traces
