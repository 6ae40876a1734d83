#include "workloads/passes/memory_overlap.h"

#include <algorithm>
#include <cstdint>
#include <span>

namespace stepcast::workloads {
namespace {

/// Part of the memory of a tensor that is no view.
struct Range {
  TensorId tensor = 0;
  std::int64_t begin = 0, end = 0;
};

Range range_of(const Program& p, TensorId id) {
  Range r{id, 0, p.tensors[id].elements()};
  bool whole = false;  // where a rank's part begins is not known here
  while (p.tensors[r.tensor].is_view()) {
    const Tensor& t = p.tensors[r.tensor];
    whole = whole || t.view_data_step != 0;
    r.begin += t.view_offset;
    r.end += t.view_offset;
    r.tensor = static_cast<TensorId>(t.view_of);
  }
  return whole ? Range{r.tensor, 0, p.tensors[r.tensor].elements()} : r;
}

bool clash(const Program& p, std::span<const TensorId> written, std::span<const TensorId> touched) {
  return std::any_of(written.begin(), written.end(), [&](TensorId w) {
    const Range a = range_of(p, w);
    return std::any_of(touched.begin(), touched.end(), [&](TensorId t) {
      const Range b = range_of(p, t);
      return a.tensor == b.tensor && a.begin < b.end && b.begin < a.end;
    });
  });
}

}  // namespace

bool independent(const Program& program, const Op& a, const Op& b) {
  return !clash(program, program.outputs(a), program.inputs(b)) &&
         !clash(program, program.outputs(a), program.outputs(b)) &&
         !clash(program, program.outputs(b), program.inputs(a));
}

}  // namespace stepcast::workloads
