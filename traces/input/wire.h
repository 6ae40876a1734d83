#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/input/input.h"

namespace stepcast::traces::internal {

/// Protocol buffers on the wire, as far as Chakra and XPlane need them: enough code to read 4 wire
/// types with our own limits and byte offsets in every error, which the generated classes do not
/// give.

/// One field of a message.
struct WireField {
  std::uint32_t number = 0;
  std::uint32_t type = 0;    ///< 0 varint, 1 eight bytes, 2 bytes, 5 four bytes
  std::uint64_t value = 0;   ///< types 0, 1, 5
  std::string_view bytes;    ///< type 2
  std::uint64_t offset = 0;  ///< of the field in the file
  [[nodiscard]] std::int64_t integer() const { return static_cast<std::int64_t>(value); }
  /// sint32, sint64.
  [[nodiscard]] std::int64_t zigzag() const {
    return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1));
  }
  [[nodiscard]] double real() const {
    return type == 5 ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(value)))
                     : std::bit_cast<double>(value);
  }
};

/// Walks the fields of one message: while (reader.next(field)) ...
class WireReader {
 public:
  WireReader(const Input& input, std::string_view message, std::uint64_t offset)
      : input_(input), text_(message), offset_(offset) {}
  /// False at the end. Errors: InputError for a message that ends inside a field, or a wire type
  /// that is none.
  bool next(WireField& field);
  /// One varint, for packed lists; false at the end.
  bool varint(std::uint64_t& value);

 private:
  [[noreturn]] void fail(std::string_view what) const;
  const Input& input_;
  std::string_view text_;
  std::uint64_t offset_;
  std::size_t at_ = 0;
};

/// A file of messages, each after its length as a varint.
class MessageStream {
 public:
  explicit MessageStream(Input& input) : input_(input) {}
  /// Reads the next message; false at the end of the file. At most 256 MiB each.
  bool next(std::string& message);
  /// Place of the first byte of the message last read.
  [[nodiscard]] std::uint64_t offset() const { return start_; }

 private:
  Input& input_;
  std::uint64_t start_ = 0;
};

/// Appends to a message under construction.
void put_varint(std::string& to, std::uint64_t value);
void put_integer(std::string& to, std::uint32_t field, std::uint64_t value);
void put_bytes(std::string& to, std::uint32_t field, std::string_view bytes);

}  // namespace stepcast::traces::internal
