#pragma once
#include <string>
#include <vector>

#include "core/job.h"

namespace stepcast::planner {

/// A transformer job as arguments of Megatron-LM's pretrain_gpt.py: "--tensor-model-parallel-size
/// 8".
struct MegatronArguments {
  std::string launcher;  ///< how many processes: "torchrun --nnodes 4 --nproc-per-node 8"
  std::vector<std::string> arguments;
  std::vector<std::string>
      remarks;  ///< what Megatron-LM has no argument for, and what comes nearest
};
MegatronArguments megatron_arguments(const Job& job);

/// Plans that break no rule of core/stack_rules.h leave remarks about overlaps and formats alone.
/// One argument a line, ready for a shell; the launcher and remarks as comments before them.
/// config::job_of_megatron reads it back, the launcher's comment included.
std::string text_of(const MegatronArguments& megatron);

}  // namespace stepcast::planner
