#include "core/config/lookups/arrays.h"

#include "core/error.h"

namespace stepcast::config {
namespace {

constexpr std::size_t kWord = 8;

std::uint64_t word_at(std::span<const char> bytes, std::size_t at) {
  std::uint64_t v = 0;
  for (std::size_t b = 0; b < kWord; ++b) {
    v |= std::uint64_t{static_cast<unsigned char>(bytes[at + b])} << (8 * b);
  }
  return v;
}

/// Pairs of 32-bit ids: both halves of every word are below 2^31 and most upper halves are not 0.
/// The lower halves of true 64-bit ids have their top bit set half of the time.
bool looks_like_int32(std::span<const char> bytes) {
  constexpr std::size_t kFewest = 32;
  constexpr std::uint64_t kSigns = 0x8000'0000'8000'0000U;
  const std::size_t words = bytes.size() / kWord;
  std::size_t large = 0;
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t v = word_at(bytes, kWord * i);
    if ((v & kSigns) != 0) {
      return false;
    }
    large += v >> 32U != 0 ? 1 : 0;
  }
  return words >= kFewest && 4 * large > 3 * words;
}

}  // namespace

void stream_raw_ids(Input& input, IdSink& to) {
  std::vector<char> buffer(std::size_t{1} << 18);
  bool first = true;
  for (std::size_t got = 0; (got = input.read(buffer.data(), buffer.size())) > 0; first = false) {
    if (got % kWord != 0) {  // a read is short only at the end
      throw InputError(input.label(), fmt::format("holds {} bytes, expected a multiple of 8 "
                                                  "(little-endian int64), or text with one id per "
                                                  "line",
                                                  input.offset()));
    }
    if (first && looks_like_int32({buffer.data(), got})) {
      throw InputError(input.label(),
                       "read as 64-bit ids, nearly all are above 4 billion and both their halves "
                       "look like row ids: the file seems to hold int32; write it as .npy, which "
                       "says so, or as little-endian int64 (NumPy: "
                       "ids.astype('<i8').tofile(FILE))");
    }
    for (std::size_t at = 0; at < got; at += kWord) {
      to.add(static_cast<std::int64_t>(word_at(buffer, at)));
    }
  }
}

}  // namespace stepcast::config
