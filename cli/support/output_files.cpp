#include "cli/support/output_files.h"

#include <fmt/ostream.h>

#include <cstdio>

#include "cli/support/console.h"
#include "core/whole_file.h"

namespace stepcast::cli {
namespace {

CLI::Validator checked(void (*check)(const std::filesystem::path&), const char* kind) {
  return CLI::Validator(
      [check, kind](std::string& text) {
        if (text.empty()) {
          return fmt::format("found '', expected the name of a {}", kind);
        }
        check(text);
        return std::string();
      },
      "");
}

}  // namespace

CLI::Validator output_file() { return checked(expect_writable, "file"); }
CLI::Validator output_folder() { return checked(expect_writable_folder, "folder"); }

void write_output(const std::filesystem::path& file, std::string_view text) {
  write_whole_file(file, text);
  tell_written(file);
}

void tell_written(const std::filesystem::path& path) {
  fmt::print(notes(), "stepcast: {} written\n", path.string());
}

}  // namespace stepcast::cli
