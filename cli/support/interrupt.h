#pragma once

namespace stepcast::cli {

/// While it lives, the first Ctrl-C is noted instead of ending the program, so that a search can
/// answer with what it has; the second ends it. Nothing changes inside another program.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;
  /// True once Ctrl-C was pressed; for any thread.
  [[nodiscard]] static bool interrupted();

 private:
  bool watches_;
};

/// The exit code of a command that Ctrl-C ended.
inline constexpr int kInterruptedCode = 130;

}  // namespace stepcast::cli
