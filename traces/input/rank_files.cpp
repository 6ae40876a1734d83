#include "traces/input/rank_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <system_error>
#include <vector>

#include "core/error.h"
#include "core/whole_file.h"

namespace stepcast::traces {
namespace fs = std::filesystem;

void write_rank_files(const fs::path& folder, std::string_view stem, std::string_view extension,
                      std::span<const std::int32_t> ranks,
                      const std::function<std::string(std::size_t)>& text_of) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) {
    throw InputError(folder.string(), "cannot be made: " + failure.message());
  }
  std::set<std::string> names;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::string name = fmt::format("{}{}{}", stem, ranks[i], extension);
    write_whole_file(folder / name, text_of(i));
    names.insert(name);
  }
  std::vector<fs::path> stale;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.size() > stem.size() + extension.size() && name.starts_with(stem) &&
                      name.ends_with(extension) &&
                      std::all_of(name.begin() + static_cast<std::ptrdiff_t>(stem.size()),
                                  name.end() - static_cast<std::ptrdiff_t>(extension.size()),
                                  [](unsigned char c) { return std::isdigit(c) != 0; });
    if (ours && !names.contains(name)) {
      stale.push_back(entry.path());
    }
  }
  for (const fs::path& file : stale) {
    fs::remove(file, failure);
  }
}

}  // namespace stepcast::traces
