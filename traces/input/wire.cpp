#include "traces/input/wire.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace stepcast::traces::internal {
namespace {

constexpr std::uint64_t kLongest = std::uint64_t{256} << 20;
constexpr int kVarintBytes = 10;

}  // namespace

void WireReader::fail(std::string_view what) const { input_.fail(offset_ + at_, what); }

bool WireReader::varint(std::uint64_t& value) {
  if (at_ == text_.size()) {
    return false;
  }
  value = 0;
  for (int i = 0; i < kVarintBytes; ++i) {
    if (at_ == text_.size()) {
      fail("a message ends inside a number; was the file cut?");
    }
    const auto byte = static_cast<unsigned char>(text_[at_++]);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << (7 * i);
    if ((byte & 0x80) == 0) {
      return true;
    }
  }
  fail("found a number of more than 10 bytes; expected a varint");
}

bool WireReader::next(WireField& field) {
  std::uint64_t key = 0;
  field.offset = offset_ + at_;
  if (!varint(key)) {
    return false;
  }
  field.number = static_cast<std::uint32_t>(key >> 3);
  field.type = static_cast<std::uint32_t>(key & 7);
  const auto take = [this](std::uint64_t size) {
    if (size > text_.size() - at_) {
      fail(fmt::format("a field of {} bytes in a message with {} left; was the file cut?", size,
                       text_.size() - at_));
    }
    at_ += static_cast<std::size_t>(size);
    return text_.substr(at_ - static_cast<std::size_t>(size), static_cast<std::size_t>(size));
  };
  switch (field.type) {
    case 0:
      if (!varint(field.value)) {
        fail("a message ends behind a field's key; was the file cut?");
      }
      return true;
    case 1:
    case 5: {
      field.value = 0;
      int shift = 0;
      for (const char c : take(field.type == 1 ? 8 : 4)) {
        field.value |= static_cast<std::uint64_t>(static_cast<unsigned char>(c)) << shift;
        shift += 8;
      }
      return true;
    }
    case 2: {
      std::uint64_t size = 0;
      if (!varint(size)) {
        fail("a message ends behind a field's key; was the file cut?");
      }
      field.bytes = take(size);
      return true;
    }
    default:
      fail(
          fmt::format("found wire type {}; expected 0, 1, 2 or 5: this is another format, or it is "
                      "damaged",
                      field.type));
  }
}

bool MessageStream::next(std::string& message) {
  std::uint64_t size = 0;
  const std::uint64_t at = input_.offset();
  for (int i = 0;; ++i) {
    char byte = 0;
    if (input_.read(&byte, 1) == 0) {
      if (i == 0) {
        return false;
      }
      input_.fail(at, "the file ends inside the length of a message; was it cut?");
    }
    if (i == kVarintBytes) {
      input_.fail(at, "found a length of more than 10 bytes; expected a varint");
    }
    size |= static_cast<std::uint64_t>(static_cast<unsigned char>(byte) & 0x7f) << (7 * i);
    if ((static_cast<unsigned char>(byte) & 0x80) == 0) {
      break;
    }
  }
  if (size > kLongest) {
    input_.fail(at,
                fmt::format("found a message of {} bytes; expected at most {}", size, kLongest));
  }
  start_ = input_.offset();
  // In pieces: a false length must not cost its memory.
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
  message.clear();
  while (message.size() < size) {
    const std::size_t had = message.size();
    const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, size - had));
    message.resize(had + piece);
    const std::size_t got = input_.read(message.data() + had, piece);
    if (got < piece) {
      input_.fail(start_, fmt::format("a message of {} bytes, but the file ends after {}; was it "
                                      "cut?",
                                      size, had + got));
    }
  }
  return true;
}

void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    to += static_cast<char>((value & 0x7f) | 0x80);
  }
  to += static_cast<char>(value);
}

void put_integer(std::string& to, std::uint32_t field, std::uint64_t value) {
  put_varint(to, std::uint64_t{field} << 3);
  put_varint(to, value);
}

void put_bytes(std::string& to, std::uint32_t field, std::string_view bytes) {
  put_varint(to, (std::uint64_t{field} << 3) | 2);
  put_varint(to, bytes.size());
  to += bytes;
}

}  // namespace stepcast::traces::internal
