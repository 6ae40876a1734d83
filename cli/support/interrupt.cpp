#include "cli/support/interrupt.h"

#include <fmt/ostream.h>

#include <atomic>
#include <csignal>

#include "cli/support/console.h"

namespace stepcast::cli {
namespace {

std::atomic<bool> pressed = false;
static_assert(std::atomic<bool>::is_always_lock_free, "the handler of a signal sets it");

void note(int) {
  pressed = true;
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace

InterruptWatch::InterruptWatch() : watches_(console() == nullptr) {
  if (watches_) {
    pressed = false;
    std::signal(SIGINT, note);
  }
}

InterruptWatch::~InterruptWatch() {
  if (watches_) {
    std::signal(SIGINT, SIG_DFL);
  }
}

bool InterruptWatch::interrupted() { return pressed; }

std::optional<int> InterruptWatch::code(bool found) {
  if (!pressed) {
    return std::nullopt;
  }
  fmt::print(notes(), "stepcast: interrupted; {}\n",
             found ? "the best plans so far:" : "no plan was found yet");
  constexpr int kCode = 130;
  return kCode;
}

}  // namespace stepcast::cli
