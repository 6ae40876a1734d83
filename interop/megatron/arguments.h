#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/job/job.h"

namespace stepcast::interop {

/// Comment of a script that says its system, which is read back.
constexpr std::string_view kSystemComment = "# Planned by stepcast for --on ";

/// A transformer job as arguments of Megatron-LM's pretrain_gpt.py: "--tensor-model-parallel-size
/// 8".
struct MegatronArguments {
  /// Machines, and processes on each, one a device; 0 where machines are not full.
  std::int64_t nodes = 0, devices_per_node = 0;
  std::string system;  ///< that the plan is for
  /// Shell environment of the launch: "export CUDA_DEVICE_MAX_CONNECTIONS=1".
  std::vector<std::string> environment;
  std::vector<std::string> arguments;
  std::vector<std::string>
      remarks;  ///< what Megatron-LM has no argument for, and what comes nearest
  bool knows_model = false;  ///< details of the model are among the arguments
};
MegatronArguments megatron_arguments(const Job& job);
/// Errors: InputError for a model that no arguments are written of: one with layers of one block or
/// with a state.
void expect_written(const Workload& workload);

/// How Megatron-Core is told which layers each chunk has: embedding, head or both count as a layer
/// where all chunks are then equal, or else every chunk is drawn, "Et*2|tL".
struct MegatronSplit {
  bool embedding = false, head = false;
  std::string layout;  ///< of pipeline_model_parallel_layout; "": chunks are equal
};
MegatronSplit megatron_split(const Job& job);

/// Gradients that a bucket holds, where the job says it; else a framework takes its own default.
std::optional<std::int64_t> said_bucket(const Job& job);

/// Plans that break no rule of core/job/framework_rules.h leave remarks about overlaps and formats
/// alone. A shell script that starts pretrain_gpt.py, for Slurm too; its own arguments are passed
/// on. job_of_megatron reads it back, the machine included.
std::string text_of(const MegatronArguments& megatron);

}  // namespace stepcast::interop
