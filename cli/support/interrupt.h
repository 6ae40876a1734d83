#pragma once
#include <optional>

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
  /// After a search: its exit code if Ctrl-C ended it, which is said; nullopt if nothing did.
  [[nodiscard]] static std::optional<int> code(bool found);

 private:
  bool watches_;
};

}  // namespace stepcast::cli
