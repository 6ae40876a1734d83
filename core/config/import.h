#pragma once
#include <string>

#include "core/config/config.h"

namespace stepcast::config {

/// What a file describes, told by its content.
enum class Foreign {
  kNone,            ///< one of our own files
  kHuggingFace,     ///< config.json of a Hugging Face model: a JSON object with "model_type"
  kMegatron,        ///< arguments of Megatron-LM: text with options such as --num-layers 32
  kEmbeddingTables  ///< tables of a TorchRec collection, of HugeCTR, or one a line in a CSV
};
Foreign foreign_kind(std::string_view text);

/// Our JSON for a foreign file: a workload for kHuggingFace, a job without a system for the others.
/// Also what load_job and load_workload do on their own with such a file.
/// docs/how-to/import-a-model.md and docs/reference/table-files.md list what is read and what is
/// left out; whatever else the file says is refused, because it may change the cost. Errors:
/// InputError naming file, key and remedy.
std::string import_to_json(const Source& source, int indent = 2);

}  // namespace stepcast::config
