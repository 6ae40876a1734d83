#include "core/json_text.h"

#include <fmt/format.h>

#include <fstream>

#include "core/error.h"

namespace stepcast {

namespace fs = std::filesystem;

std::string read_document_text(const fs::path& file, std::size_t most) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (fs::is_directory(status) || fs::is_character_file(status) || fs::is_block_file(status)) {
    throw InputError(file.string(), fs::is_directory(status) ? "is a folder; expected a file"
                                                             : "is a device; expected a file");
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    throw InputError(file.string(), "cannot be read; check its name and permissions");
  }
  std::string text;
  std::string part(std::size_t{1} << 20U, '\0');
  while (in) {
    in.read(part.data(), static_cast<std::streamsize>(part.size()));
    text.append(part, 0, static_cast<std::size_t>(in.gcount()));
    if (text.size() > most) {
      throw InputError(
          file.string(),
          fmt::format("is longer than {} MiB; no document of this kind is", most >> 20U));
    }
  }
  return text;
}

void expect_shallow_json(std::string_view text, std::string_view where) {
  constexpr std::size_t kDeepest = 256;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || (text[first] != '{' && text[first] != '[')) {
    return;  // compressed, or another language: brackets mean something else
  }
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      i += c == '\\' ? 1 : 0;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest) {
        throw InputError(
            fmt::format("{}: byte {}", where, i),
            fmt::format("nests deeper than {} levels; no document of this kind does", kDeepest));
      }
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
}

}  // namespace stepcast
