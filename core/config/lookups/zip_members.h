#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "core/input/input.h"

namespace stepcast::config {

/// Calls `use` for each member of a zip archive, in the order of the file, until it returns false.
/// The archive may itself be compressed (x.pt.gz). Memory does not grow with the archive. Errors:
/// InputError when it is damaged, cut or encrypted.
void each_zip_member(const std::filesystem::path& file,
                     const std::function<bool(const std::string& member, Input& input)>& use);

}  // namespace stepcast::config
