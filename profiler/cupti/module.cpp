#include "profiler/cupti/module.h"

#include <memory>
#include <vector>

#include "profiler/cupti/capture.h"

namespace stepcast::profiler::cupti {
namespace {

class OwnCapture final : public CuptiModule {
 public:
  std::string start(const CaptureSettings& settings) override {
    if (capture_ != nullptr) {
      return "this process is being recorded already";
    }
    CaptureSettings at_once = settings;
    at_once.steps.reset();
    at_once.seconds.reset();
    at_once.on_signal = false;
    at_once.own_ops = true;
    capture_ = std::make_unique<Capture>(at_once);
    const Collector::Rejection rejection = capture_->open();
    if (!rejection.reason.empty()) {
      capture_.reset();
      return rejection.reason + (rejection.busy ? "; end that tool first" : "");
    }
    return {};
  }
  void begin_step(std::int64_t number) override {
    if (capture_ != nullptr) {
      capture_->step(number);
    }
  }
  void end_step() override {
    if (capture_ != nullptr) {
      capture_->step_end();
    }
  }
  void push_op(std::uint64_t op, bool elsewhere) override {
    if (capture_ != nullptr) {
      capture_->push_op(op, elsewhere);
    }
  }
  void pop_op() override {
    if (capture_ != nullptr) {
      capture_->pop_op();
    }
  }
  std::optional<traces::Recording> stop(LaunchedRank rank) override {
    if (capture_ == nullptr) {
      return std::nullopt;
    }
    capture_->stop(false);
    std::optional<traces::Recording> recording = capture_->take(rank);
    // Kept: CUPTI's own thread may still hand back a buffer.
    ended_.push_back(std::move(capture_));
    return recording;
  }

 private:
  std::unique_ptr<Capture> capture_;
  std::vector<std::unique_ptr<Capture>> ended_;
};

}  // namespace
}  // namespace stepcast::profiler::cupti

extern "C" __attribute__((visibility("default"))) stepcast::profiler::CuptiModule*
stepcast_cupti_module() {
  static auto* own = new stepcast::profiler::cupti::OwnCapture;  // CUPTI may call to the very end
  return own;
}
