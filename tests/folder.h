#pragma once
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/temporary_folder.h"

namespace stepcast::fixtures {

/// A fresh folder, removed with everything in it when the test ends.
class Folder : public TemporaryFolder {
 public:
  Folder() : TemporaryFolder("stepcast-test") {}
  std::string operator/(const std::string& name) const { return path() / name; }
  /// Writes a file and returns its path.
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(path() / name, std::ios::binary) << text;
    return path() / name;
  }
};

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace stepcast::fixtures
