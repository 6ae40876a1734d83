#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace stepcast {

/// Mark that some programs put before a text in UTF-8.
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// Bytes that come one after the other: a file, a decompressor, a member of an archive.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Up to `size` bytes; 0 only at the end. Errors: InputError for damaged or cut compressed data.
  virtual std::size_t read(char* to, std::size_t size) = 0;
  /// Passes over `size` bytes, or as many as are left; how many.
  virtual std::uint64_t skip(std::uint64_t size);
};

/// A named stream of bytes with a little look-ahead: what readers of large files read from.
/// Compression is undone; offsets count decompressed bytes.
class Input {
 public:
  Input(std::string label, std::unique_ptr<ByteSource> bytes)
      : label_(std::move(label)), bytes_(std::move(bytes)) {}
  /// Plain, gzip (also of several members) or zstd, told by the first bytes.
  static Input of_file(const std::filesystem::path& file);
  /// The same of a text in memory, for tests.
  static Input of_text(std::string label, std::string text);

  /// The next bytes without consuming them, fewer than `size` only at the end.
  std::string_view peek(std::size_t size);
  /// Consumes up to `size` bytes; fewer only at the end.
  std::size_t read(char* to, std::size_t size);
  /// Passes over up to `size` bytes, without reading them where they lie plain in a file; fewer
  /// only at the end.
  std::uint64_t skip(std::uint64_t size);

  [[nodiscard]] std::uint64_t offset() const { return offset_; }
  /// Whether the file is compressed.
  [[nodiscard]] bool compressed() const { return compressed_; }
  /// About how many bytes there will be: the file's size, times eight where it is compressed; 0
  /// where nothing is known. For reserving memory, nothing else.
  [[nodiscard]] std::uint64_t expected() const { return expected_; }
  [[nodiscard]] const std::string& label() const { return label_; }
  /// Throws the InputError "label: byte N: what".
  [[noreturn]] void fail(std::uint64_t at, std::string_view what) const;

 private:
  std::string label_;
  std::unique_ptr<ByteSource> bytes_;
  std::vector<char> ahead_;
  std::size_t taken_ = 0;  ///< of `ahead_`
  std::uint64_t offset_ = 0;
  std::uint64_t expected_ = 0;
  bool compressed_ = false;
};

}  // namespace stepcast
