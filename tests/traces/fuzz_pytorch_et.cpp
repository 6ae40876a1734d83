// The reader of pytorch_et files on arbitrary bytes (fuzz_reader.h says what must hold).
#include "tests/traces/fuzz_reader.h"
#include "traces/pytorch_et/pytorch_et_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  stepcast::traces::test::fuzz_reader(stepcast::traces::read_pytorch_et, data, size);
  return 0;
}
