#include "interop/formats.h"

#include <fmt/ranges.h>

#include "interop/import.h"

namespace stepcast::interop {
namespace {

/// A file is read by the first format that recognises it.
const std::vector<ForeignFormat>& foreign_formats() {
  static const std::vector<ForeignFormat> all{
      megatron_yaml(),          megatron_launch_script(), torchtitan_file(),
      nanotron_file(),          maxtext_file(),           trainer_file(),
      deepspeed_file(),         torchrec_benchmark(),     table_list_format(),
      hugging_face_config(),    deeprecsys_config(),      torchrec_tables(),
      dlrm_arguments(),         hugectr_tables(),         hugectr_layers(),
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
    std::vector<std::string_view> known;
    for (const ForeignFormat& f : foreign_formats()) {
      if (f.describes_model()) {
        known.push_back(f.what);
      }
    }
    throw InputError(source.label,
                     fmt::format("is none of what stepcast reads as a model or a job: {}",
                                 fmt::join(known, ", ")));
  }
  const bool as_job = opened.format->job_of != nullptr;
  const Document d = as_job ? opened.format->job_of(std::move(opened.document), {})
                            : opened.format->workload_of(std::move(opened.document));
  const Value root = Value::root_of(d);
  if (const Value workload = as_job ? root.at("workload", "") : root; workload.is_object()) {
    (void)config::workload_from(workload);  // no command could use it
  }
  return d.root.dump(indent) + "\n";
}

}  // namespace stepcast::interop
