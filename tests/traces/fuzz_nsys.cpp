// The reader of exports of Nsight Systems on arbitrary bytes (fuzz_reader.h says what must hold).
#include "tests/traces/fuzz_reader.h"
#include "traces/nsys/nsys_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  stepcast::traces::test::fuzz_reader(stepcast::traces::read_nsys, data, size);
  return 0;
}
