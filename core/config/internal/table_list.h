#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/config/internal/document.h"

namespace stepcast::config {

/// What some programs put before a text in UTF-8.
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// Is this a list of embedding tables: separated by commas, semicolons or tabs, with a header that
/// has name, rows and dim, in our words or those of other tools?
bool is_table_list(std::string_view text);

struct TableList {
  Json root = Json::object();       ///< {"table_list": [tables as a workload has them]}
  std::vector<std::string> places;  ///< of each table, for messages: "t.csv:3: table \"a\""
};
/// A list of embedding tables, read on by import_embedding_tables.cpp. Columns: name, rows, dim,
/// and optionally pooling, mode, zipf, histogram, indices (the last three are the table's access;
/// a cell may be empty), in any case and under the names of docs/reference/table-files.md. A byte
/// order mark, blank lines and lines that begin with # are skipped. Errors: InputError naming line,
/// table and column.
TableList table_list(const Source& source);

}  // namespace stepcast::config
