#include "core/config/default_framework.h"
#include "core/config/internal/loaders.h"

namespace stepcast::config {
namespace {

/// A plan of a transformer carries the job it is the plan of, an answer of `predict` its own.
bool names_job(const Json& root) {
  return root.is_object() && !root.contains("workload") && root.contains("job") &&
         root.at("job").is_object();
}

bool is_embedding_plan(const Json& root) {
  return root.is_object() && root.value("kind", Json()) == "embedding" && root.contains("tables");
}
bool is_workload(const Json& root) {
  return root.is_object() && root.contains("kind") && !root.contains("workload");
}

/// Throws where a file describes hardware, which a job is predicted on.
void reject_hardware(const Document& d) {
  if (!d.root.is_object() || d.root.contains("workload")) {
    return;
  }
  if (d.root.contains("fabric")) {
    throw InputError(d.label, fmt::format("is a system, not a job; name a model and predict it "
                                          "there: `stepcast llama3-8b --on {}`",
                                          quoted_setting(d.label)));
  }
  if (d.root.contains("memory") && d.root.contains("peak")) {
    throw InputError(d.label, "is a device, not a job; a system names it as its `device`, and a "
                              "model is predicted there: `stepcast llama3-8b --on SYSTEM.json`");
  }
}

}  // namespace

/// A job of ours, of a parallel plan, of a workload that stands alone, or what a foreign file says
/// of one; `overrides` are applied later.
Document job_document(const Source& source, const std::vector<std::string>& overrides,
                      const Library& library) {
  OpenedSource opened = open_source(source, Expected::kModel, library);
  Document d = std::move(opened.document);
  if (opened.format != nullptr) {
    if (opened.format->job_of != nullptr) {
      return opened.format->job_of(std::move(d), overrides);
    }
    d = opened.format->workload_of(std::move(d));
  }
  if (d.root.is_object() && !d.root.contains("workload") && d.root.contains("plans") &&
      d.root["plans"].is_array() && !d.root["plans"].empty()) {  // an answer of `plan`: its best
    Json best = std::move(d.root["plans"].front());
    d.root = std::move(best);
  }
  if (names_job(d.root)) {
    Json job = std::move(d.root["job"]);
    d.root = std::move(job);
    d.label += ": job";
    return d;
  }
  if (is_embedding_plan(d.root)) {
    throw InputError(d.label, fmt::format("is an embedding plan, not a job; give the job it is for "
                                          "and --set embedding.plan={}",
                                          d.label));
  }
  reject_hardware(d);
  if (opened.format != nullptr || is_workload(d.root)) {
    Json job = Json::object();
    job["workload"] = std::move(d.root);
    d.root = std::move(job);
  }
  return d;
}

bool holds_job(const Source& source, const Library& library) {
  const OpenedSource opened = open_source(source, Expected::kModel, library);
  const Json& root = opened.document.root;
  return opened.format == nullptr &&
         (names_job(root) || (root.is_object() && root.contains("workload")));
}

std::vector<std::string> approximated(const Source& source, const Library& library) {
  const Document d = job_document(source, {}, library);
  const Json workload = d.root.is_object() ? d.root.value("workload", Json()) : Json();
  const Json phrases = workload.is_object() ? workload.value("approximated", Json()) : Json();
  return phrases.is_array() ? phrases.get<std::vector<std::string>>() : std::vector<std::string>();
}

}  // namespace stepcast::config
