#include <fmt/format.h>

#include <iostream>

#include "cli/command.h"
#include "cli/report/chapters.h"
#include "cli/report/svg.h"
#include "cli/support/output_files.h"
#include "core/error.h"
#include "core/json_text.h"

namespace stepcast::cli {
namespace {

struct ReportCommand {
  std::vector<std::string> inputs;
  std::string html;
  std::string title = "stepcast";
};

constexpr const char* kStyle =
    "body{font-family:sans-serif;max-width:960px;margin:2em auto;color:#222;background:#fff}"
    "section{margin:2em 0;border-top:1px solid #ccc}svg{display:block;margin:1em 0;max-width:100%;"
    "height:auto}table{border-collapse:collapse;font-size:13px}td,th{padding:2px 8px;text-align:"
    "right;border-bottom:1px solid #eee}td:first-child,th:first-child{text-align:left}"
    ".source{color:#777;font-size:12px}";

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
  const std::string title = report::svg::escaped(options.title);
  write_output(options.html,
               fmt::format("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                           "<title>{0}</title><style>{1}</style></head>\n<body>\n<h1>{0}</h1>\n{2}"
                           "</body></html>\n",
                           title, kStyle, report::chapters_of(documents)));
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
