// Fate of a run when a rank of it dies or stops answering: exit code 4 and words, in time.
#include <sys/types.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "command_line.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

struct Process {
  pid_t parent = 0;
  std::string name;
};

/// A process and its parent, from /proc; empty name when it is gone.
Process process(pid_t id) {
  Process p;
  std::ifstream file("/proc/" + std::to_string(id) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("Name:", 0) == 0) {
      p.name = line.substr(6);
    } else if (line.rfind("PPid:", 0) == 0) {
      p.parent = std::stoi(line.substr(5));
    }
  }
  return p;
}

/// The ranks under a launching `stepcast`: processes of that name that descend from it.
std::vector<pid_t> ranks_under(pid_t launcher) {
  std::vector<pid_t> ranks;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    const pid_t id = std::stoi(name);
    if (id == launcher || process(id).name != "stepcast") {
      continue;
    }
    for (pid_t up = id; up > 1; up = process(up).parent) {
      if (up == launcher) {
        ranks.push_back(id);
        break;
      }
    }
  }
  return ranks;
}

/// CPU time a process has used, in seconds: fields 14 and 15 of its stat line.
double cpu_seconds(pid_t id) {
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  std::string field;
  double clock_ticks = 0;
  for (int i = 1; i <= 15 && file >> field; ++i) {
    clock_ticks += i >= 14 ? std::stod(field) : 0;
  }
  return clock_ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

enum class Victim { kRank, kLauncher };

/// Sends a signal once both ranks train, and tells when. Set-up takes a fraction of a second of
/// each rank's CPU; on a busy machine any wall time may pass until then.
std::function<void(pid_t)> signal_to(Victim victim, int signal,
                                     std::chrono::steady_clock::time_point& sent,
                                     std::vector<pid_t>& ranks) {
  return [=, &sent, &ranks](pid_t launcher) {
    const auto training = [&ranks] {
      return ranks.size() == 2 && cpu_seconds(ranks[0]) > 1.5 && cpu_seconds(ranks[1]) > 1.5;
    };
    for (int i = 0; i < 500 && !training(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ranks = ranks_under(launcher);
    }
    if (training()) {
      kill(victim == Victim::kRank ? ranks[1] : launcher, signal);
    }
    sent = std::chrono::steady_clock::now();
  };
}

struct Ending {
  Outcome outcome;
  double seconds_after = 0;
  std::vector<pid_t> ranks;
};

Ending run_with(int signal, const Words& more, Victim victim = Victim::kRank) {
  const Folder folder;
  const Words run{"run", folder.file("tiny.json", kTinyJob), "--ranks", "2", "--steps", "1000000"};
  std::chrono::steady_clock::time_point sent;
  Ending ending;
  ending.outcome = call(run + more, "", 60, signal_to(victim, signal, sent, ending.ranks));
  ending.seconds_after =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - sent).count();
  return ending;
}

/// The 30 s are a promise to users, not a measurement: both endings take a few seconds.
void check_failed(const Ending& ending) {
  INFO(ending.outcome.err);
  CHECK(ending.outcome.code == 4);
  CHECK(ending.seconds_after < 30);
  CHECK(ending.outcome.out.empty());
  CHECK_THAT(ending.outcome.err, Contains("stepcast:"));
}

}  // namespace

TEST_CASE("a killed rank ends the run with 4 and says so within 30 s", "[cli][mpi]") {
  const Ending ending = run_with(SIGKILL, {});
  CHECK_THAT(ending.outcome.err, Contains("rank"));
  check_failed(ending);
}

TEST_CASE("a collective that hangs ends the run with 4 and says so", "[cli][mpi]") {
  const Ending ending = run_with(SIGSTOP, "--timeout 4");
  CHECK_THAT(ending.outcome.err, Contains("deadline 4.0 s") && Contains("no word from rank "));
  check_failed(ending);
}

TEST_CASE("ranks end with the process that started them", "[cli][mpi]") {
  const int signal = GENERATE(SIGINT, SIGTERM, SIGKILL);
  CAPTURE(signal);
  const Ending ending = run_with(signal, {}, Victim::kLauncher);
  INFO(ending.outcome.err);
  CHECK(ending.outcome.code == 128 + signal);
  if (signal != SIGKILL) {
    CHECK_THAT(ending.outcome.err, Contains("stopped by signal " + std::to_string(signal)));
  }
  REQUIRE(ending.ranks.size() == 2);
  const auto alive = [&] {
    return process(ending.ranks[0]).name == "stepcast" ||
           process(ending.ranks[1]).name == "stepcast";
  };
  for (int i = 0; i < 300 && alive(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  CHECK_FALSE(alive());
}
