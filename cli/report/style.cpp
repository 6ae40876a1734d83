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
      "{1}figure{{margin:1em 0}}{1}figcaption,{1}h3{{font-weight:600;font-size:.95rem;margin:.8rem "
      "0 "
      ".3rem}}"
      "{1}svg{{display:block;overflow:visible}}{1}svg text{{fill:var(--text)}}"
      "{1}.legend{{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem "
      "1rem;padding:0;margin:.3rem 0 .5rem;font-size:.87rem}}"
      "{1}.legend i{{display:inline-block;width:.75rem;height:.75rem;margin-right:.35rem}}"
      "{1}.facts{{display:flex;flex-wrap:wrap;gap:.6rem 2rem;margin:.6rem 0}}"
      "{1}dt,{1}small{{color:var(--faint);font-size:.82rem;font-weight:400}}{1}small{{display:"
      "block}}"
      "{1}dd{{margin:0;font-size:1.45rem;font-weight:650}}"
      "{1}pre{{background:var(--page);border:1px solid var(--line);padding:.5rem "
      ".7rem;white-space:pre-wrap;overflow-wrap:anywhere;font-size:.8rem}}"
      "{1}.scroll{{overflow:auto;max-height:28rem}}"
      "{1}table{{border-collapse:collapse;font-size:.87rem}}"
      "{1}td,{1}th{{padding:.22rem .5rem;text-align:left;border-top:1px solid "
      "var(--line);vertical-align:top}}"
      "{1}th{{color:var(--faint)}}{1}.n{{text-align:right;white-space:nowrap;font-variant-numeric:"
      "tabular-nums}}"
      "{1}.warning{{background:var(--warn);border-left:4px solid var(--warn-line);padding:.4rem "
      ".7rem}}"
      "{1}.source{{color:var(--faint);font-size:.82rem}}",
      element, element == "body" ? "" : std::string(element) + " ", kPalette);
}

}  // namespace

std::string page(std::string_view title, std::string_view chapters) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta "
      "name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{0}</title>"
      "<style>{1}</style></head>\n<body>\n<header><h1>{0}</h1></header>\n<main>\n{2}</main>\n"
      "</body></html>\n",
      svg::escaped(std::string(title)), style("body"), chapters);
}

std::string fragment(std::string_view chapters) {
  return fmt::format("<style>{}</style><div class=\"stepcast\">{}</div>", style(".stepcast"),
                     chapters);
}

}  // namespace stepcast::cli::report
