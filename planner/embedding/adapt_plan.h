#pragma once
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"

namespace stepcast::planner {

/// A plan in use, carried over to a job that has other tables or other devices.
struct AdaptedPlan {
  EmbeddingPlan plan;  ///< of the job
  /// Tables by name: new to the plan or of another size, with more rows than before, no longer in
  /// the job, and those whose placement does not exist on the job's devices.
  std::vector<std::string> added, grown, removed, moved;
  [[nodiscard]] bool as_it_was() const {
    return added.empty() && grown.empty() && removed.empty() && moved.empty();
  }
};

/// Keeps every table where it is if that exists on the job's devices; one that has grown keeps its
/// rows and takes more (grown_to of planner/embedding/migration.h). Tables new to the plan stand
/// where the rule `auto` puts them. On other devices: what was on all ranks, or spread over all, is
/// so again; copies of every group of g ranks stay so where g divides the devices; what lay on
/// ranks that are left stays; parts on ranks that no longer exist go to those that hold least;
/// groups of rows that are no longer whole are spread over all ranks. A place to start a search
/// from (planner/embedding/replan.h), not an answer. Errors: InputError as
/// workloads::check_embedding_plan.
AdaptedPlan adapted_plan(const Job& job, const EmbeddingPlan& from);

}  // namespace stepcast::planner
