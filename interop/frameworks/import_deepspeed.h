#pragma once
#include "interop/frameworks/training_file.h"

namespace stepcast::interop {

/// Reads what a DeepSpeed configuration says in addition to model, batch and degrees: `parallel` of
/// the job holds these.
void read_deepspeed(TrainingFile& f, Json& job);

}  // namespace stepcast::interop
