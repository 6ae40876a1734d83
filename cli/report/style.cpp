#include "cli/report/style.h"

#include <fmt/format.h>

#include "cli/report/svg.h"

namespace stepcast::cli::report {
namespace {

/// Of the element that holds the chapters, by its selector.
std::string style(std::string_view element) {
  return fmt::format(
      "{0}{{font-family:sans-serif;max-width:960px;margin:2em auto;color:#222;background:#fff}}"
      "{1}section{{margin:2em 0;border-top:1px solid #ccc}}{1}svg{{display:block;margin:1em "
      "0;max-width:100%;height:auto}}{1}table{{border-collapse:collapse;font-size:13px}}"
      "{1}td,{1}th{{padding:2px 8px;text-align:right;border-bottom:1px solid #eee}}"
      "{1}td:first-child,{1}th:first-child{{text-align:left}}"
      "{1}.source{{color:#777;font-size:12px}}",
      element, element == "body" ? "" : std::string(element) + " ");
}

}  // namespace

std::string page(std::string_view title, std::string_view chapters) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>"
      "<style>{1}</style></head>\n<body>\n<h1>{0}</h1>\n{2}</body></html>\n",
      svg::escaped(std::string(title)), style("body"), chapters);
}

std::string fragment(std::string_view chapters) {
  return fmt::format("<style>{}</style><div class=\"stepcast\">{}</div>", style(".stepcast"),
                     chapters);
}

}  // namespace stepcast::cli::report
