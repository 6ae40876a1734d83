#pragma once
#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace stepcast {

/// The input is wrong and the user can fix it (exit code 2). `where` is a place the user can open:
/// "job.json: parallel.tensor". `what` says what was found, what was expected and how to mend it.
class InputError : public std::runtime_error {
 public:
  InputError(std::string_view where, std::string_view what);
  [[nodiscard]] const std::string& where() const { return where_; }
  /// The message without the place.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  std::string where_, problem_;
};

/// The environment lacks something that was asked for: no GPU, no launcher (exit code 3).
class EnvironmentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A run failed while running: a lost rank, a timeout, out of memory (exit code 4).
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// We broke one of our own promises (exit code 70). Never caught except in main().
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Throws InternalError; `condition` is the promise that was broken, or "" where none was checked.
[[noreturn]] void fail_check(const char* file, int line, std::string_view condition,
                             std::string_view message);

}  // namespace stepcast

/// Checks one of our own promises, in every build type. Wrong input is an InputError, never a
/// failed check.
#define STEPCAST_CHECK(condition, ...)                                                       \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      ::stepcast::fail_check(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__));      \
    }                                                                                        \
  } while (false)

/// Fails where there is nothing left to check: the end of a function that must have returned.
#define STEPCAST_FAIL(...) ::stepcast::fail_check(__FILE__, __LINE__, "", fmt::format(__VA_ARGS__))
