// The entries of libstepcast_cupti.so that others call: the CUDA driver, when it starts in a
// process whose CUDA_INJECTION64_PATH names this file, and NVTX by NVTX_INJECTION64_PATH. Here, and
// only here, the profiler reads the environment and leaves its marks on the process: an exit
// handler, a fork handler, a signal.
#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>

#include "profiler/capture/captured_parts.h"
#include "profiler/cupti/capture.h"

namespace stepcast::profiler::cupti {
namespace {

using State = ProcessStatus::State;

/// The capture of this process. Never destroyed: threads of the application may call until the end.
std::atomic<Capture*> injected{nullptr};

const char* environment(const char* name) { return std::getenv(name); }

std::string process_name() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("{}-{}", host.data(), getpid());
}

void write_status(const CapturedParts& parts, State state, const std::string& text) noexcept {
  try {
    parts.write(process_name(), state, text);
  } catch (const std::exception&) {
    // The folder cannot be written; stepcast profile will find nothing and say so.
  }
}

void write_part(const CapturedParts& parts, LaunchedRank rank, Capture& capture) noexcept {
  try {
    auto recording = capture.take(rank);
    const std::string shortfall = capture.shortfall();
    if (recording) {
      parts.write(process_name(), std::move(*recording));
      parts.write(process_name(), State::kWritten, shortfall);
    } else {
      parts.write(process_name(), shortfall.empty() ? State::kEmpty : State::kFailed, shortfall);
    }
  } catch (const std::exception& e) {
    write_status(parts, State::kFailed, e.what());
  }
}

void at_exit() {
  if (Capture* capture = injected.load()) {
    capture->stop(true);
  }
}

void in_forked_child() {
  if (Capture* capture = injected.load()) {
    capture->abandon();
  }
}

void on_signal(int) {
  if (Capture* capture = injected.load()) {
    capture->signalled();
  }
}

const NcclSink& sink() {
  static const NcclSink all{
      .now = [] { return Collector::now(); },
      .launching = [](std::uint64_t launch) { Collector::push(kNcclIds, launch); },
      .launched = [] { Collector::pop(kNcclIds); },
      .called =
          [](const NcclCall* call) {
            if (Capture* capture = injected.load()) {
              capture->called(*call);
            }
          },
      .detailed =
          [](const NcclDetail* detail) {
            if (Capture* capture = injected.load()) {
              capture->detailed(*detail);
            }
          },
      .step =
          [] {
            if (Capture* capture = injected.load()) {
              capture->step();
            }
          }};
  return all;
}

void start() {
  std::optional<CaptureSettings> settings;
  try {
    settings = settings_from(environment);
  } catch (const std::exception& e) {
    fmt::print(stderr, "stepcast: {}; this process is not recorded\n", e.what());
    return;
  }
  if (!settings) {
    return;
  }
  const CapturedParts parts(settings->out);
  auto capture = std::make_unique<Capture>(*settings);
  const LaunchedRank rank = launched_rank(environment);
  capture->on_end([parts, rank](Capture& ended) { write_part(parts, rank, ended); });
  write_status(parts, State::kStarted, "");
  const Collector::Rejection rejection = capture->open();
  if (!rejection.reason.empty()) {
    write_status(parts, rejection.busy ? State::kBusy : State::kFailed, rejection.reason);
    return;
  }
  injected.store(capture.release());
  std::atexit(at_exit);
  pthread_atfork(nullptr, nullptr, in_forked_child);
  if (settings->on_signal) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR2, &action, nullptr);
  }
  if (void* listen = dlsym(RTLD_DEFAULT, kNcclListen)) {
    reinterpret_cast<NcclListen*>(listen)(&sink());
  }
}

}  // namespace
}  // namespace stepcast::profiler::cupti

#define STEPCAST_EXPORT extern "C" __attribute__((visibility("default")))

/// Called by the CUDA driver at its first use, on the thread that uses it. 1: go on.
STEPCAST_EXPORT int InitializeInjection() {
  static std::atomic<bool> started{false};
  if (!started.exchange(true)) {
    stepcast::profiler::cupti::start();
  }
  return 1;
}

/// Called by NVTX at its first use, on the thread that uses it: CUPTI's own entry makes ranges into
/// records. It is CUPTI's of this process that must be called, whichever file that came from.
STEPCAST_EXPORT int InitializeInjectionNvtx2(const void* (*export_table)(std::uint32_t)) {
  using Entry = int(const void* (*)(std::uint32_t));
  Dl_info cupti{};
  if (dladdr(reinterpret_cast<void*>(&cuptiGetVersion), &cupti) == 0) {
    return 0;
  }
  void* library = dlopen(cupti.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  void* entry = library == nullptr ? nullptr : dlsym(library, "InitializeInjectionNvtx2");
  return entry == nullptr ? 0 : reinterpret_cast<Entry*>(entry)(export_table);
}
