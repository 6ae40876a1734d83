#pragma once
#include <string>
#include <string_view>

namespace stepcast::cli::report {

/// A whole page of these chapters.
std::string page(std::string_view title, std::string_view chapters);
/// The same inside another page: one element with a style of its own.
std::string fragment(std::string_view chapters);

}  // namespace stepcast::cli::report
