#include "core/input/archive.h"

#include "core/error.h"

namespace stepcast {

bool is_zip(Input& /*input*/) { return false; }

void each_member(const std::filesystem::path& file,
                 const std::function<bool(const std::string& member, Input& input)>& /*use*/) {
  throw InputError(file.string(),
                   "is an archive, which the page does not open; unpack it, or use the executable");
}

/// The browser compresses what it stores.
std::string gzipped(std::string_view text) { return std::string(text); }

}  // namespace stepcast
