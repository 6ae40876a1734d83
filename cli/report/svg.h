#pragma once
#include <array>
#include <string>
#include <string_view>

/// The few pieces of SVG that pictures are made of. No scripts, no fonts of their own; coordinates
/// in pixels, to a tenth, so that the same numbers give the same bytes.
namespace stepcast::cli::report::svg {

/// Colours of groups, in order; they repeat.
inline constexpr std::array kColours{"#1f6fb4", "#d1495b", "#2e8b57", "#b8860b",
                                     "#6a4c93", "#008b8b", "#8b4513", "#555555"};

/// Text as it may stand in SVG and HTML, also inside quoted attributes.
std::string escaped(std::string_view text);
/// `anchor`: start, middle or end.
std::string text(double x, double y, std::string_view what, const char* anchor = "middle");
std::string line(double x1, double y1, double x2, double y2, const char* colour);
/// Filled; `title` shows under the pointer.
std::string bar(double x, double y, double width, double height, const char* colour,
                std::string_view title);
/// Hollow where not filled.
std::string dot(double x, double y, double radius, const char* colour, bool filled,
                std::string_view title);
std::string frame(double x, double y, double width, double height);

}  // namespace stepcast::cli::report::svg
