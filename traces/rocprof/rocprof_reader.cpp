#include "traces/rocprof/rocprof_reader.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/json_text.h"
#include "traces/events/profiler_records.h"
#include "traces/input/internal/json_stream.h"
#include "traces/kineto/internal/decimal.h"

namespace stepcast::traces {
namespace {

using internal::JsonStream;
using nlohmann::json;
using simdjson::ondemand::object;
using Span = ProfilerRecords::Span;

/// The member of that name, or of an item what lies below; null where there is none.
const json& json_member(const json& object, const char* name) {
  static const json kNone;
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() ? *found : kNone;
}

std::int64_t json_whole(const json& value, std::int64_t otherwise) {
  if (value.is_number_unsigned()) {
    const auto n = value.get<std::uint64_t>();
    return n <= std::uint64_t{INT64_MAX} ? static_cast<std::int64_t>(n) : otherwise;
  }
  return value.is_number_integer() ? value.get<std::int64_t>() : otherwise;
}

std::string json_text(const json& value) {
  return value.is_string() ? value.get<std::string>() : std::string{};
}

/// A call, a range, a dispatch or a copy: the fields that any of them has; -1 where one is missing.
struct RocprofRecord {
  std::int64_t start_timestamp = -1, end_timestamp = -1, kind = -1, operation = -1, thread_id = 0;
  std::int64_t internal = -1, ancestor = -1;  ///< of the correlation id
  std::int64_t kernel_id = -1, group_segment_size = -1, bytes = -1;
  std::int64_t agent_id = -1, queue_id = -1, stream_id = -1, src_agent_id = -1, dst_agent_id = -1;
  std::array<std::int64_t, 3> grid_size{}, workgroup_size{};
};

/// Place of a number in a record, by its key and that of the object around it, which a handle and a
/// size of three have.
std::int64_t* place_of(RocprofRecord& r, std::string_view around, std::string_view key) {
  struct Field {
    std::string_view key;
    std::int64_t RocprofRecord::*to;
  };
  constexpr std::array<Field, 15> kFields{{
      {"start_timestamp", &RocprofRecord::start_timestamp},
      {"end_timestamp", &RocprofRecord::end_timestamp},
      {"thread_id", &RocprofRecord::thread_id},
      {"kind", &RocprofRecord::kind},
      {"operation", &RocprofRecord::operation},
      {"internal", &RocprofRecord::internal},
      {"ancestor", &RocprofRecord::ancestor},
      {"kernel_id", &RocprofRecord::kernel_id},
      {"group_segment_size", &RocprofRecord::group_segment_size},
      {"bytes", &RocprofRecord::bytes},
      {"agent_id", &RocprofRecord::agent_id},
      {"queue_id", &RocprofRecord::queue_id},
      {"stream_id", &RocprofRecord::stream_id},
      {"src_agent_id", &RocprofRecord::src_agent_id},
      {"dst_agent_id", &RocprofRecord::dst_agent_id},
  }};
  const bool size = around == "grid_size" || around == "workgroup_size";
  if (size && key.size() == 1 && key[0] >= 'x' && key[0] <= 'z') {
    auto& three = around == "grid_size" ? r.grid_size : r.workgroup_size;
    return &three[static_cast<std::size_t>(key[0] - 'x')];
  }
  const std::string_view name = key == "handle" ? around : key;
  for (const Field& f : kFields) {
    if (f.key == name) {
      return &(r.*f.to);
    }
  }
  return nullptr;
}

simdjson::error_code parse_record(object& from, RocprofRecord& to, std::string_view around = {},
                                  int deep = 0) {
  constexpr int kDeepest = 4;
  for (auto item : from) {
    simdjson::ondemand::field field;
    if (const auto error = std::move(item).get(field); error != simdjson::SUCCESS) {
      return error;
    }
    const char* const start = field.key().raw();
    std::size_t length = 0;
    for (; start[length] != '"'; ++length) {  // a text that simdjson has found to be closed
    }
    const std::string_view key(start, length);
    const std::string_view token = field.value().raw_json_token();
    if (token.starts_with('{') && deep < kDeepest) {
      object inner;
      if (const auto error = field.value().get_object().get(inner); error != simdjson::SUCCESS) {
        return error;
      }
      if (const auto error = parse_record(inner, to, key, deep + 1); error != simdjson::SUCCESS) {
        return error;
      }
    } else if (std::int64_t* const place = place_of(to, around, key); place != nullptr) {
      *place = internal::integer_of(token).value_or(*place);
    }
  }
  return simdjson::SUCCESS;
}

/// One process. Its tables of names come before its records, as rocprofv3 writes them.
class RocprofRank {
 public:
  RocprofRank(JsonStream& in, Names& names) : in_(in), records_(names, in.input().label()) {}

  void read() {
    in_.members("a process", [this](const std::string& key) {
      if (key == "buffer_records") {
        take_tables();
        in_.members(key, [this](const std::string& list) { records_of(list); });
      } else if (key == "metadata" || key == "agents" || key == "strings" ||
                 key == "kernel_symbols") {
        const std::string_view text = in_.value();
        const std::string place = in_.input().label() + ": " + key;
        expect_shallow_json(text, place);
        tables_[key] = json::parse(text, nullptr, false);
        if (tables_[key].is_discarded()) {
          throw InputError(place, "is not JSON; was the file edited?");
        }
      } else {
        in_.skip();
      }
    });
  }
  [[nodiscard]] std::int64_t process() const { return process_; }
  [[nodiscard]] bool empty() { return records_.rank().events.size() == 0; }
  RankRecording finish(const std::string& source) && {
    // Work names the innermost call: one of HSA where those were recorded, whose ancestor is the
    // call of HIP around it.
    Events& e = records_.rank().events;
    for (EventId i = 0; i < e.size(); ++i) {
      if (is_device_work(e.category[i])) {
        for (auto at = within_.find(e.correlation[i]);
             at != within_.end() && !calls_.contains(e.correlation[i]);
             at = within_.find(e.correlation[i])) {
          e.correlation.set(i, at->second);
        }
      }
    }
    records_.rank().source = source;
    return std::move(records_).finish(0);
  }

 private:
  void take_tables() {
    for (const json& symbol : json_member(tables_, "kernel_symbols")) {
      std::string name = json_text(json_member(symbol, "demangled_kernel_name"));
      name = name.empty() ? json_text(json_member(symbol, "formatted_kernel_name")) : name;
      kernels_[json_whole(json_member(symbol, "kernel_id"), -1)] = name;
    }
    constexpr std::int64_t kGpu = 2;
    for (const json& agent : json_member(tables_, "agents")) {
      if (json_whole(json_member(agent, "type"), 0) == kGpu) {
        const std::int64_t handle = json_whole(json_member(json_member(agent, "id"), "handle"), -1);
        devices_.emplace(handle, static_cast<std::int64_t>(records_.rank().devices.size()));
        const std::string product = json_text(json_member(agent, "product_name"));
        records_.rank().devices.push_back(product.empty() ? json_text(json_member(agent, "name"))
                                                          : product);
      }
    }
    const json& strings = json_member(tables_, "strings");
    for (const json& m : json_member(strings, "marker_api")) {
      marked_[json_whole(json_member(m, "key"), -1)] = json_text(json_member(m, "value"));
    }
    for (const json& kind : json_member(strings, "buffer_records")) {
      operations_.emplace_back();
      for (const json& name : json_member(kind, "operations")) {
        operations_.back().push_back(json_text(name));
      }
    }
    process_ = json_whole(json_member(json_member(tables_, "metadata"), "pid"), 0);
    tables_ = json();
  }

  void records_of(const std::string& list) {
    struct Reader {
      std::string_view list;
      void (RocprofRank::*take)(const RocprofRecord&);
    };
    constexpr std::array<Reader, 5> kReaders{{{"hip_api", &RocprofRank::call},
                                              {"marker_api", &RocprofRank::range},
                                              {"hsa_api", &RocprofRank::inner_call},
                                              {"kernel_dispatch", &RocprofRank::kernel},
                                              {"memory_copy", &RocprofRank::copy}}};
    const auto reader = std::find_if(kReaders.begin(), kReaders.end(),
                                     [&list](const Reader& r) { return r.list == list; });
    if (reader == kReaders.end() || in_.next() != '[') {
      in_.skip();
      return;
    }
    in_.list<RocprofRecord>(
        [](object& item, RocprofRecord& record) { return parse_record(item, record); },
        [&](RocprofRecord& record, std::uint64_t) { (this->*reader->take)(record); });
  }

  static Span span(const RocprofRecord& r, std::string_view name) {
    return {r.start_timestamp, r.end_timestamp, name, std::max<std::int64_t>(0, r.internal)};
  }
  void call(const RocprofRecord& r) {
    records_.call(span(r, operation(r)), {process_, r.thread_id});
    calls_.insert(r.internal);
  }
  void range(const RocprofRecord& r) {
    const auto found = marked_.find(r.internal);
    if (found != marked_.end() && nests(operation(r))) {
      Span s = span(r, found->second);
      s.correlation = 0;  // that of the call of roctx, which launches nothing
      records_.range(s, {process_, r.thread_id});
    }
  }
  void inner_call(const RocprofRecord& r) {
    if (r.ancestor > 0 && r.ancestor < r.internal) {  // numbered in order of calls: no cycles
      within_.emplace(r.internal, r.ancestor);
    }
  }
  /// Ranges pushed and popped; marks have no length, and ranges of the process do not nest.
  static bool nests(std::string_view operation) {
    return !operation.starts_with("roctxMark") && !operation.starts_with("roctxRangeStart") &&
           !operation.starts_with("roctxProcessRange");
  }

  /// "hipLaunchKernel": kind and operation are places in the file's tables of names.
  [[nodiscard]] std::string_view operation(const RocprofRecord& r) const {
    const auto kind = static_cast<std::size_t>(r.kind), n = static_cast<std::size_t>(r.operation);
    return kind < operations_.size() && n < operations_[kind].size()
               ? std::string_view(operations_[kind][n])
               : "unknown";
  }

  [[nodiscard]] std::int64_t device(std::int64_t agent) const {
    const auto found = devices_.find(agent);
    return found == devices_.end() ? -1 : found->second;
  }

  void kernel(const RocprofRecord& r) {
    const auto found = kernels_.find(r.kernel_id);
    LaunchInfo launch;
    const auto size = [](std::int64_t n) {
      return n >= 0 && n <= INT32_MAX ? static_cast<std::int32_t>(n) : 0;
    };
    for (std::size_t i = 0; i < 3; ++i) {  // HSA counts a grid in work items
      launch.block[i] = size(r.workgroup_size[i]);
      launch.grid[i] = size(r.grid_size[i]) / std::max(1, launch.block[i]);
    }
    launch.shared_memory =
        r.group_segment_size <= INT32_MAX ? static_cast<std::int32_t>(r.group_segment_size) : -1;
    records_.kernel(span(r, found == kernels_.end() ? "unknown" : std::string_view(found->second)),
                    {device(r.agent_id), -1,
                     r.stream_id >= 0 ? r.stream_id : std::max<std::int64_t>(0, r.queue_id)},
                    launch);
  }

  void copy(const RocprofRecord& r) {
    const std::int64_t from = device(r.src_agent_id), to = device(r.dst_agent_id);
    const std::string_view name = from < 0 && to >= 0    ? "Memcpy HtoD"
                                  : from >= 0 && to < 0  ? "Memcpy DtoH"
                                  : from >= 0 && to >= 0 ? "Memcpy DtoD"
                                                         : "Memcpy HtoH";
    records_.copy(span(r, name), {to >= 0 ? to : from, -1, std::max<std::int64_t>(0, r.stream_id)},
                  EventCategory::kMemcpy, r.bytes);
  }

  JsonStream& in_;
  ProfilerRecords records_;
  json tables_;
  std::int64_t process_ = 0;
  std::map<std::int64_t, std::string> kernels_, marked_;   ///< by kernel id; by correlation
  std::vector<std::vector<std::string>> operations_;       ///< by kind
  std::map<std::int64_t, std::int64_t> devices_;           ///< by handle of the agent
  std::unordered_set<std::int64_t> calls_;                 ///< of HIP, by correlation
  std::unordered_map<std::int64_t, std::int64_t> within_;  ///< calls of HSA: that around it
};

}  // namespace

std::vector<RankRecording> read_rocprof(Input& input, Names& names) {
  JsonStream in(input);
  std::list<RocprofRank> processes;
  const auto process = [&] {
    processes.emplace_back(in, names);
    processes.back().read();
  };
  in.members("a file of rocprofv3", [&](const std::string& key) {
    if (key != "rocprofiler-sdk-tool") {
      in.skip();
      return;
    }
    if (in.next() != '[') {
      process();
      return;
    }
    in.expect('[', key);
    while (in.next() != ']') {
      process();
      if (in.next() != ']') {
        in.expect(',', key);
      }
    }
    in.expect(']', key);
  });
  if (in.next() != '\0') {
    in.fail(in.offset(), "something follows the end of the file");
  }
  // Launchers and the like are processes without records.
  const auto recorded = [](RocprofRank& r) { return !r.empty(); };
  if (std::any_of(processes.begin(), processes.end(), recorded)) {
    std::erase_if(processes, [](RocprofRank& r) { return r.empty(); });
  }
  if (processes.empty()) {
    throw InputError(input.label(),
                     "holds no process; expected rocprofiler-sdk-tool with one a rank");
  }
  std::vector<RankRecording> ranks;
  for (RocprofRank& r : processes) {
    ranks.push_back(std::move(r).finish(
        processes.size() == 1 ? input.label()
                              : fmt::format("{}: process {}", input.label(), r.process())));
  }
  return ranks;
}

}  // namespace stepcast::traces
