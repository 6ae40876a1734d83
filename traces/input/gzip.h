#pragma once
#include <filesystem>
#include <string_view>

namespace stepcast::traces {

/// write_whole_file, compressed where the name ends in ".gz".
void write_by_extension(const std::filesystem::path& file, std::string_view text);

}  // namespace stepcast::traces
