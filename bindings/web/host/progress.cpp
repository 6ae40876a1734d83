#include "cli/support/progress.h"

#include <emscripten.h>

#include <algorithm>

// The page's worker sets Module.onProgress.
EM_JS(void, tell_progress, (double share, const char* note), {
  if (Module["onProgress"]) Module["onProgress"](share, UTF8ToString(note));
});

namespace stepcast::cli {

Progress::Progress(std::string what)
    : what_(std::move(what)), start_(std::chrono::steady_clock::now()), last_(start_) {}

Progress::~Progress() = default;

void Progress::update(double done, double total, const std::string& note) {
  using namespace std::chrono_literals;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < 50ms) {
    return;
  }
  last_ = now;
  tell_progress(total > 0 ? std::clamp(done / total, 0.0, 1.0) : 0, note.c_str());
}

}  // namespace stepcast::cli
