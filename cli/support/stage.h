#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace stepcast::cli {

/// Tells on stderr what a command is at before it can count its progress, if that takes over a
/// second.
class Stage {
 public:
  Stage(std::string what, std::string stage);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace stepcast::cli
