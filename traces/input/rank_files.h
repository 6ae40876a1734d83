#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace stepcast::traces {

/// Writes a file for each rank of a run into a folder, made where it is missing: stem, rank,
/// extension ("rank-3.json"). Files of such names that are of no rank of this run were left by
/// another one and are removed: a folder is one run. `text_of` gives the i-th rank's text.
/// Errors: InputError when the folder cannot be made, and those of write_whole_file.
void write_rank_files(const std::filesystem::path& folder, std::string_view stem,
                      std::string_view extension, std::span<const std::int32_t> ranks,
                      const std::function<std::string(std::size_t)>& text_of);

}  // namespace stepcast::traces
