#pragma once
#include <string>
#include <vector>

#include "core/job.h"

namespace stepcast::planner {

/// A transformer job as arguments of Megatron-LM's pretrain_gpt.py: "--tensor-model-parallel-size
/// 8".
struct MegatronArguments {
  std::vector<std::string> arguments;
  std::vector<std::string>
      remarks;  ///< what Megatron-LM has no argument for, and what comes nearest
};
MegatronArguments megatron_arguments(const Job& job);

/// One argument a line, ready for a shell; remarks as comments before them.
std::string text_of(const MegatronArguments& megatron);

}  // namespace stepcast::planner
