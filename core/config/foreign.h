#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/config/document.h"

namespace stepcast::config {

/// A kind of file that another tool writes and that may stand where a job, a workload or an
/// embedding plan is named. A Library carries them; interop/formats.h lists those there are.
struct ForeignFormat {
  std::string_view what;  ///< "arguments of Megatron-LM"
  /// One of the two tells it: its text, which is then no JSON, or the keys of its JSON.
  bool (*inferred_by_text)(std::string_view text) = nullptr;
  bool (*inferred_by_keys)(const Json& root) = nullptr;
  /// Translation into our words; null where the file says nothing of the kind. The document that is
  /// given holds its JSON, or all of its text as one JSON string. Errors: InputError naming file,
  /// key and remedy.
  ///
  /// A job without a system. What `overrides` set, the file need not say. Without this function the
  /// job has the workload and nothing else.
  Document (*job_of)(Document file, const std::vector<std::string>& overrides) = nullptr;
  Document (*workload_of)(Document file) = nullptr;
  /// Tables and sizes come from the job. check_plan still has to hold.
  EmbeddingPlan (*plan_of)(const Value& root, const Job& job) = nullptr;

  [[nodiscard]] bool describes_model() const { return job_of != nullptr || workload_of != nullptr; }
};

/// Contents of a source, parsed, and their format; null for a file of ours.
struct OpenedSource {
  Document document;
  const ForeignFormat* format = nullptr;
};
enum class Expected { kModel, kPlan };
/// `expected`: which of the library's formats are looked for. Errors: as parse_document.
OpenedSource open_source(const Source& source, Expected expected, const Library& library);

/// True if it says a job of ours, not a workload alone. Errors: as open_source.
bool holds_job(const Source& source, const Library& library);

/// Features that the workload of a file leaves out or simplifies, each as a phrase:
/// "fp32_bytes (passed over)". Errors: as load_job.
std::vector<std::string> approximated(const Source& source, const Library& library);

/// The workload of a value in our words. Errors: InputError naming place, value and expectation.
Workload workload_from(const Value& v);

}  // namespace stepcast::config
