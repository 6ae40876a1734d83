// Makes a job of a recorded run, on Kineto files of arbitrary bytes: the only way out is a
// sketch or an InputError. Chains of replays start from the same files (fuzz_kineto).
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/input/input.h"
#include "studies/traces/internal/job_sketch.h"
#include "traces/kineto/kineto_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stepcast;
  try {
    traces::Recording recording;
    Input input = Input::of_text("fuzz", std::string(reinterpret_cast<const char*>(data), size));
    recording.ranks.push_back(traces::read_kineto(input, recording.names));
    const auto ranks = studies::inferred_workload(recording, "");
    studies::InferredWorkload dlrm, transformer;
    (void)studies::infer_dlrm(ranks, 4, dlrm);
    (void)studies::sketch_transformer(ranks, 4, "fuzz", transformer);
  } catch (const InputError&) {
  }
  return 0;
}
