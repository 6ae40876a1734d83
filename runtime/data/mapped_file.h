#pragma once
#include <string>
#include <string_view>

namespace stepcast::runtime {

/// A whole file, mapped read-only. Errors: InputError when it cannot be read or is empty.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  [[nodiscard]] std::string_view text() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace stepcast::runtime
