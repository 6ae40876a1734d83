// A split that cannot be says which key is wrong, what it met, and the nearest values that can.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <regex>
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
    {{"devices=5", "parallel.tensor=5"},
     "parallel.tensor",
     "use 1, 2, 4, 8, 16 or 32 with other keys changed too"},  // 64 sequences, five replicas
    {{"devices=12", "parallel.tensor=8"},
     "devices",
     "= 8; use devices = 8 or 16"},  // no 3 replicas
    {{"devices=128", "parallel.pipeline=128"}, "parallel.pipeline", "use at most 96 stages"},
    {{"devices=64", "parallel.pipeline=4", "parallel.virtual_stages=25"},
     "parallel.virtual_stages",
     "use at most 24"},
    {{"devices=8", "parallel.pipeline=8", "parallel.recompute={\"layers\": 13}"},
     "parallel.recompute.layers",
     "use 12 or less"},
    {{"workload.heads=97"}, "kv_heads", "such as 1 or 97"},
    {{"devices=8", "parallel.tensor=16"}, "devices", "16"},
    {{"devices=64", "parallel.data=63"}, "parallel.data", "use \"auto\""},
    {{"devices=64", "parallel.data=32"}, "parallel.data", "\"auto\" or set devices=32"},
    {{"devices=7"}, "batch.global", "use 63 or 70"},
    {{"devices=8", "parallel.pipeline=8", "parallel.virtual_stages=3", "batch.global=12"},
     "batch.global",
     "use 8 or 16"},
    {{"devices=8", "parallel.tensor=8", "parallel.sequence_parallel=true", "batch.sequence=2044"},
     "batch.sequence",
     "as sequence_parallel asks; use 2040 or 2048"},
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

TEST_CASE("a value that an error says to use breaks no other rule",
          "[config][bad_plan][property]") {
  const std::vector<std::pair<std::string, std::vector<int>>> keys{
      {"devices", {8, 16, 24, 60, 64}},       {"parallel.tensor", {1, 2, 3, 8, 10}},
      {"parallel.pipeline", {1, 2, 4, 6}},    {"parallel.context", {1, 2, 3}},
      {"parallel.expert", {1, 3, 8, 16}},     {"parallel.virtual_stages", {1, 2}},
      {"batch.global", {60, 64, 100, 512}},   {"batch.micro", {1, 2, 3}},
      {"batch.sequence", {2044, 2048, 6000}}, {"loss.chunks", {1, 7, 8}}};
  // "; use 8 or 16" of the key before the colon, "; use parallel.tensor = 2 or 4, or devices = 64".
  const std::regex of_key(R"(^--set (\S+): .*; use ([0-9]+(?:, [0-9]+)*(?: or [0-9]+)?)$)");
  const std::regex named(R"((parallel\.[a-z]+|devices) = ([0-9]+(?: or [0-9]+)?))");
  const std::regex number("[0-9]+");
  std::mt19937 random(7);
  int tried = 0;
  for (int i = 0; i < 240; ++i) {
    const std::string model = i % 2 == 0 ? "llama3-8b" : "mixtral-8x7b";
    std::vector<std::string> set;
    for (const auto& [key, values] : keys) {
      set.push_back(fmt::format("{}={}", key, values[random() % values.size()]));
    }
    const std::string said = message(model, set);
    CAPTURE(model, set, said);
    std::vector<std::pair<std::string, std::string>> remedies;
    std::smatch match;
    if (std::regex_match(said, match, of_key)) {
      remedies.emplace_back(match[1], match[2]);
    } else if (said.find("is not a multiple of tensor") != std::string::npos) {
      const std::string rest = said.substr(std::min(said.find("; use "), said.size()));
      for (std::sregex_iterator at(rest.begin(), rest.end(), named), end; at != end; ++at) {
        remedies.emplace_back((*at)[1], (*at)[2]);
      }
    }
    for (const auto& [key, values] : remedies) {
      for (std::sregex_iterator at(values.begin(), values.end(), number), end; at != end; ++at) {
        std::vector<std::string> changed = set;
        changed.push_back(key + "=" + at->str());
        CAPTURE(key, at->str());
        CHECK(message(model, changed) == "accepted");
        ++tried;
      }
    }
  }
  CHECK(tried > 30);
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
