#pragma once
#include <filesystem>
#include <string_view>

namespace stepcast {

/// Writes a file so that it appears whole or not at all: under a name of its own in the same folder
/// first, then renamed. Replaces a file of that name and keeps its permissions; follows symbolic
/// links to what they name, which need not exist; makes no folder. What is no regular file (a
/// device, a FIFO) is written to as it is: it cannot be replaced, only filled.
/// Errors: InputError naming the file when it cannot be written; nothing is left behind then.
void write_whole_file(const std::filesystem::path& file, std::string_view text);

}  // namespace stepcast
