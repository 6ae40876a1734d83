#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/config/access_files.h"

namespace stepcast::config {

/// Hands ids on, at most 2^18 at a time. Errors: InputError for a negative one, with its position.
class IdSink {
 public:
  IdSink(std::string file, const TakeIds& take);
  void add(std::int64_t id) {
    if (id < 0) {
      reject(id);
    }
    ids_.push_back(id);
    if (ids_.size() == kMost) {
      flush();
    }
  }
  void flush();
  [[nodiscard]] std::size_t passed() const { return passed_ + ids_.size(); }

 private:
  static constexpr std::size_t kMost = 1U << 18;
  [[noreturn]] void reject(std::int64_t id) const;
  std::string file_;
  const TakeIds& take_;
  std::vector<std::int64_t> ids_;
  std::size_t passed_ = 0;
};

}  // namespace stepcast::config
