#pragma once
#include <string>
#include <string_view>

namespace stepcast::runtime {

/// The bytes of a whole file: mapped read-only, or decompressed (gzip, zstd) into memory. Errors:
/// InputError when it cannot be read, is empty or damaged.
class DataFile {
 public:
  explicit DataFile(const std::string& path);
  ~DataFile();
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;
  [[nodiscard]] std::string_view text() const {
    return mapped_ != nullptr ? std::string_view(mapped_, size_) : std::string_view(decompressed_);
  }

 private:
  void decompress(const std::string& path);

  const char* mapped_ = nullptr;
  std::size_t size_ = 0;  ///< of `mapped_`
  std::string decompressed_;
};

}  // namespace stepcast::runtime
