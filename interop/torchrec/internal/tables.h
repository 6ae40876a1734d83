#pragma once
#include "interop/embedding_tables/described_tables.h"

namespace stepcast::interop::torchrec {

/// Tables, constraints and topology under the keys of docs/reference/table-files.md.
Described described_tables(const Value& v);

}  // namespace stepcast::interop::torchrec
