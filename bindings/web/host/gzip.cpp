#include "traces/input/gzip.h"

#include "core/whole_file.h"

namespace stepcast::traces {

std::string gzipped(std::string_view text) { return std::string(text); }

/// The browser compresses what it stores.
void write_by_extension(const std::filesystem::path& file, std::string_view text) {
  write_whole_file(file, text);
}

}  // namespace stepcast::traces
