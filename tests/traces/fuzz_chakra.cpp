// The reader of chakra files on arbitrary bytes (fuzz_reader.h says what must hold).
#include "tests/traces/fuzz_reader.h"
#include "traces/chakra/chakra_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  stepcast::traces::test::fuzz_reader(stepcast::traces::read_chakra, data, size);
  return 0;
}
