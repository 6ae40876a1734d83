#include "traces/events/recording.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace stepcast::traces {

std::string_view name_of(EventCategory category) {
  switch (category) {
    case EventCategory::kCpuOp:
      return "cpu_op";
    case EventCategory::kUserRange:
      return "user_range";
    case EventCategory::kPythonFunction:
      return "python_function";
    case EventCategory::kRuntimeCall:
      return "runtime_call";
    case EventCategory::kOverhead:
      return "overhead";
    case EventCategory::kHostOther:
      return "host_other";
    case EventCategory::kKernel:
      return "kernel";
    case EventCategory::kCollective:
      return "collective";
    case EventCategory::kMemcpy:
      return "memcpy";
    case EventCategory::kMemset:
      return "memset";
    case EventCategory::kSync:
      return "sync";
    case EventCategory::kEventRecord:
      return "event_record";
    case EventCategory::kDeviceRange:
      return "device_range";
    case EventCategory::kDeviceOther:
      return "device_other";
    case EventCategory::kCount:
      break;
  }
  return "?";
}

std::uint64_t RankRecording::count(EventCategory category) const {
  return static_cast<std::uint64_t>(
      std::count(events.category.begin(), events.category.end(), category));
}

ParseWarnings Recording::all_oddities() const {
  ParseWarnings all = oddities;
  for (const RankRecording& rank : ranks) {
    all.merge(rank.oddities);
  }
  return all;
}

std::vector<std::vector<std::int64_t>> shapes_of(std::string_view text) {
  // A list with a number in it, or an empty one below the outermost, is one operand's shape.
  std::vector<std::vector<std::int64_t>> shapes;
  int depth = 0;
  bool leaf = false;  // the innermost open list may be a shape
  std::vector<std::int64_t> shape;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '[') {
      ++depth;
      leaf = depth > 1;
      shape.clear();
    } else if (c == ']') {
      if (leaf) {
        shapes.push_back(shape);
      }
      leaf = false;
      if (--depth < 0) {
        return {};
      }
    } else if (c == '-' || (c >= '0' && c <= '9')) {
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), value);
      if (error != std::errc{} || !leaf) {
        return {};
      }
      shape.push_back(value);
      i = static_cast<std::size_t>(end - text.data()) - 1;
    } else if (c != ',' && std::isspace(static_cast<unsigned char>(c)) == 0) {
      return {};
    }
  }
  return depth == 0 ? shapes : std::vector<std::vector<std::int64_t>>{};
}

}  // namespace stepcast::traces
