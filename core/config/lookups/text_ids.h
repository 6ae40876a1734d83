#pragma once
#include <cstdint>
#include <string>

#include "core/config/lookups/id_sink.h"
#include "core/input/input.h"

namespace stepcast::config {

/// True if these first bytes of a file look like UTF-8 text.
bool looks_like_text(std::string_view head);
/// The same of a whole text, whose last character is not cut.
bool is_text(std::string_view whole);

/// Row ids of a text. A line holds one, or several separated by commas, semicolons or tabs; or
/// lines have columns and `column` names one: by the header, by number from 0, or C1 to C26 (also
/// I1 to I13) of a Criteo click log. A header, blank lines, lines that begin with # and a byte
/// order mark are no ids. Values of eight hexadecimal digits are hashed categories, taken modulo
/// `rows` where that is above 0; one that is missing is 0. Errors: InputError naming file, line and
/// column.
struct TextColumn {
  std::string column;  ///< empty: the only one
  std::int64_t rows = 0;
};
void stream_text_ids(Input& input, const TextColumn& wanted, IdSink& to);

}  // namespace stepcast::config
