#include "runtime/launch.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "core/error.h"

namespace stepcast::runtime {
namespace {

std::string_view value_of(const Environment& environment, std::string_view name) {
  for (const std::string_view entry : environment) {
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name)) {
      return entry.substr(name.size() + 1);
    }
  }
  return {};
}

std::string find_in_path(const Environment& environment, std::string_view program) {
  std::string_view path = value_of(environment, "PATH");
  while (!path.empty()) {
    const auto end = std::min(path.find(':'), path.size());
    std::string candidate = std::string(path.substr(0, end)) + "/" + std::string(program);
    if (access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return {};
}

/// Adds what mpirun and the ranks need, unless the user has already decided otherwise.
Environment with_defaults(Environment environment, const LaunchRequest& request) {
  const std::vector<std::pair<std::string, std::string>> defaults{
      {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
      {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
      // Polling gives the best times while every rank has a core; without one it starves the
      // others.
      {"OMPI_MCA_mpi_yield_when_idle", request.ranks <= request.cores ? "0" : "1"},
      {"OMPI_MCA_btl_base_warn_component_unused", "0"},
      {"OMP_NUM_THREADS", "1"},
      {"OMP_WAIT_POLICY", "PASSIVE"},
  };
  for (const auto& [name, value] : defaults) {
    if (value_of(environment, name).empty()) {
      environment.push_back(name + "=" + value);
    }
  }
  return environment;
}

std::vector<char*> as_argv(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& s : strings) {
    pointers.push_back(s.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

// A signal handler reaches nothing else.
std::atomic<pid_t> child_of_signals{0};
std::atomic<int> received_signal{0};

/// Signals of a terminal reach the child too: a second one would make mpirun leave its ranks.
void pass_on(int signal, siginfo_t* from, void* /*context*/) {
  received_signal = signal;
  const pid_t child = child_of_signals.load();
  if (child > 0 && from->si_code != SI_KERNEL) {
    kill(child, signal);
  }
}

/// Passes SIGINT and SIGTERM on to the child while it runs.
class SignalsPassedOn {
 public:
  explicit SignalsPassedOn(pid_t child) {
    child_of_signals = child;
    received_signal = 0;
    struct sigaction action {};
    action.sa_sigaction = pass_on;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGINT, &action, &interrupt_);
    sigaction(SIGTERM, &action, &terminate_);
  }
  ~SignalsPassedOn() {
    sigaction(SIGINT, &interrupt_, nullptr);
    sigaction(SIGTERM, &terminate_, nullptr);
    child_of_signals = 0;
  }
  SignalsPassedOn(const SignalsPassedOn&) = delete;
  SignalsPassedOn& operator=(const SignalsPassedOn&) = delete;

 private:
  struct sigaction interrupt_ {};
  struct sigaction terminate_ {};
};

/// A child that ends when this process does, even by SIGKILL; -1 where none can be made.
pid_t start(const char* program, char* const* words, char* const* environment) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent) {
      execve(program, words, environment);
    }
    _exit(127);
  }
  return child;
}

LaunchResult result_of(int status) {
  if (const int signal = received_signal; signal != 0 && status != 0) {
    return {128 + signal, fmt::format("stopped by signal {} ({})", signal, strsignal(signal))};
  }
  if (WIFSIGNALED(status)) {
    return {4, fmt::format("mpirun ended by signal {} ({})", WTERMSIG(status),
                           strsignal(WTERMSIG(status)))};
  }
  const int code = WEXITSTATUS(status);
  switch (code) {
    case 0:
    case 1:  // a check said no: not a failure of the run
    case 2:
    case 3:
    case 4:
    case 70:
      return {code, code <= 1 ? "" : fmt::format("a rank ended with code {}", code)};
    default:
      break;
  }
  if (code > 128) {
    return {4, fmt::format("a rank was lost: ended by signal {} ({})", code - 128,
                           strsignal(code - 128))};
  }
  return {4, fmt::format("a rank or mpirun ended with code {}", code)};
}

}  // namespace

std::string_view launched_rank(const Environment& environment) {
  for (const std::string_view name :
       {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MPI_LOCALRANKID"}) {
    if (const std::string_view rank = value_of(environment, name); !rank.empty()) {
      return rank;
    }
  }
  return {};
}

int tasks_of_step(const Environment& environment) {
  const std::string_view tasks = value_of(environment, "SLURM_STEP_NUM_TASKS");
  int number = 1;
  std::from_chars(tasks.data(), tasks.data() + tasks.size(), number);
  return number;
}

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

int nth_core(int n) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    return n;
  }
  int left = n % std::max(1, CPU_COUNT(&set));
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &set) && left-- == 0) {
      return core;
    }
  }
  return n;
}

LaunchResult run_under_mpirun(const LaunchRequest& request) {
  const std::string mpirun = find_in_path(request.environment, "mpirun");
  if (mpirun.empty()) {
    throw EnvironmentError(
        fmt::format("{} ranks need mpirun, which is not in PATH; install Open MPI (openmpi-bin) or "
                    "start the ranks yourself (mpirun, srun)",
                    request.ranks));
  }
  std::vector<std::string> words{mpirun,
                                 "-n",
                                 std::to_string(request.ranks),
                                 "-q",
                                 "--oversubscribe",
                                 "--bind-to",
                                 "none",
                                 request.executable};
  words.insert(words.end(), request.arguments.begin(), request.arguments.end());
  Environment environment = with_defaults(request.environment, request);
  const pid_t child = start(mpirun.c_str(), as_argv(words).data(), as_argv(environment).data());
  if (child < 0) {
    throw EnvironmentError(fmt::format("{} could not be started: {}", mpirun, strerror(errno)));
  }
  const SignalsPassedOn signals(child);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return result_of(status);
}

}  // namespace stepcast::runtime
