#include "cli/report/style.h"

#include <fmt/format.h>

#include "cli/report/svg.h"

namespace stepcast::cli::report {
namespace {

/// The style of the element that holds the chapters, by its selector: the page's palette and
/// look.
std::string style(std::string_view element) {
  return fmt::format(
      "{0}{{{2}font:15px/1.45 system-ui,sans-serif;max-width:1000px;margin:1.2rem auto;"
      "padding:0 1.2rem;color:var(--text);background:var(--page)}}"
      "{1}h1{{font-size:1.25rem}}{1}h2{{font-size:1.02rem;margin:0 0 .6rem}}"
      "{1}section{{background:var(--panel);border:1px solid var(--line);border-radius:8px;"
      "padding:.9rem 1rem;margin-top:1rem;overflow:auto}}"
      "{1}svg{{display:block;margin:1em 0;max-width:100%;height:auto}}{1}svg "
      "text{{fill:var(--text)}}"
      "{1}table{{border-collapse:collapse;font-size:.87rem}}"
      "{1}td,{1}th{{padding:.22rem .5rem;text-align:right;border-top:1px solid var(--line)}}"
      "{1}th{{color:var(--faint)}}{1}td:first-child,{1}th:first-child{{text-align:left}}"
      "{1}.source{{color:var(--faint);font-size:.82rem}}",
      element, element == "body" ? "" : std::string(element) + " ", kPalette);
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
