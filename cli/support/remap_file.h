#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"

namespace stepcast::cli {

/// Row order of one table of a plan, to deploy: `row_of_id[id]` is the row of the plan that
/// holds the row of that id.
struct RowRemap {
  std::string table;
  std::vector<std::int64_t> row_of_id;
};

/// Row remaps of every table that a plan stores in order of popularity. Errors: InputError where
/// there is no such table, and for one whose rows have no ids (a histogram).
std::vector<RowRemap> row_remaps(const Job& job, const EmbeddingPlan& plan);

/// `file` can hold remaps of that many tables: FILE.npy one, FILE.npz any number. Errors:
/// InputError.
void expect_remap_file(const std::filesystem::path& file, std::size_t tables);
/// Writes them as NumPy reads them, little-endian int64: FILE.npy of one table, FILE.npz with an
/// array per table, by name. The file appears whole or not at all, and is named on the error
/// stream.
void write_remaps(const std::filesystem::path& file, const std::vector<RowRemap>& remaps);

}  // namespace stepcast::cli
