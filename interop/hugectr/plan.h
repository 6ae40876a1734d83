#pragma once
#include <string>

#include "core/config/config.h"

/// Embedding plans as HugeCTR reads them. docs/reference/table-files.md shows the files.
namespace stepcast::interop {

/// HugeCTR's embedding collection plan as JSON: shard_matrix (tables of each GPU) and
/// shard_strategy ("mp" with the number of column parts where there are several, "dp"). A table on
/// k GPUs has row r on the GPU r mod k of them.
///
/// Errors: InputError naming the table, as above; and for rows in blocks, and column parts that do
/// not share their ranks evenly.
std::string plan_to_hugectr(const Job& job, const EmbeddingPlan& plan);
std::string hugectr_loader(const std::string& plan_file);

}  // namespace stepcast::interop
