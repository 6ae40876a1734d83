#pragma once
#include <array>
#include <string>
#include <string_view>

/// The few pieces of SVG that pictures are made of. No scripts, no fonts of their own; positions
/// across in per cent of the picture, down in pixels, to a tenth, so that the same numbers give the
/// same bytes.
namespace stepcast::cli::report::svg {

/// Colours of groups, in order; they repeat. Names of the page's palette (style.h).
inline constexpr std::array kColours{"var(--c1)", "var(--c2)", "var(--c3)",
                                     "var(--c4)", "var(--c5)", "var(--c6)",
                                     "var(--c7)", "var(--c8)", "var(--c9)"};
inline constexpr std::string_view kText = "var(--text)";
inline constexpr std::string_view kFaint = "var(--faint)";
inline constexpr std::string_view kGrid = "var(--line)";
inline constexpr std::string_view kNoChoice = "var(--c10)";  ///< what does not fit

/// Text as it may stand in SVG and HTML, also inside quoted attributes.
std::string escaped(std::string_view text);
/// `anchor`: start, middle or end.
std::string text(double x, double y, std::string_view what, const char* anchor = "middle");
std::string line(double x1, double y1, double x2, double y2, std::string_view colour,
                 double width = 1);
/// Filled; `title` shows under the pointer.
std::string bar(double x, double y, double width, double height, std::string_view colour,
                std::string_view title);
/// Hollow where not filled.
std::string dot(double x, double y, double radius, std::string_view colour, bool filled,
                std::string_view title);

}  // namespace stepcast::cli::report::svg
