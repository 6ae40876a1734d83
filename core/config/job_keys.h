#pragma once
#include <string>
#include <vector>

#include "core/config/config.h"

/// Table of the keys of a job, from which loading, writing, the schema and the
/// reference page come.
namespace stepcast::config {

/// A key by the dotted path that `--set` takes; "[]" stands for an index and "*" for a name of the
/// user's.
struct JobKey {
  std::string path;                  ///< "parallel.tensor"
  std::string type;                  ///< "integer from 1 to 1048576", "amount such as \"25 MB\""
  std::string usual;                 ///< where it is not given: a value, or what decides
  std::string applies;               ///< "transformers"; empty: to all jobs
  std::string help;                  ///< one line
  std::vector<std::string> choices;  ///< words it takes: "full", "true"
};
/// Every key of a job, its workload by kind and its system, in the order of their objects.
std::vector<JobKey> job_keys();
/// The part of docs/jobs.md that lists all keys.
std::string job_keys_page();

/// JSON Schema (draft 2020-12) of a job; `$defs` has workload, system and device, whose files it
/// describes too. What depends on other keys is left to the loader.
std::string job_schema();

}  // namespace stepcast::config
