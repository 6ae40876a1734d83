#pragma once
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"

namespace stepcast::cli {

struct ExportedFile {
  std::string path, text;
};

/// Rejects, before the search, an `--export` for recommendation models whose files could not be
/// written, that names no known system, or one that cannot hold the job's tables. Errors:
/// InputError.
void expect_exportable(const std::string& option, const Job& job);

/// The files of `--export torchrec=FILE` or `hugectr=FILE`: the plan in that system's form, and the
/// script that hands it over, FILE with .py in place of .json. Empty for an empty option. Errors:
/// InputError for other names and for what the system cannot express.
std::vector<ExportedFile> exported_plan(const std::string& option, const Job& job,
                                        const EmbeddingPlan& plan);

}  // namespace stepcast::cli
