#pragma once
#include <charconv>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

/// Parts of C++20 that the C++ library of the browser's compiler lacks.
namespace stepcast {

/// std::from_chars of a decimal number: no leading space, no plus sign, no hexadecimal digits; the
/// nearest double.
std::from_chars_result read_decimal(const char* first, const char* last, double& value);

/// The bits of a number, for hashes.
inline std::uint64_t bit_pattern(double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// Threads that are joined at the end of the scope.
class JoinedThreads {
 public:
  JoinedThreads() = default;
  JoinedThreads(const JoinedThreads&) = delete;
  JoinedThreads& operator=(const JoinedThreads&) = delete;
  ~JoinedThreads() {
    for (std::thread& t : all_) {
      t.join();
    }
  }
  template <class... Arguments>
  void start(Arguments&&... arguments) {
    all_.emplace_back(std::forward<Arguments>(arguments)...);
  }

 private:
  std::vector<std::thread> all_;
};

}  // namespace stepcast
