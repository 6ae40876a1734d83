// The reader of memory snapshots on arbitrary bytes: records, or an InputError of reasonable
// length.
#include <cstdlib>

#include "core/error.h"
#include "traces/memory/memory_record.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stepcast;
  try {
    Input input = Input::of_text("fuzz", std::string(reinterpret_cast<const char*>(data), size));
    for (const traces::MemoryRecord& record : traces::read_memory_snapshot(input)) {
      (void)traces::memory_peak(record);
      (void)traces::out_of_memory(record);
    }
  } catch (const InputError& e) {
    if (std::string_view(e.what()).size() > 4000) {
      std::abort();
    }
  }
  return 0;
}
