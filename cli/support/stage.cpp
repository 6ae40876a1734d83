#include "cli/support/stage.h"

#include <fmt/format.h>

#include <chrono>

#include "cli/support/console.h"

namespace stepcast::cli {

Stage::Stage(std::string what, std::string stage) {
  if (manners().quiet || console() != nullptr) {
    return;
  }
  thread_ = std::thread([this, what = std::move(what), stage = std::move(stage)] {
    std::unique_lock lock(mutex_);
    if (!over_.wait_for(lock, std::chrono::seconds(1), [this] { return is_over_; })) {
      fmt::print(stderr, "stepcast: {} 0 % after 1 s: {}\n", what, stage);
    }
  });
}

Stage::~Stage() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_all();
    thread_.join();
  }
}

}  // namespace stepcast::cli
