#include "cli/support/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace stepcast::cli {

Progress::Progress(std::string what)
    : what_(std::move(what)),
      console_(console()),
      start_(std::chrono::steady_clock::now()),
      last_(start_),
      terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (shown_) {
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
  }
}

void Progress::update(double done, double total, const std::string& note) {
  using namespace std::chrono_literals;
  const double share = total > 0 ? std::clamp(done / total, 0.0, 1.0) : 0;
  if (console_ != nullptr) {
    if (console_->progress) {
      console_->progress(share, note);
    }
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (manners().quiet || now - last_ < (terminal_ ? 100ms : 30000ms) || now - start_ < 1s) {
    return;
  }
  last_ = now;
  if (!terminal_) {
    fmt::print(stderr, "stepcast: {} {:.0f} % after {:.0f} s{}{}\n", what_, share * 100,
               std::chrono::duration<double>(now - start_).count(), note.empty() ? "" : ": ", note);
    return;
  }
  shown_ = true;
  constexpr int kWidth = 20;
  constexpr double kTelling = 0.02;  // less says nothing of the rest
  const double spent = std::chrono::duration<double>(now - start_).count();
  const int filled = static_cast<int>(share * kWidth);
  fmt::print(stderr, "\r\033[K{} [{}{}] {:3.0f} %{}  {}", what_,
             std::string(static_cast<std::size_t>(filled), '#'),
             std::string(static_cast<std::size_t>(kWidth - filled), '.'), share * 100,
             share > kTelling ? fmt::format("  {:.0f} s left", spent * (1 - share) / share) : "",
             note.substr(0, 30));
  std::fflush(stderr);
}

}  // namespace stepcast::cli
