#include "traces/input/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/whole_file.h"

namespace stepcast::traces {

std::string gzipped(std::string_view text) {
  z_stream stream{};
  constexpr int kWindow = 15, kGzip = 16, kMemory = 8;
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kWindow + kGzip, kMemory,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    throw RunError("zlib cannot begin to compress: out of memory");
  }
  std::string packed;
  std::string part(std::size_t{1} << 16U, '\0');
  // zlib does not write to its input, yet takes it as writable.
  auto* next = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  std::size_t left = text.size();
  int state = Z_OK;
  do {
    if (stream.avail_in == 0 && left > 0) {
      const auto some =
          static_cast<uInt>(std::min<std::size_t>(left, std::numeric_limits<uInt>::max()));
      stream.next_in = next;
      stream.avail_in = some;
      next += some;
      left -= some;
    }
    stream.next_out = reinterpret_cast<Bytef*>(part.data());
    stream.avail_out = static_cast<uInt>(part.size());
    state = deflate(&stream, left == 0 ? Z_FINISH : Z_NO_FLUSH);
    packed.append(part, 0, part.size() - stream.avail_out);
  } while (state == Z_OK);
  deflateEnd(&stream);
  STEPCAST_CHECK(state == Z_STREAM_END, "zlib ended with {}", state);
  return packed;
}

void write_by_extension(const std::filesystem::path& file, std::string_view text) {
  write_whole_file(file, file.extension() == ".gz" ? gzipped(text) : std::string(text));
}

}  // namespace stepcast::traces
