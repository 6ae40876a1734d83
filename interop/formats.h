#pragma once
#include "core/config/foreign.h"

namespace stepcast::interop {

using config::Document;
using config::ForeignFormat;
using config::join_path;
using config::Json;
using config::list_of;
using config::nearest_name;
using config::OrderedJson;
using config::parse_json;
using config::pretty;
using config::read_whole_file;
using config::shown;
using config::Source;
using config::suggestion;
using config::Value;

// The files of other tools that are read: one line here and one in formats.cpp each.

/// Arguments of Megatron-LM's pretrain_gpt.py, one per line or in a launch script -> job.
ForeignFormat megatron_launch_script();
/// YAML of Megatron-LM's arguments, of NeMo or Megatron-Bridge -> job.
ForeignFormat megatron_yaml();
/// TOML of torchtitan -> job.
ForeignFormat torchtitan_file();
/// JSON of DeepSpeed -> job, but for its model.
ForeignFormat deepspeed_file();
/// YAML of axolotl, TRL or LLaMA-Factory -> job.
ForeignFormat trainer_file();
/// YAML of nanotron -> job.
ForeignFormat nanotron_file();
/// YAML of MaxText -> job.
ForeignFormat maxtext_file();
/// config.json of a Hugging Face model -> workload.
ForeignFormat hugging_face_config();
/// Embedding tables one a line -> job or workload.
ForeignFormat table_list_format();
/// Configurations of DeepRecSys -> workload.
ForeignFormat deeprecsys_config();
/// Table configs, planner constraints and topology of TorchRec -> job or workload.
ForeignFormat torchrec_tables();
/// A benchmark configuration of TorchRec -> job or workload.
ForeignFormat torchrec_benchmark();
/// Arguments of the reference DLRM on TorchRec -> job or workload.
ForeignFormat dlrm_arguments();
/// Tables and solver of HugeCTR -> job or workload.
ForeignFormat hugectr_tables();
/// Layers and solver of HugeCTR -> job or workload.
ForeignFormat hugectr_layers();
/// A ShardingPlan of TorchRec -> embedding plan.
ForeignFormat torchrec_sharding_plan();
/// shard_matrix and shard_strategy of HugeCTR -> embedding plan.
ForeignFormat hugectr_sharding_plan();

}  // namespace stepcast::interop
