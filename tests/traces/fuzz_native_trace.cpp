// The reader of native traces on arbitrary text: the only way out is a trace or an InputError, and
// what was read can be counted.
//
// One input holds all files of a trace: the manifest, then each rank's part, separated by a line of
// its own, "----".
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.h"
#include "traces/native/native_trace.h"

namespace {

constexpr std::string_view kSeparator = "\n----\n";

/// Part `index` of the input, with the line end that the separator took.
std::string part_of(std::string_view input, std::size_t index) {
  for (std::size_t i = 0; i < index; ++i) {
    const std::size_t end = input.find(kSeparator);
    if (end == std::string_view::npos) {
      return {};
    }
    input.remove_prefix(end + kSeparator.size());
  }
  return std::string(input.substr(0, input.find(kSeparator))) + "\n";
}

void read(std::string_view input) {
  const stepcast::traces::Recording recording =
      stepcast::traces::read_recording("fuzz", [input](const std::string& name) {
        // "trace.json" or "rank-R.csv"
        const auto part =
            name == "trace.json" ? 0 : static_cast<std::size_t>(std::atoi(name.c_str() + 5)) + 1;
        if (part > 65) {
          throw stepcast::InputError(name, "is not there");
        }
        return stepcast::Input::of_text(name, part_of(input, part));
      });
  if (recording.own == nullptr) {
    (void)recording.all_oddities();
    return;
  }
  (void)stepcast::traces::step_seconds(*recording.own, 0);
  for (const stepcast::traces::RankTrace& rank : recording.own->ranks) {
    (void)stepcast::traces::samples_of(*recording.own, rank.rank, 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    read({reinterpret_cast<const char*>(data), size});
  } catch (const stepcast::InputError& e) {
    if (std::string_view(e.what()).size() > 4000) {
      std::abort();
    }
  }
  return 0;
}
