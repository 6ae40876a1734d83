#include "traces/rocprof/rocprof_reader.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/json_text.h"
#include "traces/events/profiler_records.h"
#include "traces/input/whole_input.h"

namespace stepcast::traces {
namespace {

using nlohmann::json;
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

class RocprofRank {
 public:
  RocprofRank(const json& tool, Names& names, const std::string& source)
      : tool_(tool), records_(names, source) {
    for (const json& symbol : json_member(tool, "kernel_symbols")) {
      std::string name = json_text(json_member(symbol, "demangled_kernel_name"));
      name = name.empty() ? json_text(json_member(symbol, "formatted_kernel_name")) : name;
      kernels_[json_whole(json_member(symbol, "kernel_id"), -1)] = name;
    }
    constexpr std::int64_t kGpu = 2;
    for (const json& agent : json_member(tool, "agents")) {
      if (json_whole(json_member(agent, "type"), 0) == kGpu) {
        const std::int64_t handle = json_whole(json_member(json_member(agent, "id"), "handle"), -1);
        devices_.emplace(handle, static_cast<std::int64_t>(records_.rank().devices.size()));
        const std::string product = json_text(json_member(agent, "product_name"));
        records_.rank().devices.push_back(product.empty() ? json_text(json_member(agent, "name"))
                                                          : product);
      }
    }
  }

  RankRecording read() && {
    const json& records = json_member(tool_, "buffer_records");
    const ProfilerRecords::Thread process{
        json_whole(json_member(json_member(tool_, "metadata"), "pid"), 0), 0};
    for (const json& r : json_member(records, "hip_api")) {
      const std::string name = operation(r);
      records_.call(span(r, name), {process.process, json_whole(json_member(r, "thread_id"), 0)});
      calls_.insert(id_of(r, "internal"));
    }
    std::map<std::int64_t, std::string> marked;
    for (const json& m : json_member(json_member(tool_, "strings"), "marker_api")) {
      marked[json_whole(json_member(m, "key"), -1)] = json_text(json_member(m, "value"));
    }
    for (const json& r : json_member(records, "marker_api")) {
      const auto found = marked.find(id_of(r, "internal"));
      if (found != marked.end() && nests(operation(r))) {
        Span s = span(r, found->second);
        s.correlation = 0;  // that of the call of roctx, which launches nothing
        records_.range(s, {process.process, json_whole(json_member(r, "thread_id"), 0)});
      }
    }
    for (const json& r : json_member(records, "hsa_api")) {
      const std::int64_t own = id_of(r, "internal");
      const std::int64_t around = id_of(r, "ancestor");
      if (around > 0 && around < own) {  // numbered in order of calls: no cycles
        within_.emplace(own, around);
      }
    }
    for (const json& r : json_member(records, "kernel_dispatch")) {
      kernel(r);
    }
    for (const json& r : json_member(records, "memory_copy")) {
      copy(r);
    }
    return std::move(records_).finish(0);
  }

 private:
  static std::int64_t id_of(const json& r, const char* which) {
    return json_whole(json_member(json_member(r, "correlation_id"), which), -1);
  }
  static Span span(const json& r, std::string_view name) {
    return {json_whole(json_member(r, "start_timestamp"), -1),
            json_whole(json_member(r, "end_timestamp"), -1), name,
            std::max<std::int64_t>(0, id_of(r, "internal"))};
  }
  /// For device work. It names the innermost call: one of HSA where those were recorded, whose
  /// ancestor is the call of HIP around it.
  [[nodiscard]] Span work_span(const json& r, std::string_view name) const {
    Span s = span(r, name);
    for (auto at = within_.find(s.correlation);
         at != within_.end() && !calls_.contains(s.correlation); at = within_.find(s.correlation)) {
      s.correlation = at->second;
    }
    return s;
  }
  /// Ranges pushed and popped; marks have no length, and ranges of the process do not nest.
  static bool nests(std::string_view operation) {
    return !operation.starts_with("roctxMark") && !operation.starts_with("roctxRangeStart") &&
           !operation.starts_with("roctxProcessRange");
  }

  /// "hipLaunchKernel": kind and operation are places in the file's tables of names.
  [[nodiscard]] std::string operation(const json& r) const {
    const json& kinds = json_member(json_member(tool_, "strings"), "buffer_records");
    const std::int64_t kind = json_whole(json_member(r, "kind"), -1);
    if (!kinds.is_array() || kind < 0 || kind >= static_cast<std::int64_t>(kinds.size())) {
      return "unknown";
    }
    const json& names = json_member(kinds[static_cast<std::size_t>(kind)], "operations");
    const std::int64_t n = json_whole(json_member(r, "operation"), -1);
    return names.is_array() && n >= 0 && n < static_cast<std::int64_t>(names.size())
               ? json_text(names[static_cast<std::size_t>(n)])
               : "unknown";
  }

  [[nodiscard]] std::int64_t device(const json& agent) const {
    const auto found = devices_.find(json_whole(json_member(agent, "handle"), -1));
    return found == devices_.end() ? -1 : found->second;
  }

  static std::int64_t handle_of(const json& record, const json& otherwise) {
    const std::int64_t stream =
        json_whole(json_member(json_member(record, "stream_id"), "handle"), -1);
    return stream >= 0 ? stream : json_whole(json_member(otherwise, "handle"), 0);
  }

  static std::array<std::int32_t, 3> three(const json& sizes) {
    std::array<std::int32_t, 3> to{};
    const char* const names[] = {"x", "y", "z"};
    for (std::size_t i = 0; i < 3; ++i) {
      const std::int64_t n = json_whole(json_member(sizes, names[i]), 0);
      to[i] = n >= 0 && n <= INT32_MAX ? static_cast<std::int32_t>(n) : 0;
    }
    return to;
  }

  void kernel(const json& r) {
    const json& d = json_member(r, "dispatch_info");
    const auto found = kernels_.find(json_whole(json_member(d, "kernel_id"), -1));
    LaunchInfo launch{.grid = three(json_member(d, "grid_size")),
                      .block = three(json_member(d, "workgroup_size"))};
    for (std::size_t i = 0; i < 3; ++i) {  // HSA counts a grid in work items
      launch.grid[i] = launch.block[i] > 0 ? launch.grid[i] / launch.block[i] : launch.grid[i];
    }
    const std::int64_t shared = json_whole(json_member(d, "group_segment_size"), -1);
    launch.shared_memory = shared <= INT32_MAX ? static_cast<std::int32_t>(shared) : -1;
    records_.kernel(
        work_span(r, found == kernels_.end() ? "unknown" : found->second),
        {device(json_member(d, "agent_id")), -1, handle_of(r, json_member(d, "queue_id"))}, launch);
  }

  void copy(const json& r) {
    const std::int64_t from = device(json_member(r, "src_agent_id"));
    const std::int64_t to = device(json_member(r, "dst_agent_id"));
    const std::string_view name = from < 0 && to >= 0    ? "Memcpy HtoD"
                                  : from >= 0 && to < 0  ? "Memcpy DtoH"
                                  : from >= 0 && to >= 0 ? "Memcpy DtoD"
                                                         : "Memcpy HtoH";
    records_.copy(work_span(r, name), {to >= 0 ? to : from, -1, handle_of(r, {})},
                  EventCategory::kMemcpy, json_whole(json_member(r, "bytes"), -1));
  }

  const json& tool_;
  ProfilerRecords records_;
  std::map<std::int64_t, std::string> kernels_;            ///< by kernel id
  std::map<std::int64_t, std::int64_t> devices_;           ///< by handle of the agent
  std::unordered_set<std::int64_t> calls_;                 ///< of HIP, by correlation
  std::unordered_map<std::int64_t, std::int64_t> within_;  ///< calls of HSA: that around it
};

}  // namespace

RankRecording read_rocprof(Input& input, Names& names) {
  constexpr std::size_t kLargest = std::size_t{1} << 30U;
  const std::string file = whole_input(input, kLargest);
  expect_shallow_json(file, input.label());
  const json root = json::parse(file, nullptr, false);
  if (root.is_discarded()) {
    throw InputError(input.label(), "is not JSON; was it cut?");
  }
  const json& tool = json_member(root, "rocprofiler-sdk-tool");
  if (!tool.is_object() && !(tool.is_array() && tool.size() == 1)) {
    throw InputError(input.label(),
                     fmt::format("holds {} processes of rocprofv3; expected one rank: let each "
                                 "write a separate file (-o name_%rank%)",
                                 tool.is_array() ? tool.size() : 0));
  }
  return RocprofRank(tool.is_array() ? tool[0] : tool, names, input.label()).read();
}

}  // namespace stepcast::traces
