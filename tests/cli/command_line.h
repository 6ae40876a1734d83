#pragma once
#include <sys/types.h>

#include <catch2/catch.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/folder.h"
#include "tests/words.h"

/// How the tests of the command line call the executable: as a user does, in a process of its own.
namespace stepcast::cli_test {

using fixtures::Folder;
using fixtures::text_of;
using fixtures::Words;
using fixtures::words_of;

struct Outcome {
  int code = -1;  ///< exit code; 128 + n when signal n ended it; -1 when it had to be stopped
  std::string out;
  std::string err;
  double seconds = 0;
};

/// Runs `stepcast arguments...` with `input` on its standard input. Whatever is not over after
/// `limit_seconds` is stopped. `meanwhile` is called with the process id once it has started.
Outcome call(const Words& arguments, const std::string& input = "", double limit_seconds = 60,
             const std::function<void(pid_t)>& meanwhile = {});
/// The same with any executable.
Outcome execute(const std::string& executable, const Words& arguments,
                const std::string& input = "", double limit_seconds = 60,
                const std::function<void(pid_t)>& meanwhile = {});
/// A call that must end with 0.
Outcome succeeded(const Words& arguments);

/// `command --set a --set b ... more...`.
Words with_sets(const std::string& command, const Words& sets, const Words& more = {});

/// Standard output as the one JSON document it must be; json::parse rejects anything before or
/// after.
inline nlohmann::json document(const Outcome& outcome) {
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  return nlohmann::json::parse(outcome.out);
}

/// Answers of calls in JSON.
inline nlohmann::json answer(const Words& arguments) {
  return document(call(arguments + "--format json"));
}
inline nlohmann::json answer(const std::string& command, const Words& sets,
                             const Words& more = {}) {
  return answer(with_sets(command, sets, more));
}

/// Seconds of a step that `predict` answers with.
inline double step_of(const Words& arguments) { return answer(arguments).at("iteration_time_s"); }

/// The losses of the steps that `run` answers with as JSON.
inline std::vector<double> losses_of(const Outcome& outcome) {
  std::vector<double> losses;
  const nlohmann::json result = document(outcome);
  for (const nlohmann::json& step : result.at("steps")) {
    losses.push_back(step.at("loss").get<double>());
  }
  return losses;
}

/// Calls end with 2, nothing on standard output, and all of `words` on the other.
template <class... Texts>
void rejected(const Outcome& outcome, const Texts&... words) {
  INFO(outcome.err);
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  for (const std::string& word : std::vector<std::string>{words...}) {
    CHECK_THAT(outcome.err, Catch::Matchers::Contains(word));
  }
}
template <class... Texts>
void rejected(const Words& arguments, const Texts&... words) {
  rejected(call(arguments), words...);
}

/// Two small tables, whose access is skewed, on two ranks.
constexpr const char* kTinyJob = R"({
  "system": "dgx-h100", "devices": 2, "batch": {"global": 64}, "formats": {"compute": "fp32"},
  "optimizer": {"dense": "adam", "embedding": "rowwise_adagrad"},
  "workload": {"kind": "dlrm", "name": "tiny", "dense_features": 4, "bottom_mlp": [16, 8],
    "interaction": {"kind": "dot"}, "top_mlp": [16, 1], "tables": [
      {"name": "a", "rows": 301, "dim": 8, "pooling": 4, "mode": "sum", "access": {"zipf": 1.1}},
      {"name": "b", "rows": 200, "dim": 8, "pooling": 2, "mode": "mean", "access": {"zipf": 0.6}}]}})";

}  // namespace stepcast::cli_test
