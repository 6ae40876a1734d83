#include "bindings/c/stepcast.h"

#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "bindings/c/host.h"
#include "cli/report/chapters.h"
#include "cli/report/style.h"
#include "cli/support/console.h"
#include "cli/support/help.h"
#include "cli/support/launch_ranks.h"
#include "cli/version.h"
#include "core/error.h"
#include "core/whole_file.h"

namespace {

namespace cli = stepcast::cli;
namespace fs = std::filesystem;
using namespace std::chrono_literals;
using stepcast::host::Host;

/// Ends a command whose caller gave it up. No std::exception: no command takes it for its own.
struct Cancelled {};

/// The pictures that `report` draws of a document, in an element of their own with their style.
void add_picture(CLI::App& app, cli::Context& /*context*/) {
  CLI::App* command = app.add_subcommand("picture", "Draw an answer as a part of a page");
  auto document = std::make_shared<std::string>();
  command->add_option("document", *document, "What another command answered")->required();
  command->callback([document] {
    const std::string text = cli::named_source(*document).text;
    const cli::report::Document one{*document, nlohmann::ordered_json::parse(text)};
    cli::answer() << cli::report::fragment(cli::report::chapter_of(one));
  });
}

std::vector<stepcast::host::Command> commands() {
  return {{"predict", cli::add_predict}, {"sweep", cli::add_sweep},     {"plan", cli::add_plan},
          {"explain", cli::add_explain}, {"diff", cli::add_explain}, {"compare", cli::add_compare}, {"replay", cli::add_replay}, {"guard", cli::add_guard},
          {"show", cli::add_show},       {"list", cli::add_list},       {"convert", cli::add_convert},
          {"job", cli::add_job},         {"fit", cli::add_fit},         {"report", cli::add_report},
          {"picture", add_picture}, {"export", stepcast::host::add_export}};
}

/// The data files installed with this library, or of the source tree it was built from.
fs::path installed_data() {
  Dl_info own{};
  if (dladdr(reinterpret_cast<void*>(&stepcast_open), &own) != 0) {
    std::error_code ignored;
    fs::path folder = fs::canonical(own.dli_fname, ignored).parent_path();
    for (int up = 0; up < 3; ++up, folder = folder.parent_path()) {
      if (fs::is_directory(folder / "share" / "stepcast" / "workloads", ignored)) {
        return folder / "share" / "stepcast";
      }
    }
  }
  return STEPCAST_SOURCE_DIR;
}

}  // namespace

namespace stepcast::host {

/// State that a call shares with its thread: who of them ends last takes it along.
struct State {
  std::shared_ptr<const Host> host;
  std::string request;
  std::atomic<bool> cancelled = false;
  std::mutex mutex;  // guards the rest
  std::condition_variable changed;
  std::optional<std::pair<double, std::string>> told;
  int status = STEPCAST_RUNNING;
  Answer answer;
  std::string error;

  void end(int with, Answer what, std::string why) {
    {
      const std::lock_guard lock(mutex);
      status = with;
      answer = std::move(what);
      error = std::move(why);
    }
    changed.notify_all();
  }
  void run() {
    try {
      auto got = host->run(host->request(request), [this](double share, const std::string& note) {
        if (cancelled) {
          throw Cancelled();
        }
        const std::lock_guard lock(mutex);
        told.emplace(share, note);
      });
      std::string why;
      const int code = got.code;
      if (code != STEPCAST_DONE && code != STEPCAST_NO && code != STEPCAST_NO_VERDICT) {
        why = reason(got.notes);
      }
      end(code, std::move(got), std::move(why));
    } catch (const Cancelled&) {
      end(STEPCAST_CANCELLED, {}, "cancelled");
    } catch (const InputError& e) {
      end(STEPCAST_WRONG_INPUT, {}, e.what());
    } catch (const std::exception& e) {
      end(STEPCAST_DEFECT, {}, e.what());
    }
  }
  /// The error comes last and has the program's name before it.
  static std::string reason(const std::string& notes) {
    constexpr std::string_view kName = "stepcast: ";
    const std::size_t line = notes.rfind(std::string("\n").append(kName));
    std::string text = line == std::string::npos ? notes : notes.substr(line + 1);
    text.erase(0, text.starts_with(kName) ? kName.size() : 0);
    text.resize(text.find_last_not_of('\n') + 1);
    return text;
  }
};

}  // namespace stepcast::host

struct stepcast_engine {
  std::shared_ptr<const Host> host;
};

struct stepcast_call {
  std::shared_ptr<stepcast::host::State> state = std::make_shared<stepcast::host::State>();
  std::string note;  // last asked for
};

namespace stepcast::cli {

/// A call is one rank, whatever started the program.
std::unique_ptr<runtime::MpiSession> join_ranks() { return nullptr; }

}  // namespace stepcast::cli

extern "C" {

// Keeps what a thread that nobody waits for still uses when the program ends.
__attribute__((visibility("hidden"))) int __cxa_atexit(void (* /*destroy*/)(void*), void* /*object*/,
                                                       void* /*library*/) {
  return 0;
}

int stepcast_api_version(void) { return STEPCAST_API_VERSION; }

const char* stepcast_version(void) { return cli::kVersionText.data(); }

stepcast_engine* stepcast_open(const char* data, char** error) {
  try {
    const fs::path folder = data != nullptr ? fs::path(data) : installed_data();
    if (!fs::is_directory(folder / "workloads")) {
      throw stepcast::InputError(folder.string(), "has no data files of stepcast");
    }
    return new stepcast_engine{std::make_shared<const Host>(folder, commands())};
  } catch (const std::exception& e) {
    if (error != nullptr) {
      *error = strdup(e.what());
    }
    return nullptr;
  }
}

void stepcast_close(stepcast_engine* engine) { delete engine; }

stepcast_call* stepcast_start(stepcast_engine* engine, const char* request) {
  try {
    auto call = std::make_unique<stepcast_call>();
    call->state->host = engine->host;
    call->state->request = request;
    std::thread([state = call->state] { state->run(); }).detach();
    return call.release();
  } catch (const std::exception&) {
    return nullptr;
  }
}

stepcast_call* stepcast_run(stepcast_engine* engine, const char* request, stepcast_told told,
                            void* user) {
  stepcast_call* call = stepcast_start(engine, request);
  while (call != nullptr && stepcast_wait(call, 50) == 0) {
    const char* note = nullptr;
    const double share = stepcast_progress(call, &note);
    if (told != nullptr && share >= 0 && told(user, share, note) != 0) {
      stepcast_cancel(call);
    }
  }
  return call;
}

int stepcast_wait(stepcast_call* call, int milliseconds) {
  auto& s = *call->state;
  std::unique_lock lock(s.mutex);
  return s.changed.wait_for(lock, milliseconds * 1ms,
                            [&] { return s.status != STEPCAST_RUNNING; })
             ? 1
             : 0;
}

double stepcast_progress(stepcast_call* call, const char** note) {
  auto& s = *call->state;
  const std::lock_guard lock(s.mutex);
  const auto told = std::exchange(s.told, std::nullopt);
  if (!told) {
    return -1;
  }
  call->note = told->second;
  if (note != nullptr) {
    *note = call->note.c_str();
  }
  return told->first;
}

void stepcast_cancel(stepcast_call* call) { call->state->cancelled = true; }

int stepcast_status(stepcast_call* call) {
  const std::lock_guard lock(call->state->mutex);
  return call->state->status;
}

const char* stepcast_answer(stepcast_call* call) {
  return stepcast_status(call) == STEPCAST_RUNNING ? "" : call->state->answer.text.c_str();
}

const char* stepcast_screen(stepcast_call* call) {
  return stepcast_status(call) == STEPCAST_RUNNING ? "" : call->state->answer.screen.c_str();
}

const char* stepcast_notes(stepcast_call* call) {
  return stepcast_status(call) == STEPCAST_RUNNING ? "" : call->state->answer.notes.c_str();
}

const char* stepcast_error(stepcast_call* call) {
  return stepcast_status(call) == STEPCAST_RUNNING ? "" : call->state->error.c_str();
}

int stepcast_main(int count, const char* const* arguments) {
  try {
    if (count == 0) {
      cli::answer() << cli::tour();
      return STEPCAST_DONE;
    }
    return Host(installed_data(), commands()).run_on_terminal({arguments, arguments + count});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "stepcast: %s\n", e.what());
    return STEPCAST_DEFECT;
  }
}

void stepcast_free(stepcast_call* call) {
  if (call != nullptr) {
    stepcast_cancel(call);
    delete call;
  }
}
}
