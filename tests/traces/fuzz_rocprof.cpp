// The reader of files of rocprofv3 on arbitrary bytes (fuzz_reader.h says what must hold).
#include "tests/traces/fuzz_reader.h"
#include "traces/rocprof/rocprof_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  stepcast::traces::test::fuzz_reader(stepcast::traces::read_rocprof, data, size);
  return 0;
}
