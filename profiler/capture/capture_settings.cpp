#include "profiler/capture/capture_settings.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/error.h"

namespace stepcast::profiler {
namespace {

constexpr const char* kOut = "STEPCAST_PROFILE_OUT";
constexpr const char* kSteps = "STEPCAST_PROFILE_STEPS";
constexpr const char* kSeconds = "STEPCAST_PROFILE_SECONDS";
constexpr const char* kSignal = "STEPCAST_PROFILE_SIGNAL";
constexpr const char* kMark = "STEPCAST_PROFILE_MARK";
constexpr const char* kWholeGraphs = "STEPCAST_PROFILE_WHOLE_GRAPHS";
constexpr const char* kBufferBytes = "STEPCAST_PROFILE_BUFFER_BYTES";
constexpr const char* kMostRecords = "STEPCAST_PROFILE_MOST_RECORDS";

std::optional<std::int64_t> whole(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && !text.empty()
             ? std::optional(value)
             : std::nullopt;
}

[[noreturn]] void fail(const char* name, std::string_view found, std::string_view expected) {
  throw InputError(name, fmt::format("found '{}'; expected {}", found.substr(0, 60), expected));
}

}  // namespace

std::vector<std::string> environment_of(const CaptureSettings& s) {
  std::vector<std::string> all;
  const auto set = [&all](const char* name, const auto& value) {
    all.push_back(fmt::format("{}={}", name, value));
  };
  set(kOut, s.out.string());
  if (s.steps) {
    set(kSteps, fmt::format("{}:{}", s.steps->first, s.steps->second));
  }
  if (s.seconds) {
    set(kSeconds, *s.seconds);
  }
  if (s.on_signal) {
    set(kSignal, 1);
  }
  if (!s.mark.empty()) {
    set(kMark, s.mark);
  }
  if (s.whole_graphs) {
    set(kWholeGraphs, 1);
  }
  set(kBufferBytes, s.buffer_bytes);
  set(kMostRecords, s.most_records);
  return all;
}

std::optional<CaptureSettings> settings_from(const Lookup& lookup) {
  const auto text = [&lookup](const char* name) {
    const char* value = lookup(name);
    return std::string_view(value == nullptr ? "" : value);
  };
  if (text(kOut).empty()) {
    return std::nullopt;
  }
  CaptureSettings s;
  s.out = text(kOut);
  if (const std::string_view steps = text(kSteps); !steps.empty()) {
    const std::size_t colon = steps.find(':');
    const auto first = whole(steps.substr(0, colon));
    const auto last =
        colon == std::string_view::npos ? std::nullopt : whole(steps.substr(colon + 1));
    if (!first || !last || *first < 0 || *last <= *first) {
      fail(kSteps, steps, "A:B with 0 <= A < B");
    }
    s.steps = {*first, *last};
  }
  if (const std::string_view seconds = text(kSeconds); !seconds.empty()) {
    double value = 0;
    const auto [end, error] =
        std::from_chars(seconds.data(), seconds.data() + seconds.size(), value);
    if (error != std::errc{} || end != seconds.data() + seconds.size() || !(value > 0) ||
        !(value <= 1e6)) {
      fail(kSeconds, seconds, "seconds above 0, up to 1e6");
    }
    s.seconds = value;
  }
  s.on_signal = text(kSignal) == "1";
  s.mark = text(kMark);
  s.whole_graphs = text(kWholeGraphs) == "1";
  const auto number = [&text](const char* name, std::uint64_t& to, std::int64_t least) {
    if (const std::string_view found = text(name); !found.empty()) {
      const auto value = whole(found);
      if (!value || *value < least) {
        fail(name, found, fmt::format("a whole number of at least {}", least));
      }
      to = static_cast<std::uint64_t>(*value);
    }
  };
  number(kBufferBytes, s.buffer_bytes, 1 << 20);
  number(kMostRecords, s.most_records, 1);
  return s;
}

LaunchedRank launched_rank(const Lookup& lookup) {
  const auto number = [&lookup](const char* name) -> std::optional<std::int32_t> {
    const char* value = lookup(name);
    const auto found = value == nullptr ? std::nullopt : whole(value);
    return found && *found >= 0 && *found <= INT32_MAX
               ? std::optional(static_cast<std::int32_t>(*found))
               : std::nullopt;
  };
  struct Launcher {
    const char *rank, *size, *also;
  };
  constexpr std::array<Launcher, 5> kLaunchers{{
      {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
      {"PMI_RANK", "PMI_SIZE", "PMI_SIZE"},
      {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_PROCID"},
      {"RANK", "WORLD_SIZE", "RANK"},
  }};
  for (const Launcher& l : kLaunchers) {
    if (const auto rank = number(l.rank); rank && number(l.also)) {
      const std::int32_t size = number(l.size).value_or(0);
      return {*rank, *rank < size ? size : 0};
    }
  }
  return {};
}

}  // namespace stepcast::profiler
