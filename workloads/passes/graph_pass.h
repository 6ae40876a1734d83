#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/job/job.h"
#include "core/units.h"
#include "workloads/passes/draft.h"

namespace stepcast::workloads {

/// A rewriting of the graph that a builder wrote: one property of a plan, in one file.
struct GraphPass {
  std::string_view name;
  std::string_view what;  ///< in one line
  /// True if the job asks for it.
  bool (*applies)(const Job& job);
  void (*run)(GraphUnderConstruction& draft, const Job& job);
  /// Promise of the pass that a graph after it breaks; nullopt: none.
  std::optional<std::string> (*verify)(const GraphUnderConstruction& draft);
  /// Rewrites what a step needs if the pass is off; nullptr: nothing.
  void (*without)(GraphUnderConstruction& draft, const Job& job) = nullptr;
};

/// All passes, in the order in which they run.
std::span<const GraphPass> graph_passes();

struct PassRun {
  std::string_view name;
  Seconds time;  ///< of the host; its verifier apart
};
struct PassOptions {
  std::vector<std::string_view> off{};  ///< names of passes that do not run
  bool replace = true;                  ///< by GraphPass::without
#ifdef NDEBUG
  bool verify = false;
#else
  bool verify = true;
#endif
};
/// Runs the passes that the job asks for. Errors: InternalError naming the pass whose verifier
/// finds fault with the graph.
std::vector<PassRun> run_passes(GraphUnderConstruction& draft, const Job& job,
                                const PassOptions& options = {});

}  // namespace stepcast::workloads
