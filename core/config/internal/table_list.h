#pragma once
#include <string_view>

#include "core/config/internal/document.h"

namespace stepcast::config {

/// Is this a list of embedding tables: comma-separated, with a header that has name, rows and dim?
bool is_table_list(std::string_view text);
/// {"table_list": [tables as a workload has them]}, read by import_embedding_tables.cpp. Columns:
/// name, rows, dim, and where wanted pooling, mode, zipf, histogram, indices (the last three are
/// the table's access; a cell may be empty). Blank lines and lines that begin with # are skipped.
/// Errors: InputError naming line and column.
Json table_list(const Source& source);

}  // namespace stepcast::config
