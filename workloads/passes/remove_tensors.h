#pragma once
#include <vector>

#include "core/graph/program_fwd.h"


namespace stepcast::workloads {

/// A tensor that names others names them by their numbers `now`, by old number.
void renumber(Tensor& tensor, const std::vector<TensorId>& now);

/// Takes the tensors with `gone` out of a program, whose ops name them no more, and numbers the
/// others anew. Operands that no op reads any more go too.
void remove_tensors(Program& program, const std::vector<bool>& gone);

}  // namespace stepcast::workloads
