#include "core/config/lookups/zip_members.h"

#include "core/error.h"

namespace stepcast::config {

void each_zip_member(const std::filesystem::path& file,
                     const std::function<bool(const std::string& member, Input& input)>& /*use*/) {
  throw InputError(file.string(),
                   "is a zip archive, which the page does not open; unpack it, or use the "
                   "executable");
}

}  // namespace stepcast::config
