#pragma once
#include <string>
#include <string_view>

namespace stepcast::cli::report {

// Generated (palette.cpp.in): the colours of bindings/web/page/style.css, light and dark, by the
// names that svg.h uses.
extern const std::string_view kPalette;

/// A whole page of these chapters.
std::string page(std::string_view title, std::string_view chapters);
/// The same inside another page: one element with a style of its own.
std::string fragment(std::string_view chapters);

}  // namespace stepcast::cli::report
