#include "core/input/input.h"

#include "core/error.h"

namespace stepcast {

std::uint64_t ByteSource::skip(std::uint64_t /*size*/) { return 0; }

/// Recorded ids are files of gigabytes.
Input Input::of_file(const std::filesystem::path& file) {
  throw InputError(file.string(),
                   "holds recorded data, which the page does not read; use the executable");
}

std::string_view Input::peek(std::size_t /*size*/) { return {}; }
std::size_t Input::read(char* /*to*/, std::size_t /*size*/) { return 0; }
std::uint64_t Input::skip(std::uint64_t /*size*/) { return 0; }
void Input::fail(std::uint64_t at, std::string_view what) const {
  throw InputError(fmt::format("{}: byte {}", label_, at), what);
}

}  // namespace stepcast
