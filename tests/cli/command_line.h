#pragma once
#include <sys/types.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

/// How the tests of the command line call the executable: as a user does, in a process of its own.
namespace stepcast::cli_test {

struct Outcome {
  int code = -1;  ///< exit code; 128 + n when signal n ended it; -1 when it had to be stopped
  std::string out;
  std::string err;
  double seconds = 0;
};

/// Runs `stepcast arguments...` with `input` on its standard input. Whatever is not over after
/// `limit_seconds` is stopped. `meanwhile` is called with the process id once it has started.
Outcome call(const std::vector<std::string>& arguments, const std::string& input = "",
             double limit_seconds = 60, const std::function<void(pid_t)>& meanwhile = {});
/// The same with any executable.
Outcome execute(const std::string& executable, const std::vector<std::string>& arguments,
                const std::string& input = "", double limit_seconds = 60,
                const std::function<void(pid_t)>& meanwhile = {});

/// `command --set a --set b ... more...`.
std::vector<std::string> with_sets(const std::string& command, const std::vector<std::string>& sets,
                                   const std::vector<std::string>& more);

/// Standard output as the one JSON document it must be; json::parse rejects anything before or
/// after.
inline nlohmann::json document(const Outcome& outcome) {
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  return nlohmann::json::parse(outcome.out);
}

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
template <class... Words>
void rejected(const std::vector<std::string>& arguments, const Words&... words) {
  const Outcome outcome = call(arguments);
  INFO(outcome.err);
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  for (const std::string& word : std::vector<std::string>{words...}) {
    CHECK_THAT(outcome.err, Catch::Matchers::Contains(word));
  }
}

/// A fresh folder, removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ / name; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Writes a file and returns its path.
  [[nodiscard]] std::string file(const std::string& name, const std::string& text) const;

 private:
  std::filesystem::path path_;
};

std::string text_of(const std::filesystem::path& file);

}  // namespace stepcast::cli_test
