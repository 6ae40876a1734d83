#include "traces/kineto/internal/kineto_rank.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json_text.h"
#include "traces/events/host_calls.h"
#include "traces/kineto/internal/decimal.h"
#include "traces/memory/memory_record.h"

namespace stepcast::traces::internal {
namespace {

using nlohmann::json;

struct CategoryName {
  std::string_view name;
  EventCategory category;
};
/// Since 2022 in lower case; 2021 in capitals, where ranges were operators.
constexpr std::array<CategoryName, 29> kCategories{{
    {"cpu_op", EventCategory::kCpuOp},
    {"cuda_runtime", EventCategory::kRuntimeCall},
    {"kernel", EventCategory::kKernel},
    {"user_annotation", EventCategory::kUserRange},
    {"python_function", EventCategory::kPythonFunction},
    {"gpu_memcpy", EventCategory::kMemcpy},
    {"gpu_memset", EventCategory::kMemset},
    {"cuda_driver", EventCategory::kRuntimeCall},
    {"gpu_user_annotation", EventCategory::kDeviceRange},
    {"cuda_sync", EventCategory::kSync},
    {"cuda_event", EventCategory::kEventRecord},
    {"overhead", EventCategory::kOverhead},
    {"cuda_profiler_range", EventCategory::kDeviceOther},
    {"collective_comm", EventCategory::kCollective},
    {"hip_runtime", EventCategory::kRuntimeCall},
    {"xpu_runtime", EventCategory::kRuntimeCall},
    {"xpu_driver", EventCategory::kRuntimeCall},
    {"privateuse1_runtime", EventCategory::kRuntimeCall},
    {"privateuse1_driver", EventCategory::kRuntimeCall},
    {"mtia_runtime", EventCategory::kRuntimeCall},
    {"mtia_ccp_events", EventCategory::kKernel},
    {"glow_runtime", EventCategory::kRuntimeCall},
    {"user_defined", EventCategory::kUserRange},
    {"host_other", EventCategory::kHostOther},
    {"Operator", EventCategory::kCpuOp},
    {"Runtime", EventCategory::kRuntimeCall},
    {"Kernel", EventCategory::kKernel},
    {"Memcpy", EventCategory::kMemcpy},
    {"Memset", EventCategory::kMemset},
}};

std::optional<EventCategory> category_of(std::string_view name) {
  for (const CategoryName& c : kCategories) {
    if (c.name == name) {
      return c.category;
    }
  }
  return std::nullopt;
}

/// The numbers in "[0, 1, 2]"; a list that was shortened ("[0, ..., 7]") gives none.
std::vector<std::int64_t> numbers_in(std::string_view text) {
  if (text.empty() || text.front() != '[') {
    return {};
  }
  const auto lists = shapes_of(fmt::format("[{}]", text));
  return lists.size() == 1 ? lists[0] : std::vector<std::int64_t>{};
}

SyncInfo::Kind sync_kind_of(std::string_view words) {
  if (words.starts_with("Stream Wait")) {
    return SyncInfo::Kind::kStreamWait;
  }
  if (words.starts_with("Event")) {
    return SyncInfo::Kind::kEventSync;
  }
  return words.starts_with("Stream") ? SyncInfo::Kind::kStreamSync : SyncInfo::Kind::kContextSync;
}

std::int32_t small(std::int64_t value) {
  return std::in_range<std::int32_t>(value) ? static_cast<std::int32_t>(value) : -1;
}

template <typename T>
std::int32_t append(std::vector<T>& table, T item) {
  table.push_back(std::move(item));
  return static_cast<std::int32_t>(table.size() - 1);
}

}  // namespace

KinetoRank::KinetoRank(Input& input, Names& names)
    : input_(input), names_(names), builder_(names, input.label()) {
  builder_.rank().rank = -1;
  constexpr std::uint64_t kBytesPerEvent = 300;  // with arguments and flow arrows rather 350 to 800
  builder_.reserve(input.expected() / kBytesPerEvent);
}

std::string KinetoRank::place(std::uint64_t offset) const {
  return fmt::format("{}: byte {}", input_.label(), offset);
}

NameId KinetoRank::name_of_text(std::string_view text, std::uint64_t offset) {
  if (text.find('\\') == std::string_view::npos) {
    return names_.intern(text);
  }
  // Escapes are rare: the general parser may take its time.
  const json parsed = json::parse('"' + std::string(text) + '"', nullptr, false);
  if (!parsed.is_string()) {
    builder_.rank().oddities.add(ParseWarning::kBadText, [&] { return place(offset); });
    return names_.intern(text);
  }
  return names_.intern(parsed.get_ref<const std::string&>());
}

std::int64_t KinetoRank::number_of(std::string_view id) {
  // An id that is a text gets a number of its own, below all real ones.
  const auto number = integer_of(id);
  return number ? *number : -2 - static_cast<std::int64_t>(names_.intern(id));
}

std::uint16_t KinetoRank::lane(const RawEvent& e, bool device) {
  if (!device) {
    return builder_.host_lane(number_of(e.process), number_of(e.thread));
  }
  const auto process = integer_of(e.process);
  const auto thread = integer_of(e.thread);
  return builder_.stream_lane(small(e.device.value_or(process.value_or(-1))), small(e.context),
                              small(e.stream.value_or(thread.value_or(-1))));
}

bool KinetoRank::memory(const RawEvent& e) {
  constexpr std::int64_t kHost = 0;  // c10::DeviceType
  const auto at = nanoseconds_of_microseconds(e.begin);
  if (!at || e.device_type == kHost || e.address == 0) {  // 2021: neither addresses nor sums
    return false;
  }
  builder_.rank().memory.push_back(
      {.at = Nanoseconds(at->nanoseconds),
       .address = e.address,
       .bytes = std::clamp(e.bytes, -kMostBytes, kMostBytes),
       .allocated = std::clamp(e.allocated, std::int64_t{0}, kMostBytes),
       .reserved = std::clamp(e.reserved, std::int64_t{0}, kMostBytes),
       .process = number_of(e.process),
       .thread = number_of(e.thread),
       .device = small(e.device_id)});
  return true;
}

std::int32_t KinetoRank::group(const RawCollective& c) {
  const std::string_view name = !c.group_name.empty() ? c.group_name : c.communicator;
  if (name.empty()) {
    return -1;
  }
  const std::int32_t index = builder_.group(name);
  Group& g = builder_.rank().groups[static_cast<std::size_t>(index)];
  if (g.description.empty()) {
    g.description = std::string(c.group_description);
  }
  if (g.size == 0) {
    g.size = small(c.group_size);
  }
  if (g.ranks.empty()) {
    for (const std::int64_t r : numbers_in(c.group_ranks)) {
      g.ranks.push_back(small(r));
    }
  }
  return index;
}

std::int32_t KinetoRank::collective(const RawEvent& e) {
  const RawCollective& c = e.collective;
  CollectiveInfo info;
  info.bytes = e.bytes;
  info.name = c.name.empty() ? kNoName : names_.intern(c.name);
  info.kind = collective_kind_of(c.name).value_or(OpKind::kCount);
  info.group = group(c);
  info.sequence = c.sequence;
  info.elements_in = c.elements_in;
  info.elements_out = c.elements_out;
  info.dtype = c.dtype.empty() ? kNoName : names_.intern(c.dtype);
  info.peer = small(c.peer);
  info.split_in = numbers_in(c.split_in);
  info.split_out = numbers_in(c.split_out);
  return append(builder_.rank().collectives, std::move(info));
}

std::int32_t KinetoRank::detail(const RawEvent& e, EventCategory category) {
  RankRecording& rank = builder_.rank();
  const auto text = [this](std::string_view t) {
    return t.empty() ? kNoName : names_.intern(bare(t));
  };
  switch (category) {
    case EventCategory::kCpuOp:
    case EventCategory::kUserRange:
      if (!e.has_op && !e.has_collective) {
        return kNoDetail;
      }
      return append(rank.ops, OpInfo{.shapes = text(e.shapes),
                                     .types = text(e.types),
                                     .inputs = text(e.inputs),
                                     .collective = e.has_collective && !e.collective.name.empty()
                                                       ? collective(e)
                                                       : kNoDetail,
                                     .sequence = e.sequence,
                                     .record_function = e.record_function,
                                     .forward_thread = e.forward_thread});
    case EventCategory::kKernel:
      return e.has_launch ? builder_.launch(e.launch) : kNoDetail;
    case EventCategory::kCollective:
      return e.has_collective ? collective(e) : kNoDetail;
    case EventCategory::kMemcpy:
    case EventCategory::kMemset:
      return append(rank.copies, CopyInfo{e.bytes, small(e.peer_device)});
    case EventCategory::kSync:
    case EventCategory::kEventRecord: {
      const bool record = category == EventCategory::kEventRecord;
      SyncInfo info{record ? SyncInfo::Kind::kRecord : sync_kind_of(e.sync_kind),
                    small(e.stream.value_or(-1)), small(e.wait_stream), e.event_id,
                    record ? e.correlation : e.record_correlation};
      if (info.kind == SyncInfo::Kind::kStreamWait && info.record_correlation < 0) {
        rank.oddities.add(ParseWarning::kUnpairedWait, [&] {
          return fmt::format("{}: stream {} waits for event {}", rank.source, info.stream,
                             info.event);
        });
      }
      return append(rank.syncs, info);
    }
    default:
      return kNoDetail;
  }
}

bool KinetoRank::communicates(NameId kernel) {
  if (kernel >= communicates_.size()) {
    communicates_.resize(kernel + 1, Told::kNotAsked);
  }
  Told& told = communicates_[kernel];
  if (told == Told::kNotAsked) {
    told = is_collective_kernel(names_.view(kernel)) ? Told::kYes : Told::kNo;
  }
  return told == Told::kYes;
}

void KinetoRank::event(const RawEvent& e, std::uint64_t offset) {
  ++phases_[static_cast<unsigned char>(e.phase) % phases_.size()];
  if (e.phase == 'E') {
    end_range(e, offset);
    return;
  }
  if (e.phase == 'i' && e.name == "[memory]" && memory(e)) {
    return;
  }
  if (e.phase != 'X' && e.phase != 'B') {
    if (e.phase == 'M' && e.name == "thread_name" && !e.label.empty()) {
      threads_[{number_of(e.process), number_of(e.thread)}] = name_of_text(bare(e.label), offset);
    } else if (e.phase != 'M' && e.phase != 's' && e.phase != 't' && e.phase != 'f') {
      builder_.rank().oddities.add(ParseWarning::kUnreadRecord, [&] {
        return fmt::format("{}: phase '{}'", place(offset), e.phase);
      });
    }
    return;
  }
  if (e.category == "Trace" || e.process == "Spans" || e.process == "Traces") {
    ++own_spans_;
    return;
  }
  NewEvent added;
  if (!times(e, offset, added.begin, added.duration)) {
    return;
  }
  const auto known = category_of(e.category);
  if (!known) {
    ++builder_.rank().unknown_categories[std::string(e.category.substr(0, 40))];
    builder_.rank().oddities.add(ParseWarning::kUnknownCategory, [&] {
      return fmt::format("{}: category '{}'", place(offset), e.category.substr(0, 40));
    });
  }
  EventCategory category =
      known.value_or(e.stream ? EventCategory::kDeviceOther : EventCategory::kHostOther);
  added.name = name_of_text(e.name, offset);
  if (category == EventCategory::kKernel && (e.has_collective || communicates(added.name))) {
    category = EventCategory::kCollective;
  } else if (category == EventCategory::kCpuOp && e.name.starts_with("ProfilerStep#")) {
    category = EventCategory::kUserRange;  // 2021
  }
  added.category = category;
  added.lane = lane(e, on_device(category));
  added.correlation = e.correlation;
  added.external = e.external;
  added.detail = detail(e, category);
  const EventId id = builder_.add(added);
  if (e.phase == 'B') {
    open_[{number_of(e.process), number_of(e.thread)}].push_back(id);
  }
}

void KinetoRank::profiler_notes(std::string_view line) {
  // "... Record counts: Out-of-range = 4181, Blocklisted runtime = 37458, ..., CUPTI stopped
  // early? = 0"
  const auto number_after = [line](std::string_view word) {
    const std::size_t at = line.find(word);
    if (at == std::string_view::npos) {
      return std::int64_t{0};
    }
    const std::string_view rest = line.substr(at + word.size());
    return integer_of(rest.substr(0, rest.find(','))).value_or(0);
  };
  const auto note = [&](ParseWarning kind, std::string_view word) {
    const std::int64_t n = number_after(word);
    if (n > 0) {
      builder_.rank().oddities.add(
          kind,
          [&] { return fmt::format("{}: the profiler says '{}{}'", input_.label(), word, n); },
          static_cast<std::uint64_t>(n));
    }
  };
  // Lost: what CUPTI had no room for. Not lost: activities outside the capture window, and calls
  // that Kineto never records (cudaGetDevice, ...).
  note(ParseWarning::kDropped, "CUPTI stopped early? = ");
  const auto fact = [&](const char* key, std::string_view word) {
    if (const std::int64_t n = number_after(word); n > 0) {
      builder_.rank().metadata[key] = std::to_string(n);
    }
  };
  fact("activities_outside_the_capture_window", "Out-of-range = ");
  fact("calls_kineto_never_records", "Blocklisted runtime = ");
  fact("invalid_external_correlations", "Invalid ext correlations = ");
}

void KinetoRank::member(std::string_view key, std::string_view text) {
  RankRecording& rank = builder_.rank();
  expect_shallow_json(text, fmt::format("{}: {}", input_.label(), key));
  const json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) {
    throw InputError(fmt::format("{}: {}", input_.label(), key),
                     "is not JSON; was the file edited?");
  }
  if (key == "baseTimeNanoseconds") {
    const auto base = integer_of(value.is_string() ? value.get<std::string>() : text);
    if (!base || *base < 0 || *base > (std::int64_t{1} << 62)) {
      throw InputError(
          fmt::format("{}: {}", input_.label(), key),
          fmt::format("found {}; expected nanoseconds since 1970", text.substr(0, 40)));
    }
    base_ = *base;
  } else if (key == "deviceProperties" && value.is_array()) {
    for (const json& device : value) {
      rank.devices.push_back(device.is_object() && device.contains("name") &&
                                     device["name"].is_string()
                                 ? device["name"].get<std::string>()
                                 : "");
    }
  } else if (key == "distributedInfo" && value.is_object()) {
    const auto whole = [&](const char* name, std::int32_t otherwise) {
      const auto it = value.find(name);
      return it != value.end() && it->is_number_integer() ? small(it->get<std::int64_t>())
                                                          : otherwise;
    };
    rank.rank = whole("rank", rank.rank);
    rank.world_size = whole("world_size", 0);
    for (const char* name : {"backend", "nccl_version"}) {
      if (value.contains(name) && value[name].is_string()) {
        rank.metadata[name] = value[name].get<std::string>();
      }
    }
    for (const json& g : value.value("pg_config", json::array())) {
      if (!g.is_object() || !g.contains("pg_name") || !g["pg_name"].is_string()) {
        continue;
      }
      Group& group = rank.groups[static_cast<std::size_t>(
          builder_.group(g["pg_name"].get_ref<const std::string&>()))];
      group.description =
          g.contains("pg_desc") && g["pg_desc"].is_string() ? g["pg_desc"].get<std::string>() : "";
      if (g.contains("pg_size") && g["pg_size"].is_number_integer()) {
        group.size = small(g["pg_size"].get<std::int64_t>());
      }
      if (g.contains("ranks") && g["ranks"].is_array() && group.ranks.empty()) {
        for (const json& r : g["ranks"]) {
          group.ranks.push_back(r.is_number_integer() ? small(r.get<std::int64_t>()) : -1);
        }
      }
    }
  } else if (key == "INFO" && value.is_array()) {
    for (const json& line : value) {
      if (line.is_string()) {
        profiler_notes(line.get_ref<const std::string&>());
      }
    }
  } else if (value.is_string()) {
    rank.metadata[std::string(key)] = value.get<std::string>();
  } else if (value.is_number() || value.is_boolean()) {
    rank.metadata[std::string(key)] = std::string(text);
  }
}

void KinetoRank::repaired(std::uint64_t windows) {
  builder_.rank().oddities.add(
      ParseWarning::kBadText,
      [&] { return fmt::format("{}: in {} windows", input_.label(), windows); }, windows);
}

RankRecording KinetoRank::finish() && {
  RankRecording& rank = builder_.rank();
  for (std::size_t p = 0; p < phases_.size(); ++p) {
    if (phases_[p] > 0) {
      rank.records[std::string(1, static_cast<char>(p))] = phases_[p];
    }
  }
  for (const auto& [thread, begun] : open_) {
    for (const EventId id : begun) {
      rank.oddities.add(ParseWarning::kNoTime, [&] {
        return fmt::format("{}: '{}' never ends", input_.label(),
                           names_.view(rank.events.name[id]).substr(0, 40));
      });
      builder_.drop(id);
    }
  }
  if (apart_) {
    drop_far();
  }
  for (Lane& lane : rank.lanes) {
    const auto named = threads_.find({lane.process, lane.thread});
    if (lane.kind == Lane::Kind::kHostThread && named != threads_.end()) {
      lane.name = named->second;
    }
  }
  if (own_spans_ > 0) {
    rank.records["profiler span"] = own_spans_;
  }
  // The sum may leave the range only when both are far in the future.
  if (first_ && base_ > 0 && first_->count() > INT64_MAX / 2 - base_) {
    throw InputError(input_.label() + ": baseTimeNanoseconds",
                     "added to the times is later than the year 2116");
  }
  return std::move(builder_).finish(Nanoseconds(base_));
}

}  // namespace stepcast::traces::internal
