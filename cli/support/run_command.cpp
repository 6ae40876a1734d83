#include "cli/support/run_command.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>

#include "core/error.h"

namespace stepcast::cli {
namespace {

/// The command that signals are passed on to.
std::atomic<pid_t> running{0};

void pass_on(int signal) {
  if (const pid_t to = running.load()) {
    kill(to, signal);
  }
}

/// A signal's handling, put back at the end.
class Handling {
 public:
  Handling(int signal, void (*handler)(int)) : signal_(signal) {
    struct sigaction action {};
    action.sa_handler = handler;
    sigaction(signal, &action, &before_);
  }
  ~Handling() { sigaction(signal_, &before_, nullptr); }
  Handling(const Handling&) = delete;
  Handling& operator=(const Handling&) = delete;

 private:
  int signal_;
  struct sigaction before_ {};
};

std::string name_of(const std::string& variable) { return variable.substr(0, variable.find('=')); }

}  // namespace

std::string CommandEnd::text() const {
  return signal != 0 ? fmt::format("was killed by signal {} ({})", signal, strsignal(signal))
                     : fmt::format("ended with exit code {}", code);
}

std::string find_program(const std::string& name) {
  const auto runs = [](const std::string& file) { return access(file.c_str(), X_OK) == 0; };
  if (name.find('/') != std::string::npos) {
    if (!runs(name)) {
      throw InputError(name, "is no program that can be run; give one after --");
    }
    return name;
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    if (runs(file)) {
      return file;
    }
  }
  throw InputError(name, "is not in PATH; expected a program after --");
}

CommandEnd run_command(const std::vector<std::string>& command,
                       const std::vector<std::string>& variables) {
  std::vector<std::string> environment;
  std::copy_if(variables.begin(), variables.end(), std::back_inserter(environment),
               [](const std::string& v) { return v.find('=') != std::string::npos; });
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name = name_of(*entry);
    bool replaced = false;
    for (const std::string& v : variables) {
      replaced = replaced || name_of(v) == name;
    }
    if (!replaced) {
      environment.emplace_back(*entry);
    }
  }
  const auto pointers = [](const std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (const std::string& t : texts) {
      all.push_back(const_cast<char*>(t.c_str()));
    }
    all.push_back(nullptr);
    return all;
  };
  const std::string program = find_program(command.front());
  const Handling interrupt(SIGINT, SIG_IGN), quit(SIGQUIT, SIG_IGN);
  const Handling terminate(SIGTERM, pass_on), user(SIGUSR2, pass_on);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t ours;
  sigemptyset(&ours);
  for (const int signal : {SIGINT, SIGQUIT}) {
    sigaddset(&ours, signal);
  }
  posix_spawnattr_setsigdefault(&attributes, &ours);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int failure = posix_spawn(&child, program.c_str(), nullptr, &attributes,
                                  pointers(command).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  if (failure != 0) {
    throw RunError(fmt::format("{} cannot be started: {}", program, std::strerror(failure)));
  }
  running = child;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  running = 0;
  CommandEnd end;
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return end;
}

}  // namespace stepcast::cli
