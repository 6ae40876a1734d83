// The reader of profiles of XLA on arbitrary bytes (fuzz_reader.h says what must hold).
#include "tests/traces/fuzz_reader.h"
#include "traces/xplane/xplane_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  stepcast::traces::test::fuzz_reader(stepcast::traces::read_xplane, data, size);
  return 0;
}
