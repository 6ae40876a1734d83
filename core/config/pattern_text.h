#pragma once
#include <span>
#include <string>

namespace stepcast::config {

/// The key `pattern` of layers that are a word each, with what repeats next to itself written once:
/// {"a", "b", "a", "b", "c"} is "2 x (a b) c". The last, partial turn of a pattern is left out, as
/// patterns go over and over.
std::string pattern_text(std::span<const std::string> layers);

}  // namespace stepcast::config
