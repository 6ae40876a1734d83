#include "traces/native/internal/trace_folder.h"

#include <algorithm>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/error.h"

namespace stepcast::traces::internal {
namespace {

namespace fs = std::filesystem;

bool is_rank_file(const fs::path& file) {
  const std::string stem = file.stem().string();
  constexpr std::string_view kBegin = "rank-";
  return file.extension() == ".csv" && stem.starts_with(kBegin) && stem.size() > kBegin.size() &&
         std::all_of(stem.begin() + kBegin.size(), stem.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

/// The manifest, then the rank files.
std::vector<fs::path> files_of_trace(const fs::path& folder, const char* manifest) {
  std::vector<fs::path> files;
  if (fs::is_regular_file(folder / manifest)) {
    files.push_back(folder / manifest);
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (is_rank_file(entry.path())) {
        files.push_back(entry.path());
      }
    }
  }
  return files;
}

}  // namespace

void refuse_other_form(const fs::path& folder, const char* own) {
  const char* other = own == std::string_view(kTraceManifest) ? kRecordingManifest : kTraceManifest;
  if (fs::exists(folder / other)) {
    throw InputError(folder.string(),
                     fmt::format("holds a trace of another form already ({}); name another folder, "
                                 "or remove it",
                                 other));
  }
}

void begin_folder(const fs::path& folder, const char* own) {
  try {
    fs::create_directories(folder);
    refuse_other_form(folder, own);
    for (const fs::path& file : files_of_trace(folder, own)) {
      fs::remove(file);
    }
  } catch (const fs::filesystem_error& e) {
    throw InputError(folder.string(), "cannot be written: " + e.code().message());
  }
}

}  // namespace stepcast::traces::internal
