#include "core/input/input.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "core/input/archive.h"

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
  std::array<char, 4> head{};
  in->read(head.data(), head.size());
  const std::string_view magic(head.data(), static_cast<std::size_t>(in->gcount()));
  const bool gzip = magic.starts_with("\x1f\x8b");
  const bool compressed = gzip || magic == "\x28\xb5\x2f\xfd";
  in->clear();
  in->seekg(0);
  std::error_code unknown;
  const std::uintmax_t on_disk = std::filesystem::file_size(file, unknown);
  Input input(label, compressed ? unpacked(file, gzip)
                                : std::make_unique<StreamSource>(label, std::move(in)));
  constexpr std::uint64_t kCompression = 8;
  input.expected_ = unknown ? 0 : (compressed ? kCompression : 1) * on_disk;
  input.compressed_ = compressed;
  return input;
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
