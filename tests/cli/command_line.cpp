#include "command_line.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace stepcast::cli_test {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

pid_t start(const std::string& executable, const std::vector<std::string>& arguments,
            const Folder& folder, const std::string& input) {
  std::vector<char*> argv{const_cast<char*>(executable.c_str())};
  for (const std::string& a : arguments) {
    argv.push_back(const_cast<char*>(a.c_str()));
  }
  argv.push_back(nullptr);
  const std::string in = folder.file("in", input);
  const std::string out = folder / "out";
  const std::string err = folder / "err";
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, in.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT, 0600);
  setenv("COLUMNS", "1000", 1);  // tests look for whole sentences
  pid_t process = 0;
  const int error =
      posix_spawn(&process, executable.c_str(), &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    throw std::runtime_error("cannot start " + executable);
  }
  return process;
}

}  // namespace

Outcome execute(const std::string& executable, const Words& arguments, const std::string& input,
                double limit_seconds, const std::function<void(pid_t)>& meanwhile) {
  const Folder folder;
  const Clock::time_point begin = Clock::now();
  const pid_t process = start(executable, arguments, folder, input);
  if (meanwhile) {
    meanwhile(process);
  }
  Outcome outcome;
  int status = 0;
  bool stopped = false;
  while (waitpid(process, &status, stopped ? 0 : WNOHANG) == 0) {
    if (since(begin) > limit_seconds) {
      kill(process, SIGTERM);
      std::this_thread::sleep_for(std::chrono::seconds(1));
      kill(process, SIGKILL);
      stopped = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  outcome.seconds = since(begin);
  outcome.code = stopped ? -1 : WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  outcome.out = text_of(folder / "out");
  outcome.err = text_of(folder / "err");
  return outcome;
}

Outcome call(const Words& arguments, const std::string& input, double limit_seconds,
             const std::function<void(pid_t)>& meanwhile) {
  return execute(STEPCAST_EXECUTABLE, arguments, input, limit_seconds, meanwhile);
}

Outcome succeeded(const Words& arguments) {
  Outcome outcome = call(arguments);
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  return outcome;
}

Words with_sets(const std::string& command, const Words& sets, const Words& more) {
  Words arguments{command};
  for (const std::string& set : sets) {
    arguments.insert(arguments.end(), {"--set", set});
  }
  return arguments + more;
}

}  // namespace stepcast::cli_test
