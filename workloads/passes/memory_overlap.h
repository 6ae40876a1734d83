#pragma once
#include "core/graph/program.h"

namespace stepcast::workloads {

/// Neither op writes memory that the other touches, so that they may change places.
bool independent(const Program& program, const Op& a, const Op& b);

}  // namespace stepcast::workloads
