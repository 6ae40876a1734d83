#include "models/measured/sha256.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nettle/sha2.h>

#include <array>
#include <cstdint>
#include <fstream>

#include "core/error.h"

namespace stepcast::models {

std::string sha256_of_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  sha256_ctx state;
  sha256_init(&state);
  std::array<char, 1 << 16> block{};
  while (in.read(block.data(), block.size()) || in.gcount() > 0) {
    sha256_update(&state, static_cast<std::size_t>(in.gcount()),
                  reinterpret_cast<const std::uint8_t*>(block.data()));
  }
  if (!in.eof() || in.bad()) {
    throw InputError(file.string(), "cannot be read; check that it is a file and its permissions");
  }
  std::array<std::uint8_t, SHA256_DIGEST_SIZE> digest{};
  sha256_digest(&state, digest.size(), digest.data());
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

}  // namespace stepcast::models
