#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/error.h"

namespace stepcast {

/// A folder of its own, readable by its owner only and of a name nobody can foresee (mkdtemp); it
/// goes with the object. Errors: EnvironmentError when none can be made.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(std::string_view prefix) {
    std::string name =
        (std::filesystem::temp_directory_path() / (std::string(prefix) + "-XXXXXX")).string();
    if (mkdtemp(name.data()) == nullptr) {
      throw EnvironmentError(std::filesystem::temp_directory_path().string() +
                             ": no folder can be made there; set TMPDIR to a place with room");
    }
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace stepcast
