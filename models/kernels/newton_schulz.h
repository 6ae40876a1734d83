#pragma once
#include <vector>

#include "core/graph/op.h"

namespace stepcast::models {

/// A kernel and how often it runs.
struct RepeatedOp {
  Op op;
  double times = 1;
};

/// The kernels of an orthogonalisation: for each matrix its norm, the cast, three products an
/// iteration and the cast back.
///
///   A = X X^T    (m, m, n)      B = b A + c A A  (m, m, m)      X = a X + B X  (m, n, m)
///
/// In:      kOrthogonalize. Valid: matrices one after the other, as frameworks do it; kernels that
///          compute half of A, or many small matrices at once, are faster.
/// Source:  Jordan et al., "Muon", 2024; NVIDIA, Emerging-Optimizers, muon_utils.py.
std::vector<RepeatedOp> newton_schulz_ops(const Op& op);

}  // namespace stepcast::models
