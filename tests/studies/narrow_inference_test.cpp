#include <catch2/catch.hpp>

#include <random>

#include "studies/predict/predict.h"
#include "tests/jobs.h"
#include "tests/planner/parallel_jobs.h"

using namespace stepcast;
using namespace stepcast::studies;

namespace {

/// A dense transformer that prefills or decodes.
Job random_inference(std::mt19937& rng) {
  const auto one_of = [&rng](std::initializer_list<std::int64_t> values) {
    return *(values.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                  0, static_cast<std::ptrdiff_t>(values.size()) - 1)(rng));
  };
  Job job = planner::testing::random_transformer(rng);
  job.system = config::load_system("dgx-h100", planner::testing::kLibrary);
  job.flash_attention = true;
  job.devices = one_of({1, 2, 4, 8});
  job.parallel.tensor = job.devices;
  job.phase = one_of({0, 1, 1}) == 0 ? JobPhase::kPrefill : JobPhase::kDecode;
  job.cached = one_of({512, 4096, 32768});
  job.batch.global = one_of({1, 4, 16, 64});
  job.batch.micro = job.batch.global;
  job.batch.sequence = job.phase == JobPhase::kDecode ? 1 : one_of({256, 2048});
  return job;
}

}  // namespace

TEST_CASE("narrower keys and values take less memory and no more time",
          "[studies][inference][property]") {
  std::mt19937 rng(6);
  for (int i = 0; i < 200; ++i) {
    Job job = random_inference(rng);
    const StepPrediction wide = predict(job);
    job.formats.cache = Format::kFp8;
    const StepPrediction narrow = predict(job);
    INFO(planner::describe(job) << ", " << job.batch.global << " x " << job.cached);
    CHECK(narrow.ledger.cache == wide.ledger.cache * 0.5);
    CHECK(narrow.ledger.total() < wide.ledger.total());
    CHECK(narrow.iteration <= wide.iteration * (1 + 1e-9));
  }
}

TEST_CASE("inference keeps the matrices of layers in the format of products",
          "[studies][inference][property]") {
  std::mt19937 rng(7);
  int large = 0;
  for (int i = 0; i < 200; ++i) {
    Job job = random_inference(rng);
    const StepPrediction wide = predict(job);
    job.formats.compute = Format::kFp8;
    const StepPrediction narrow = predict(job);
    INFO(planner::describe(job) << ", " << job.batch.global << " x " << job.cached);
    CHECK(narrow.ledger.total() < wide.ledger.total());
    for (const OpRow& row : narrow.by_name) {
      CHECK(row.name != "weights.quantise");
    }
    // Reading half of 64 MB takes 10 us, more than the casts of a layer's four inputs; smaller
    // products are as slow in fp8 as measured.
    const TransformerWorkload& m = *job.workload.transformer();
    const std::int64_t rows =
        2 * m.query_width() + 2 * m.kv_heads * m.head_dim + (m.gated() ? 3 : 2) * m.ffn_hidden;
    const double layer = 2 * static_cast<double>(m.hidden * rows / job.parallel.tensor);
    if (layer > 64e6 && job.phase == JobPhase::kDecode) {
      ++large;
      CHECK(narrow.iteration < wide.iteration);
    }
  }
  CHECK(large > 20);
}

// A server reads 8 GB of weights for a token: 2.4 ms at 3.35 TB/s, with keys and values, embedding
// and head below 5 ms (trial of 2026-11-29, inputs/fp8_decode.json; bf16 takes 6.9 ms).
TEST_CASE("decoding with fp8 weights reads half the bytes", "[studies][inference]") {
  const auto decode = [](const fixtures::Words& more) {
    return predict(fixtures::zoo_job(
        "llama3-8b", "dgx-h100",
        "devices=1 phase=decode cached=4096 batch.global=1 batch.sequence=1" + more));
  };
  const StepPrediction wide = decode({});
  const StepPrediction narrow = decode({"formats.compute=fp8"});
  // 32 layers of 218.1 M weights in fp8; embedding, head and norms in bf16.
  CHECK(narrow.ledger.weights.base() ==
        Approx(32 * 218.1e6 + 2 * 2 * 128256.0 * 4096).epsilon(0.001));
  CHECK(narrow.ledger.buffers < GB(0.1));
  CHECK(narrow.iteration < milliseconds(5));
  CHECK(narrow.iteration < wide.iteration);
  CHECK(decode({"formats.compute=fp8", "formats.cache=fp8"}).iteration <= narrow.iteration);
}
