#include "core/whole_file.h"

#include <fstream>
#include <system_error>

#include "core/error.h"

namespace stepcast {

void write_whole_file(const std::filesystem::path& file, std::string_view text) {
  const std::filesystem::path part = file.string() + ".part";
  std::ofstream out(part, std::ios::binary);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.close();
  std::error_code failure;
  if (out) {
    std::filesystem::rename(part, file, failure);
    if (!failure) {
      return;
    }
  }
  std::error_code ignored;
  std::filesystem::remove(part, ignored);
  throw InputError(file.string(),
                   failure ? fmt::format("cannot be written: {}", failure.message())
                           : "cannot be written; check that the folder exists and has room");
}

}  // namespace stepcast
