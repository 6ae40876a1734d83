#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>

#include "cli/command.h"
#include "cli/report/chapters.h"
#include "cli/report/style.h"
#include "cli/support/command_line.h"
#include "cli/support/console.h"
#include "cli/version.h"
#include "core/config/catalogue.h"
#include "core/error.h"
#include "interop/import.h"

// Calls of the package: commands as they are typed, and the pictures of what they answer. Texts
// in, texts out; bindings/python/stepcast/_stepcast.pyi is its interface.

namespace stepcast {
namespace {

namespace py = pybind11;
using namespace std::chrono_literals;

constexpr std::array<std::pair<std::string_view, void (*)(CLI::App&, cli::Context&)>, 7> kCommands{
    {{"predict", cli::add_predict},
     {"sweep", cli::add_sweep},
     {"plan", cli::add_plan},
     {"explain", cli::add_explain},
     {"replay", cli::add_replay},
     {"show", cli::add_show},
     {"convert", cli::add_convert}}};

/// Ends a command whose caller was interrupted. No std::exception: no command takes it for its own.
struct Interrupted {};

/// A command on a thread of its own, so that the calling one goes on to hear signals.
class RunningCommand {
 public:
  RunningCommand(std::vector<std::string> arguments,
                 std::map<std::string, std::string> documents,
                 config::Library library)
      : thread_([this, arguments = std::move(arguments), documents = std::move(documents),
                 library = std::move(library)]() mutable {
          run(std::move(arguments), std::move(documents), std::move(library));
        }) {}
  ~RunningCommand() { stop_ = true; }  // then the thread is waited for

  /// Whether it has ended after at most this time.
  bool ended_after(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return ended_; });
  }
  /// Takes the last word of its progress, once.
  std::optional<std::pair<double, std::string>> progress() {
    const std::lock_guard lock(mutex_);
    return std::exchange(progress_, std::nullopt);
  }
  /// Once it has ended: the exit code, what it printed, what it told besides.
  std::tuple<int, std::string, std::string> result() {
    if (failure_) {
      std::rethrow_exception(failure_);
    }
    return {code_, answer_.str(), notes_.str()};
  }

 private:
  void run(std::vector<std::string> arguments, std::map<std::string, std::string> documents,
           config::Library library) {
    cli::Console console{&answer_, &notes_,
                         [this](double share, const std::string& note) { tell(share, note); },
                         {std::make_move_iterator(documents.begin()),
                          std::make_move_iterator(documents.end())}};
    const cli::ConsoleScope scope(console);
    try {
      CLI::App app{"Forecast a training step before you run it", "stepcast"};
      app.require_subcommand(1);
      cli::Context context{std::move(library), {}, std::move(arguments)};
      for (const auto& [name, add] : kCommands) {
        if (!context.arguments.empty() && context.arguments.front() == name) {
          add(app, context);
        }
      }
      code_ = cli::run_command_line(app, context);
    } catch (const Interrupted&) {
    } catch (...) {
      failure_ = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
  }
  void tell(double share, const std::string& note) {
    if (stop_) {
      throw Interrupted();
    }
    const std::lock_guard lock(mutex_);
    progress_.emplace(share, note);
  }

  std::atomic<bool> stop_ = false;
  std::mutex mutex_;  // guards the next three
  std::condition_variable changed_;
  bool ended_ = false;
  std::optional<std::pair<double, std::string>> progress_;
  std::ostringstream answer_, notes_;
  int code_ = 0;
  std::exception_ptr failure_;
  std::jthread thread_;  // last: it uses the others
};

using Progress = std::function<void(double, const std::string&)>;

/// Holds what stays between calls.
class Engine {
 public:
  explicit Engine(const std::string& root) : library_(interop::library(root)) {
    library_.catalogue = &catalogue_;
  }

  std::tuple<int, std::string, std::string> run(std::vector<std::string> arguments,
                                                std::map<std::string, std::string> documents,
                                                const std::optional<Progress>& progress) {
    const py::gil_scoped_release others_go_on;
    RunningCommand call(std::move(arguments), std::move(documents), library_);
    while (!call.ended_after(50ms)) {
      const py::gil_scoped_acquire python;
      if (PyErr_CheckSignals() != 0) {
        throw py::error_already_set();
      }
      if (const auto told = call.progress(); told && progress) {
        (*progress)(told->first, told->second);
      }
    }
    return call.result();
  }

 private:
  config::Catalogue catalogue_;
  config::Library library_;
};

/// The pictures `stepcast report` draws of a document, in an element of their own with their style.
/// Errors: ValueError where it draws none of this command's.
std::string pictures(const std::string& command, const std::string& document) {
  const cli::report::Document one{command, nlohmann::ordered_json::parse(document)};
  try {
    return cli::report::fragment(cli::report::chapter_of(one));
  } catch (const InputError& e) {
    throw py::value_error(e.what());
  }
}

}  // namespace
}  // namespace stepcast

PYBIND11_MODULE(_stepcast, module) {
  using stepcast::Engine;
  namespace py = pybind11;
  py::class_<Engine>(module, "Engine")
      .def(py::init<const std::string&>(), py::arg("root"))
      .def("run", &Engine::run, py::arg("arguments"), py::arg("documents"),
           py::arg("progress") = py::none());
  module.def("pictures", &stepcast::pictures, py::arg("command"), py::arg("document"));
  module.attr("version") = std::string(stepcast::cli::kVersionText);
  module.attr("source") = STEPCAST_SOURCE_DIR;
}
