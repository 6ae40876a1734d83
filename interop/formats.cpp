#include "interop/formats.h"

#include "interop/import.h"

namespace stepcast::interop {
namespace {

/// A file is read by the first format that recognises it.
const std::vector<ForeignFormat>& foreign_formats() {
  static const std::vector<ForeignFormat> all{
      megatron_launch_script(), torchrec_benchmark(),   table_list_format(),
      hugging_face_config(),    deeprecsys_config(),    torchrec_tables(),
      dlrm_arguments(),         hugectr_tables(),       hugectr_layers(),
      torchrec_sharding_plan(), hugectr_sharding_plan()};
  return all;
}

}  // namespace

config::Library library(std::filesystem::path root) {
  return {std::move(root), &foreign_formats()};
}

bool describes_model(const config::Source& source) {
  bool may_be_json = false;  // most files that commands ask of are not, and parsing takes its time
  for (const char* key : {"\"model_type\"", "\"embedding_"}) {
    may_be_json |= source.text.find(key) != std::string::npos;
  }
  for (const ForeignFormat& f : foreign_formats()) {
    if (f.inferred_by_text != nullptr && f.inferred_by_text(source.text)) {
      return true;
    }
  }
  try {
    return may_be_json && config::open_source(source, config::Expected::kModel, library({})).format;
  } catch (const InputError&) {
    return false;
  }
}

std::string import_to_json(const config::Source& source, int indent) {
  config::OpenedSource opened = config::open_source(source, config::Expected::kModel, library({}));
  if (opened.format == nullptr) {
    throw InputError(source.label,
                     "neither a config.json of a Hugging Face model (no \"model_type\"), nor "
                     "tables of TorchRec or HugeCTR (no \"embedding_bag_collection\" or "
                     "\"embedding_tables\"), nor arguments of Megatron-LM (no --num-layers)");
  }
  const bool as_job = opened.format->job_of != nullptr;
  const Document d = as_job ? opened.format->job_of(std::move(opened.document), {})
                            : opened.format->workload_of(std::move(opened.document));
  const Value root = Value::root_of(d);
  (void)config::workload_from(as_job ? root.at("workload", "") : root);  // no command could use it
  return d.root.dump(indent) + "\n";
}

}  // namespace stepcast::interop
