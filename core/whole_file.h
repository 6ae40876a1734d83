#pragma once
#include <filesystem>
#include <string_view>

namespace stepcast {

/// Writes a file so that it appears whole or not at all: under a temporary name first, then
/// renamed. Replaces a file of that name; makes no folder. Errors: InputError naming the file when
/// it cannot be written; nothing is left behind then.
void write_whole_file(const std::filesystem::path& file, std::string_view text);

}  // namespace stepcast
