#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/input/input.h"

namespace stepcast {

/// Bytes to which a gzip file (also of several members) or a zstd file unpacks. `gzip`: which it
/// is.
/// Errors: InputError "file: byte N", N of the file, where it is cut or damaged. Sums are checked,
/// but not those of several gzip members.
std::unique_ptr<ByteSource> unpacked(const std::filesystem::path& file, bool gzip);

/// True when the next bytes are the header of a tar archive.
bool is_tar(Input& input);
bool is_zip(Input& input);
/// Calls `use` for each regular file of a zip or tar archive, which may itself be compressed
/// (x.tar.gz), in its order, until it returns false. Labels are "archive/member"; members that
/// macOS adds ("._name") are passed over. Memory does not grow with the archive. Errors: InputError
/// where it is damaged, cut or encrypted.
void each_member(const std::filesystem::path& file,
                 const std::function<bool(const std::string& member, Input& input)>& use);

/// A gzip member that holds the text; the same text gives the same bytes.
std::string gzipped(std::string_view text);
/// A zip archive of members by name, not compressed.
std::string zipped(const std::vector<std::pair<std::string, std::string>>& members);

}  // namespace stepcast
