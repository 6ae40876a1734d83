#include "cli/support/launch_ranks.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string_view>

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

/// Text that processes of this machine can read as long as this lives; it has no name in any
/// folder, so nothing of it is ever left behind.
class KeptText {
 public:
  explicit KeptText(std::string_view text) : file_(memfd_create("stepcast", MFD_CLOEXEC)) {
    while (file_ >= 0 && !text.empty()) {
      const ssize_t written = write(file_, text.data(), text.size());
      if (written <= 0 && errno != EINTR) {
        break;
      }
      text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(0, written)));
    }
    if (!text.empty()) {
      throw RunError("standard input cannot be stored for the ranks: out of memory");
    }
  }
  ~KeptText() { close(file_); }
  KeptText(const KeptText&) = delete;
  KeptText& operator=(const KeptText&) = delete;

  [[nodiscard]] std::string path() const { return fmt::format("/proc/{}/fd/{}", getpid(), file_); }

 private:
  int file_;
};

}  // namespace

std::unique_ptr<runtime::MpiSession> join_ranks() {
  if (!runtime::under_launcher(environment_of_process())) {
    return nullptr;
  }
  return std::make_unique<runtime::MpiSession>(told_on_stderr());
}

std::unique_ptr<runtime::MpiSession> as_ranks(Context& context, int ranks, double timeout_seconds,
                                              std::string_view standard_input) {
  runtime::Environment environment = environment_of_process();
  const bool launched = runtime::under_launcher(environment);
  if (!launched && ranks > 1) {
    std::optional<KeptText> kept;
    if (!standard_input.empty()) {
      kept.emplace(standard_input);
      environment.push_back(fmt::format("{}={}", kStandardInputVariable, kept->path()));
    }
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
  options.alone = !launched;
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
