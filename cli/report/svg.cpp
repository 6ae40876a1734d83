#include "cli/report/svg.h"

#include <fmt/format.h>

namespace stepcast::cli::report::svg {
namespace {

std::string titled(std::string_view title) {
  return title.empty() ? "" : fmt::format("<title>{}</title>", escaped(title));
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string text(double x, double y, std::string_view what, const char* anchor) {
  return fmt::format("<text x=\"{:.1f}%\" y=\"{:.0f}\" text-anchor=\"{}\">{}</text>\n", x, y,
                     anchor, escaped(what));
}

std::string line(double x1, double y1, double x2, double y2, std::string_view colour,
                 double width) {
  return fmt::format(
      "<line x1=\"{:.1f}%\" y1=\"{:.1f}\" x2=\"{:.1f}%\" y2=\"{:.1f}\" stroke=\"{}\"{}/>\n", x1, y1,
      x2, y2, colour, width == 1 ? "" : fmt::format(" stroke-width=\"{}\"", width));
}

std::string bar(double x, double y, double width, double height, std::string_view colour,
                std::string_view title) {
  return fmt::format(
      "<rect x=\"{:.2f}%\" y=\"{:.1f}\" width=\"{:.2f}%\" height=\"{:.1f}\" "
      "fill=\"{}\">{}</rect>\n",
      x, y, width, height, colour, titled(title));
}

std::string dot(double x, double y, double radius, std::string_view colour, bool filled,
                std::string_view title) {
  return fmt::format(
      "<circle cx=\"{:.1f}%\" cy=\"{:.1f}\" r=\"{:.1f}\" fill=\"{}\" stroke=\"{}\">{}</circle>\n",
      x, y, radius, filled ? colour : "none", colour, titled(title));
}

}  // namespace stepcast::cli::report::svg
