#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "cli/command.h"
#include "cli/print/show_tables.h"
#include "cli/support/checks.h"
#include "cli/support/console.h"
#include "cli/support/output_files.h"
#include "cli/support/recordings.h"
#include "cli/support/run_command.h"
#include "cli/support/step_range.h"
#include "cli/version.h"
#include "core/error.h"
#include "profiler/capture/capture_settings.h"
#include "profiler/capture/captured_parts.h"
#include "runtime/loaded_module.h"
#include "traces/native/native_trace.h"

namespace stepcast::cli {
namespace {

namespace fs = std::filesystem;
using profiler::CapturedParts;
using profiler::CaptureSettings;
using profiler::ProcessStatus;
using State = ProcessStatus::State;

struct ProfileCommand {
  std::string out, steps, mark, graphs = "nodes";
  double seconds = 0;
  bool signal = false, elsewhere = false, nccl_details = false;
  std::vector<std::string> command;
};

const char* environment(const char* name) { return std::getenv(name); }

CaptureSettings settings_of(const ProfileCommand& options) {
  CaptureSettings s;
  s.out = fs::absolute(options.out);
  if (!options.steps.empty()) {
    const auto [first, last] = step_range(options.steps);
    s.steps = {first, last};
  }
  if (options.seconds > 0) {
    s.seconds = options.seconds;
  }
  s.on_signal = options.signal;
  s.mark = options.mark;
  s.whole_graphs = options.graphs == "whole";
  return s;
}

/// Checks that what a profile needs is there before a command is started in vain.
void check_machine(const ProfileCommand& options, const fs::path& module) {
  // Loading it here finds a missing CUPTI or C++ library with a message; in the command it would
  // only be silently absent.
  const runtime::LoadedModule loaded(module);
  if (const char* other = environment("CUDA_INJECTION64_PATH");
      other != nullptr && *other != '\0') {
    throw EnvironmentError(fmt::format(
        "CUDA_INJECTION64_PATH names {}: another tool profiles here; unset it, or end that tool",
        other));
  }
  if (!options.elsewhere && dlopen("libcuda.so.1", RTLD_LAZY) == nullptr) {
    throw EnvironmentError(
        "no CUDA driver here (libcuda.so.1 cannot be loaded): nothing can be captured; where the "
        "command runs on other machines, say --elsewhere");
  }
}

std::vector<std::string> variables_of(const CaptureSettings& settings, const fs::path& modules,
                                      bool nccl_details) {
  std::vector<std::string> all = profiler::environment_of(settings);
  const std::string module = (modules / "libstepcast_cupti.so").string();
  all.push_back("CUDA_INJECTION64_PATH=" + module);
  all.push_back("NVTX_INJECTION64_PATH=" + module);
  all.emplace_back(
      "KINETO_USE_DAEMON");  // unset: with it older torch holds CUPTI from its import on
  std::string preload = (modules / "libstepcast_preload.so").string();
  if (nccl_details) {
    all.push_back("NCCL_PROFILER_PLUGIN=" + preload);
  }
  if (const char* others = environment("LD_PRELOAD"); others != nullptr && *others != '\0') {
    preload += fmt::format(":{}", others);
  }
  all.push_back("LD_PRELOAD=" + preload);
  return all;
}

/// Looks, while a command runs, for processes that have loaded the CUDA driver but not the module:
/// the driver is silent where it cannot load it.
class LoaderWatch {
 public:
  explicit LoaderWatch(const fs::path& out)
      : mine_("STEPCAST_PROFILE_OUT=" + out.string()), thread_([this] { run(); }) {}
  ~LoaderWatch() { end(); }
  LoaderWatch(const LoaderWatch&) = delete;
  LoaderWatch& operator=(const LoaderWatch&) = delete;
  /// How many there were.
  std::size_t end() {
    ended_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
    return without_.size();
  }

 private:
  void run() {
    for (int tenths = 0; !ended_; ++tenths) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (tenths % 5 == 4) {  // not at once: the module comes after the driver
        look();
      }
    }
  }

  void look() {
    std::error_code gone;
    for (fs::directory_iterator process("/proc", gone), last; process != last;
         process.increment(gone)) {
      if (text_of(process->path() / "environ").find(mine_) == std::string::npos) {
        continue;
      }
      const std::string maps = text_of(process->path() / "maps");
      const std::string pid = process->path().filename().string();
      if (maps.find("/libstepcast_cupti.so") != std::string::npos) {
        without_.erase(pid);
      } else if (maps.find("/libcuda.so") != std::string::npos) {
        without_.insert(pid);
      }
    }
  }

  static std::string text_of(const fs::path& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }

  const std::string mine_;
  std::set<std::string> without_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

/// Why there is no trace. The worst that befell a process comes first.
[[noreturn]] void fail(const ProfileCommand& options, const std::vector<ProcessStatus>& processes,
                       const CommandEnd& end, std::size_t without_module) {
  const std::string& program = options.command.front();
  if (!end.well()) {
    throw RunError(fmt::format("{} {}; no trace was written", program, end.text()));
  }
  for (const State state : {State::kBusy, State::kFailed, State::kStarted, State::kEmpty}) {
    const auto found = std::find_if(processes.begin(), processes.end(),
                                    [state](const ProcessStatus& p) { return p.state == state; });
    if (found == processes.end()) {
      continue;
    }
    switch (state) {
      case State::kBusy:
        throw EnvironmentError(
            fmt::format("{}: {}, which serves one tool at a time; nothing was captured; end that "
                        "tool and run again",
                        found->process, found->text));
      case State::kStarted:
        throw RunError(fmt::format(
            "{} of {} ended without its exit handlers (killed, or _exit); no trace was written; "
            "--steps or --seconds write it before the end",
            found->process, program));
      case State::kFailed:
        throw EnvironmentError(
            fmt::format("{}: {}; nothing was captured", found->process, found->text));
      default:
        throw EnvironmentError(fmt::format(
            "{} of {} used CUDA, but did nothing while it was recorded; nothing was captured",
            found->process, program));
    }
  }
  if (without_module > 0) {
    throw EnvironmentError(
        fmt::format("{} processes of {} loaded libcuda.so, but not libstepcast_cupti.so: a library "
                    "that it needs "
                    "is missing or older there; LD_DEBUG=libs {} says which",
                    without_module, program, program));
  }
  throw EnvironmentError(fmt::format(
      "no process of {} used CUDA: nothing was captured (a program that is linked with CUDA but "
      "finds no device counts as such)",
      program));
}

/// One `stepcast profile` per rank, under a launcher: the last to end merges all parts. Holds the
/// folder while it looks.
class Turn {
 public:
  explicit Turn(const fs::path& folder) {
    fs::create_directories(folder);
    file_ = ::open((folder / "turn.lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    if (file_ < 0 || flock(file_, LOCK_EX) != 0) {
      throw InputError(folder.string(), "cannot be locked; is it writable?");
    }
  }
  ~Turn() { ::close(file_); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  int file_ = -1;
};

void warn(const traces::Recording& recording, const std::string& out) {
  tell_oddities(out, recording.all_oddities());
  for (const traces::RankRecording& rank : recording.ranks) {
    for (const char* key :
         {"cupti.records", "cupti.taken", "truncated", "late_start_ns", "cupti.problems"}) {
      if (const auto found = rank.metadata.find(key); found != rank.metadata.end()) {
        fmt::print(stderr, "stepcast: {}: rank {}: {}: {}\n", out, rank.rank, key, found->second);
      }
    }
  }
}

void print_summary(const traces::Recording& recording, const std::string& out) {
  std::size_t work = 0, collectives = 0;
  for (const traces::RankRecording& rank : recording.ranks) {
    for (const traces::EventCategory c : rank.events.category) {
      work += traces::is_device_work(c) ? 1 : 0;
    }
    collectives += rank.count(traces::EventCategory::kCollective);
  }
  fmt::print("{}: {} ranks, {} pieces of device work, {} collectives\n\n", out,
             recording.ranks.size(), work, collectives);
  std::fflush(stdout);
  if (work == 0) {
    return;
  }
  for (const DataTable& table : run_tables(recording, out, 0, {})) {
    table.print_text(answer(), terminal_style(answer()));
    answer() << '\n';
  }
}

int profile(const ProfileCommand& options, const Context& context) {
  const CaptureSettings settings = settings_of(options);
  find_program(options.command.front());
  if (traces::is_native(settings.out)) {
    throw InputError(options.out, "holds a trace already; name another folder, or remove it");
  }
  const fs::path modules = context.executable.parent_path().parent_path() / "lib";
  check_machine(options, modules / "libstepcast_cupti.so");
  const profiler::LaunchedRank here = profiler::launched_rank(environment);
  const CapturedParts parts(settings.out);
  if (here.world_size <= 1) {
    parts.remove();  // of a capture that was broken off
  }
  LoaderWatch loaders(settings.out);
  const CommandEnd end =
      run_command(options.command, variables_of(settings, modules, options.nccl_details));
  const std::size_t without_module = loaders.end();
  const Turn turn(parts.folder());
  const std::vector<ProcessStatus> processes = parts.processes();
  std::vector<traces::Recording> recordings = parts.recordings();
  if (here.world_size > 1) {
    if (!end.well()) {
      fail(options, processes, end, without_module);
    }
    if (static_cast<std::int32_t>(recordings.size()) < here.world_size) {
      return 0;  // another rank merges, when the last is there
    }
  }
  if (recordings.empty()) {
    parts.remove();
    std::error_code kept;
    fs::remove(settings.out, kept);  // where it is empty, it was ours
    fail(options, processes, end, without_module);
  }
  traces::Recording merged = profiler::merge_ranks(std::move(recordings));
  merged.producer = std::string(kVersionText);
  traces::write_recording(settings.out, merged);
  parts.remove();
  warn(merged, options.out);
  for (const ProcessStatus& p : processes) {
    if (p.state != State::kWritten && p.state != State::kEmpty) {
      fmt::print(stderr, "stepcast: {}: {} is missing: {}\n", options.out, p.process,
                 p.text.empty() ? "it ended without its exit handlers" : p.text);
    }
  }
  print_summary(merged, options.out);
  if (!end.well()) {
    throw RunError(fmt::format("{} {}; the trace of what it did until then is in {}",
                               options.command.front(), end.text(), options.out));
  }
  return 0;
}

}  // namespace

void add_profile(CLI::App& app, Context& context) {
  auto options = std::make_shared<ProfileCommand>();
  CLI::App* command = app.add_subcommand("profile", "Capture any CUDA program through CUPTI");
  command->add_option("--out", options->out, "Folder for the trace")
      ->required()
      ->check(output_folder());
  CLI::Option* steps = command->add_option(
      "--steps", options->steps,
      "A:B: only steps A up to B, by NVTX ranges or calls of stepcast_profile_step()");
  command->add_option("--seconds", options->seconds, "Only so long, from the first CUDA call on")
      ->check(number_from(0.001, 1e6))
      ->excludes(steps);
  command->add_flag("--signal", options->signal, "SIGUSR2 to the program starts and stops")
      ->excludes(steps);
  command->add_option("--mark", options->mark, "Name of the NVTX ranges that are steps")
      ->needs(steps);
  command
      ->add_option("--graphs", options->graphs,
                   "CUDA graphs: nodes (default), or whole, which costs less")
      ->check(CLI::IsMember({"nodes", "whole"}));
  command->add_flag("--nccl-details", options->nccl_details,
                    "Algorithm, protocol and channels of collectives, by NCCL's profiler plugin");
  command->add_flag("--elsewhere", options->elsewhere,
                    "The command runs on other machines: no driver is looked for here");
  command->add_option("command", options->command, "-- and the command to capture")->required();
  command->callback([options, &context] { context.exit_code = profile(*options, context); });
}

}  // namespace stepcast::cli
