// Programs of several ranks: `ranks_program SCENARIO RANKS EXPECTED` starts itself under mpirun and
// compares the launcher's exit code with EXPECTED.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>

#include "ranks_scenarios.h"
#include "runtime/launch.h"

extern char** environ;  // NOLINT

using namespace stepcast::runtime;

namespace {

int as_rank(const std::string& scenario) {
  const std::map<std::string, void (*)(MpiSession&)> all{
      {"collectives", scenarios::collectives},
      {"refused", scenarios::rejected},
      {"killed", scenarios::killed},
      {"emulated_collectives", scenarios::emulated_collectives},
      {"training", scenarios::training},
      {"hanging", scenarios::hanging},
      {"setting_up", scenarios::setting_up},
      {"failing", scenarios::failing},
      {"paced", scenarios::paced},
      {"overlap", scenarios::overlap},
      {"too_large", scenarios::too_large}};
  MpiOptions options;
  options.timeout = std::chrono::duration<double>(scenario == "hanging"      ? 1
                                                  : scenario == "setting_up" ? 0.5
                                                                             : 20);
  options.report = [](const std::string& message) {
    std::fprintf(stderr, "%s\n", message.c_str());
  };
  MpiSession session(options);
  try {
    all.at(scenario)(session);
  } catch (const std::exception& e) {
    session.abort(70, e.what());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: ranks_program SCENARIO RANKS EXPECTED_CODE\n");
    return 1;
  }
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.emplace_back(*entry);
  }
  if (!launched_rank(environment).empty()) {
    return as_rank(argv[1]);
  }
  LaunchRequest request;
  request.executable = argv[0];
  request.arguments = {argv[1], argv[2], argv[3]};
  request.ranks = std::atoi(argv[2]);
  request.cores = 1;  // yields when idle: other tests run at the same time
  request.environment = environment;
  const auto begin = std::chrono::steady_clock::now();
  const LaunchResult result = run_under_mpirun(request);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const int expected = std::atoi(argv[3]);
  std::printf("code %d (expected %d) after %.1f s. %s\n", result.exit_code, expected, took.count(),
              result.message.c_str());
  return result.exit_code == expected && took.count() < 30 ? 0 : 1;
}
