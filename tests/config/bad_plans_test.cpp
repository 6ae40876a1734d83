// A split that cannot be says which key is wrong, what it met, and the nearest values that can.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/error.h"

namespace stepcast {
namespace {

using Catch::Matchers::Contains;

const config::Library kLibrary{STEPCAST_SOURCE_DIR};

std::string message(const std::string& workload, std::vector<std::string> set) {
  set.insert(set.begin(), {"workload=" + workload, "system=dgx-h100", "batch.global=64",
                           "batch.micro=1", "batch.sequence=2048"});
  try {
    (void)config::load_job(config::text_source("{}", "test"), set, kLibrary);
  } catch (const InputError& e) {
    return e.what();
  }
  return "accepted";
}

struct Bad {
  std::vector<std::string> set;
  const char* key;     ///< that is to blame
  const char* remedy;  ///< the nearest values that can be
};

// gpt3-175b: 96 layers, 96 heads, hidden 12288 = 96 * 128.
const std::vector<Bad> kDense{
    {{"devices=5", "parallel.tensor=5"}, "parallel.tensor", "use 1, 2, 4, 8, 16 or 32"},
    {{"devices=128", "parallel.pipeline=128"}, "parallel.pipeline", "use at most 96 stages"},
    {{"devices=64", "parallel.pipeline=4", "parallel.virtual_stages=25"},
     "parallel.virtual_stages",
     "use at most 24"},
    {{"devices=8", "parallel.pipeline=8", "parallel.recompute={\"layers\": 13}"},
     "parallel.recompute.layers",
     "use 12 or less"},
    {{"workload.heads=97"}, "kv_heads", "such as 1 or 97"},
    {{"devices=8", "parallel.tensor=16"}, "devices", "16"},
    {{"devices=64", "parallel.data=63"}, "parallel.data", "\"auto\" or set devices=63"},
    {{"devices=7"}, "batch.global", "use 63 or 70"},
    {{"devices=8", "parallel.pipeline=8", "parallel.virtual_stages=3", "batch.global=12"},
     "batch.global",
     "use 8 or 16"},
    {{"devices=8", "parallel.tensor=8", "parallel.sequence_parallel=true", "batch.sequence=2044"},
     "parallel.sequence_parallel",
     "use batch.sequence = 2040 or 2048, or false"},
    {{"devices=16", "parallel.expert=2"}, "parallel.expert", "use 1"},
};

// mixtral-8x7b: 8 experts, 8 key and value heads.
const std::vector<Bad> kExperts{
    {{"devices=16", "parallel.expert=16"}, "parallel.expert", "use 1, 2, 4 or 8"},
    {{"devices=16", "parallel.expert=3"}, "parallel.expert", "use 1, 2, 4 or 8"},
    {{"devices=8", "parallel.expert=8", "parallel.tensor=8"},
     "parallel.sequence_parallel",
     "use true"},
    {{"devices=8", "parallel.expert=8", "parallel.expert_chunks=2"},
     "parallel.expert_chunks",
     "set overlap.expert, or use 1"},
};

}  // namespace

TEST_CASE("bad plans name the key and the nearest plan that can be", "[config][bad_plan]") {
  for (const Bad& bad : kDense) {
    CAPTURE(bad.set);
    CHECK_THAT(message("gpt3-175b", bad.set), Contains(bad.key) && Contains(bad.remedy));
  }
  for (const Bad& bad : kExperts) {
    CAPTURE(bad.set);
    CHECK_THAT(message("mixtral-8x7b", bad.set), Contains(bad.key) && Contains(bad.remedy));
  }
}

TEST_CASE("their neighbours are accepted", "[config][bad_plan]") {
  CHECK(message("gpt3-175b", {"devices=8", "parallel.tensor=8"}) == "accepted");
  CHECK(message("gpt3-175b", {"devices=96", "parallel.pipeline=96"}) == "accepted");
  CHECK(message("gpt3-175b", {"devices=8", "parallel.pipeline=8",
                              "parallel.recompute={\"layers\": 12}"}) == "accepted");
  CHECK(message("gpt3-175b", {"devices=8", "parallel.tensor=8", "parallel.sequence_parallel=true",
                              "batch.sequence=2048"}) == "accepted");
  // Tokens of a micro-batch are split, not each sequence: 2 x 2044 = 8 x 511; decoding, 64 x 1.
  CHECK(message("gpt3-175b", {"devices=8", "parallel.tensor=8", "parallel.sequence_parallel=true",
                              "batch.sequence=2044", "batch.micro=2", "batch.global=16"}) ==
        "accepted");
  CHECK(message("gpt3-175b", {"devices=8", "parallel.tensor=8", "parallel.sequence_parallel=true",
                              "phase=decode", "cached=2048", "batch.sequence=1", "batch.micro=64",
                              "batch.global=64"}) == "accepted");
  CHECK(message("mixtral-8x7b", {"devices=16", "parallel.expert=8", "parallel.expert_chunks=2",
                                 "parallel.overlap.expert=true"}) == "accepted");
}

}  // namespace stepcast
