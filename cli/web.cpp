#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/command.h"
#include "cli/support/output_files.h"
#include "core/error.h"

namespace stepcast::cli {
namespace {

namespace fs = std::filesystem;

/// With the other data files of a package; in the source tree where scripts/web writes it.
fs::path find_page(const fs::path& root) {
  for (const fs::path& page :
       {root / "web" / "index.html", root / "build" / "web" / "index.html"}) {
    if (fs::is_regular_file(page)) {
      return page;
    }
  }
  throw EnvironmentError(
      "the page for browsers is not part of this build; build it with scripts/web (needs "
      "Emscripten: scripts/setup --web)");
}

}  // namespace

void add_web(CLI::App& app, Context& context) {
  auto folder = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "web", "Write the page that predicts, plans and explains in a browser, without a server");
  command->add_option("--out", *folder, "Folder for index.html, which any browser opens")
      ->required()
      ->check(output_folder());
  command->callback([folder, &context] {
    std::ifstream page(find_page(context.library.root), std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(page), {});
    fs::create_directories(*folder);
    write_output(fs::path(*folder) / "index.html", text);
  });
}

}  // namespace stepcast::cli
