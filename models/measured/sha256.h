#pragma once
#include <filesystem>
#include <string>

namespace stepcast::models {

/// SHA-256 of a file as stored, 64 hexadecimal digits (what `sha256sum` prints): which data a fit
/// was made from. Source: FIPS 180-4. Errors: InputError for a file that cannot be read.
std::string sha256_of_file(const std::filesystem::path& file);

}  // namespace stepcast::models
