#include "core/input/input.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "core/error.h"

namespace stepcast {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 18;

class StreamSource final : public ByteSource {
 public:
  StreamSource(std::string label, std::unique_ptr<std::istream> in)
      : label_(std::move(label)), in_(std::move(in)) {}
  std::size_t read(char* to, std::size_t size) override {
    in_->read(to, static_cast<std::streamsize>(size));
    if (in_->bad()) {
      throw InputError(label_, "cannot be read to its end: the system reports an error");
    }
    return static_cast<std::size_t>(in_->gcount());
  }
  std::uint64_t skip(std::uint64_t size) override {
    in_->clear();
    const auto from = in_->tellg();
    in_->seekg(0, std::ios::end);
    const auto left = static_cast<std::uint64_t>(in_->tellg() - from);
    const std::uint64_t done = std::min(size, left);
    in_->seekg(from + static_cast<std::streamoff>(done));
    return done;
  }

 private:
  std::string label_;
  std::unique_ptr<std::istream> in_;
};

/// What the decompressors share: chunks of compressed bytes, and where in the file they are.
class Compressed : public ByteSource {
 public:
  Compressed(std::string label, std::unique_ptr<ByteSource> bytes)
      : label_(std::move(label)), bytes_(std::move(bytes)), chunk_(kChunk) {}

 protected:
  /// False at the end of the file.
  bool refill() {
    before_ += size_;
    size_ = bytes_->read(chunk_.data(), chunk_.size());
    used_ = 0;
    return size_ > 0;
  }
  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(fmt::format("{}: byte {}", label_, before_ + used_), what);
  }

  std::string label_;
  std::unique_ptr<ByteSource> bytes_;
  std::vector<char> chunk_;
  std::size_t size_ = 0;
  std::size_t used_ = 0;
  std::uint64_t before_ = 0;
};

class GzipSource final : public Compressed {
 public:
  GzipSource(std::string label, std::unique_ptr<ByteSource> bytes)
      : Compressed(std::move(label), std::move(bytes)) {
    STEPCAST_CHECK(inflateInit2(&z_, 15 + 16) == Z_OK, "zlib does not start");
  }
  ~GzipSource() override { inflateEnd(&z_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  std::size_t read(char* to, std::size_t size) override {
    z_.next_out = reinterpret_cast<Bytef*>(to);
    z_.avail_out = static_cast<uInt>(std::min(size, kChunk));
    const uInt wanted = z_.avail_out;
    while (!ended_ && z_.avail_out == wanted) {
      if (used_ == size_ && !refill()) {
        if (inside_) {
          fail("the gzip data end early; the file was cut, fetch or compress it again");
        }
        ended_ = true;
        break;
      }
      if (!inside_ && chunk_[used_] == '\0') {  // padding after the last member
        ++used_;
        continue;
      }
      inside_ = true;
      z_.next_in = reinterpret_cast<Bytef*>(chunk_.data() + used_);
      z_.avail_in = static_cast<uInt>(size_ - used_);
      const int state = inflate(&z_, Z_NO_FLUSH);
      used_ = size_ - z_.avail_in;
      if (state == Z_STREAM_END) {  // another member may follow
        inside_ = false;
        inflateReset(&z_);
      } else if (state != Z_OK && state != Z_BUF_ERROR) {
        fail(fmt::format("the gzip data are damaged ({})",
                         z_.msg != nullptr ? z_.msg : "no reason given"));
      }
    }
    return wanted - z_.avail_out;
  }

 private:
  z_stream z_{};
  bool inside_ = false;  ///< within a member
  bool ended_ = false;
};

class ZstdSource final : public Compressed {
 public:
  ZstdSource(std::string label, std::unique_ptr<ByteSource> bytes)
      : Compressed(std::move(label), std::move(bytes)), stream_(ZSTD_createDStream()) {
    STEPCAST_CHECK(stream_ != nullptr, "zstd does not start");
  }
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }
  ZstdSource(const ZstdSource&) = delete;
  ZstdSource& operator=(const ZstdSource&) = delete;

  std::size_t read(char* to, std::size_t size) override {
    ZSTD_outBuffer out{to, size, 0};
    while (out.pos == 0) {
      if (used_ == size_ && !flushing_ && !refill()) {
        if (inside_) {
          fail("the zstd data end early; the file was cut, fetch or compress it again");
        }
        return 0;
      }
      ZSTD_inBuffer in{chunk_.data(), size_, used_};
      const std::size_t state = ZSTD_decompressStream(stream_, &out, &in);
      used_ = in.pos;
      if (ZSTD_isError(state) != 0) {
        fail(fmt::format("the zstd data are damaged ({})", ZSTD_getErrorName(state)));
      }
      inside_ = state != 0;
      flushing_ = inside_ && out.pos == out.size;
    }
    return out.pos;
  }

 private:
  ZSTD_DStream* stream_;
  bool inside_ = false;
  bool flushing_ = false;  ///< the decompressor holds output that did not fit
};

}  // namespace

std::uint64_t ByteSource::skip(std::uint64_t size) {
  std::vector<char> passed(static_cast<std::size_t>(std::min<std::uint64_t>(size, kChunk)));
  std::uint64_t done = 0;
  while (done < size) {
    const std::size_t got =
        read(passed.data(), static_cast<std::size_t>(std::min<std::uint64_t>(size - done, kChunk)));
    if (got == 0) {
      break;
    }
    done += got;
  }
  return done;
}

Input Input::of_file(const std::filesystem::path& file) {
  const std::string label = file.string();
  auto in = std::make_unique<std::ifstream>(file, std::ios::binary);
  if (!*in || std::filesystem::is_directory(file)) {
    throw InputError(label, "cannot be read; check that it is a file and its permissions");
  }
  unsigned char head[4] = {};
  in->read(reinterpret_cast<char*>(head), sizeof head);
  const auto size = in->gcount();
  in->clear();
  in->seekg(0);
  std::error_code unknown;
  const std::uintmax_t on_disk = std::filesystem::file_size(file, unknown);
  auto bytes = std::make_unique<StreamSource>(label, std::move(in));
  const auto input = [&](std::unique_ptr<ByteSource> source, std::uint64_t factor) {
    Input made(label, std::move(source));
    made.expected_ = unknown ? 0 : factor * on_disk;
    made.compressed_ = factor > 1;
    return made;
  };
  constexpr std::uint64_t kCompression = 8;
  if (size >= 2 && head[0] == 0x1f && head[1] == 0x8b) {
    return input(std::make_unique<GzipSource>(label, std::move(bytes)), kCompression);
  }
  if (size == 4 && head[0] == 0x28 && head[1] == 0xb5 && head[2] == 0x2f && head[3] == 0xfd) {
    return input(std::make_unique<ZstdSource>(label, std::move(bytes)), kCompression);
  }
  return input(std::move(bytes), 1);
}

Input Input::of_text(std::string label, std::string text) {
  auto bytes =
      std::make_unique<StreamSource>(label, std::make_unique<std::istringstream>(std::move(text)));
  return {std::move(label), std::move(bytes)};
}

std::string_view Input::peek(std::size_t size) {
  ahead_.erase(ahead_.begin(), ahead_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  std::size_t have = ahead_.size();
  if (have < size) {
    ahead_.resize(size);
    while (have < size) {
      const std::size_t got = bytes_->read(ahead_.data() + have, size - have);
      if (got == 0) {
        break;
      }
      have += got;
    }
    ahead_.resize(have);
  }
  return {ahead_.data(), std::min(size, have)};
}

std::size_t Input::read(char* to, std::size_t size) {
  std::size_t done = std::min(size, ahead_.size() - taken_);
  if (done > 0) {
    std::memcpy(to, ahead_.data() + taken_, done);
    taken_ += done;
  }
  while (done < size) {
    const std::size_t got = bytes_->read(to + done, size - done);
    if (got == 0) {
      break;
    }
    done += got;
  }
  offset_ += done;
  return done;
}

std::uint64_t Input::skip(std::uint64_t size) {
  const auto ahead = std::min<std::uint64_t>(size, ahead_.size() - taken_);
  taken_ += static_cast<std::size_t>(ahead);
  const std::uint64_t done = ahead + (size > ahead ? bytes_->skip(size - ahead) : 0);
  offset_ += done;
  return done;
}

void Input::fail(std::uint64_t at, std::string_view what) const {
  throw InputError(fmt::format("{}: byte {}", label_, at), what);
}

}  // namespace stepcast
