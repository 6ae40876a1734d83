#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace stepcast::traces {

/// A gzip member that holds the text; the same text gives the same bytes.
std::string gzipped(std::string_view text);
/// write_whole_file, compressed where the name ends in ".gz".
void write_by_extension(const std::filesystem::path& file, std::string_view text);

}  // namespace stepcast::traces
