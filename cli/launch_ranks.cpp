#include "cli/launch_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "core/error.h"
#include "runtime/launch.h"

namespace stepcast::cli {

namespace {

runtime::Environment environment_of_process() {
  runtime::Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.emplace_back(*entry);
  }
  return environment;
}

runtime::MpiOptions told_on_stderr() {
  runtime::MpiOptions options;
  options.report = [](const std::string& message) {
    fmt::print(stderr, "stepcast: {}\n", message);
    std::fflush(stderr);
  };
  return options;
}

}  // namespace

std::unique_ptr<runtime::MpiSession> join_ranks() {
  if (!runtime::under_launcher(environment_of_process())) {
    return nullptr;
  }
  return std::make_unique<runtime::MpiSession>(told_on_stderr());
}

std::unique_ptr<runtime::MpiSession> as_ranks(Context& context, int ranks, double timeout_seconds) {
  const runtime::Environment environment = environment_of_process();
  if (!runtime::under_launcher(environment)) {
    const runtime::LaunchResult result =
        runtime::run_under_mpirun({.executable = context.executable,
                                   .arguments = context.arguments,
                                   .ranks = ranks,
                                   .cores = runtime::available_cores(),
                                   .environment = environment});
    if (result.exit_code != 0 && !result.message.empty()) {
      fmt::print(stderr, "stepcast: {}\n", result.message);
    }
    context.exit_code = result.exit_code;
    return nullptr;
  }
  runtime::MpiOptions options = told_on_stderr();
  options.timeout = std::chrono::duration<double>(timeout_seconds);
  auto session = std::make_unique<runtime::MpiSession>(options);
  if (session->size() != ranks) {
    throw InputError("--ranks",
                     fmt::format("{} asked for, but the launcher started {}; they must be equal",
                                 ranks, session->size()));
  }
  return session;
}

}  // namespace stepcast::cli
