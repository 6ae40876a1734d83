#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stepcast::profiler {

/// A step of the program as it was seen while it ran.
struct StepMark {
  std::int64_t number = 0;
  std::int64_t begin = 0, end = 0;  ///< ns
  std::int32_t thread = 0;
};

/// Which ranges of a program are its steps.
///
///   StepNames any("");           // "ProfilerStep#7", "step 7", "iteration_7", "iter7": 7
///   StepNames mine("train");     // "train 7", "train#7": 7; "train": the n-th is n
class StepNames {
 public:
  /// `mark`: the name the user gave; empty for the usual spellings.
  explicit StepNames(std::string mark) : mark_(std::move(mark)) {}
  /// The number of the step that begins with this range; nullopt when it is no step. The first
  /// of the usual spellings that is met counts: "iteration 3" inside "step 3" is no second step.
  std::optional<std::int64_t> step(std::string_view range);

 private:
  std::string mark_;
  std::string spelling_;
  std::int64_t met_ = 0;
};

/// Follows the steps of a program and says when to record: steps [first, last). Not thread-safe;
/// steps of one program begin on one thread.
class StepWindow {
 public:
  StepWindow(std::int64_t first, std::int64_t last) : first_(first), last_(last) {}
  enum class Change { kNone, kWarmUp, kBegin, kEnd };
  /// A step begins. kWarmUp: the next one is recorded, so collecting should begin now.
  Change begin(std::int64_t number, std::int64_t at, std::int32_t thread);
  /// The step that began last ends: programs that mark begins only need not call it.
  Change end(std::int64_t at);
  /// Steps recorded so far; one that is open ends at `at`.
  [[nodiscard]] std::vector<StepMark> steps(std::int64_t at) const;

 private:
  std::int64_t first_, last_;
  std::vector<StepMark> steps_;
  bool open_ = false, done_ = false, begun_ = false;
};

}  // namespace stepcast::profiler
