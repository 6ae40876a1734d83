#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace stepcast::config {

/// The candidate that `found` is a usual shorthand of ("tp" of "tensor") or, from four letters on,
/// the beginning of; else the closest one by edit distance (insert, delete, replace, swap of
/// neighbours; case ignored), else one that begins with `found`, contains it, or abbreviates it
/// ("bf16" for "bfloat16"); empty when none does. Ties go to the first candidate.
std::string nearest_name(std::string_view found, const std::vector<std::string>& candidates);

/// The key of a job that people call so ("tp": "tensor"); "" for any other word.
std::string_view meant_by_shorthand(std::string_view word);

/// "a", "a or b", "a, b or c"; at most `limit` names, then "...".
std::string list_of(const std::vector<std::string>& names, std::size_t limit = 24);

/// How an unknown name is reported: `did you mean "x"? (one of a, b or c)`, without the question
/// when nothing is near.
std::string suggestion(std::string_view found, const std::vector<std::string>& candidates);

}  // namespace stepcast::config
