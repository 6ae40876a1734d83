#include "traces/input/gzip.h"

#include "core/input/archive.h"
#include "core/whole_file.h"

namespace stepcast::traces {

void write_by_extension(const std::filesystem::path& file, std::string_view text) {
  write_whole_file(file, file.extension() == ".gz" ? gzipped(text) : std::string(text));
}

}  // namespace stepcast::traces
