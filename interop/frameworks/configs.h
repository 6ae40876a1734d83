#pragma once
#include <string>

#include "core/job/job.h"

namespace stepcast::interop {

/// A transformer job as the file that a training framework reads, ready to start with data and a
/// tokenizer of its own. Degrees and what else the job decides are written; where it says nothing
/// (buckets, formats on the way) the framework keeps its default. What the framework has no key
/// for, and how it is started, stands in comments. Plans that break no
/// rule of core/job/framework_rules.h lose nothing but what the comments name.

/// TOML of torchtitan (torchtitan/config/job_config.py). The model is a flavor that is
/// registered there, found by its widths; else a comment says which to add, with the details of
/// its workload.
std::string torchtitan_config(const Job& job);
/// JSON of DeepSpeed (deepspeed/runtime/config.py). JSON has no comments: what it has no key for is
/// the key "stepcast", which DeepSpeed does not read.
std::string deepspeed_config(const Job& job);
/// YAML of NeMo 2 (`nemo llm pretrain --yaml FILE`): trainer, strategy, data and model.
std::string nemo_config(const Job& job);

}  // namespace stepcast::interop
