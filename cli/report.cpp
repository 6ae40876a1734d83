#include "cli/command.h"
#include "cli/report/chapters.h"
#include "cli/report/style.h"
#include "cli/support/output_files.h"
#include "core/error.h"
#include "core/json_text.h"

namespace stepcast::cli {
namespace {

struct ReportCommand {
  std::vector<std::string> inputs;
  std::string html;
  std::string title;
};

report::Document read_document(const std::string& file) {
  const std::string text = read_document_text(file);
  expect_shallow_json(text, file);
  report::Document document{file, nlohmann::ordered_json::parse(text, nullptr, false)};
  if (document.json.is_discarded()) {
    throw InputError(file, "is not JSON; expected what one of these printed with --format json: " +
                               report::known_documents());
  }
  return document;
}

void write_report(const ReportCommand& options) {
  std::vector<report::Document> documents;
  for (const std::string& input : options.inputs) {
    documents.push_back(read_document(input));
  }
  write_output(options.html,
               report::page(options.title.empty() ? report::title_of(documents) : options.title,
                            report::chapters_of(documents)));
}

}  // namespace

void add_report(CLI::App& app, Context&) {
  auto options = std::make_shared<ReportCommand>();
  CLI::App* command = app.add_subcommand(
      "report", "One self-contained page of pictures from what other commands printed as JSON");
  command
      ->add_option("inputs", options->inputs,
                   "Documents printed with --format json by " + report::known_documents())
      ->required();
  command->add_option("--html", options->html, "The page to write")
      ->required()
      ->check(output_file());
  command->add_option("--title", options->title, "Its title");
  command->callback([options] { write_report(*options); });
}

}  // namespace stepcast::cli
