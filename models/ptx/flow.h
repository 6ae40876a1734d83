#pragma once
#include <vector>

#include "models/ptx/module.h"

namespace stepcast::models::ptx {

/// Sets `reconverge` of every branch with a guard: the first instruction of the immediate
/// postdominator of its block, -1 where lanes meet only at the end. Source: Fung et al., "Dynamic
/// Warp Formation and Scheduling", MICRO 2007, section 2; postdominators after Cooper, Harvey,
/// Kennedy, "A Simple, Fast Dominance Algorithm", 2001.
void find_reconvergence(std::vector<Instruction>& code);

}  // namespace stepcast::models::ptx
