#include "simulator/reports/framework_memory.h"

#include <algorithm>
#include <set>

#include "core/graph/op.h"
#include "core/graph/program.h"

namespace stepcast::simulator {
namespace {

double constant_of(const Device& device, const char* name) {
  const auto model = device.fitted.find("memory");
  if (model == device.fitted.end()) {
    return 0;
  }
  const auto found = model->second.constants.find(name);
  return found == model->second.constants.end() ? 0 : found->second;
}

}  // namespace

FrameworkMemory framework_memory(const Device& device,
                                 const std::vector<std::size_t>& communicators, Bytes activations,
                                 bool experts) {
  const double any = constant_of(device, "communicator");
  const double own = constant_of(device, "communicator_pair");
  const double pair = own > 0 ? own : any;
  double buffers = 0;
  for (const std::size_t ranks : communicators) {
    buffers += any <= 0 ? 0 : ranks == 2 ? pair : any;
  }
  // Transformer Engine, module/base.py: get_multi_stream_cublas_workspace, of four streams.
  const Bytes workspaces(2 * constant_of(device, "blas_workspace") +
                         (experts ? 5 : 1) * constant_of(device, "engine_workspace"));
  return {Bytes(constant_of(device, "reserve")) + workspaces, Bytes(buffers),
          activations * lost_share(device), workspaces};
}

double lost_share(const Device& device) { return constant_of(device, "fragmentation"); }

std::string_view name_of(Fit fit) {
  return fit == Fit::kYes ? "yes" : fit == Fit::kLikely ? "likely" : "no";
}

double memory_margin(const Device& device) { return constant_of(device, "margin"); }

double memory_overestimate(const Device& device) { return constant_of(device, "over"); }

double memory_error_of_runs(const Device& device) { return constant_of(device, "runs"); }

Fit fit_of(Bytes needed, Bytes capacity, double overestimate) {
  return capacity <= Bytes{} || needed <= capacity ? Fit::kYes
         : needed <= capacity * (1 + overestimate) ? Fit::kLikely
                                                   : Fit::kNo;
}

bool has_experts(const Program& program) {
  return std::any_of(program.ops.begin(), program.ops.end(),
                     [](const Op& op) { return op.kind == OpKind::kGemm && op.routing >= 0; });
}

std::vector<std::size_t> communicators_of(
    const Program& program, const std::function<std::size_t(std::int32_t)>& ranks_in) {
  std::set<std::int32_t> used;
  for (const Op& op : program.ops) {
    if (op.communicator >= 0) {
      used.insert(op.communicator);
    }
  }
  std::vector<std::size_t> sizes;
  for (const std::int32_t communicator : used) {
    sizes.push_back(ranks_in(communicator));
  }
  return sizes;
}

}  // namespace stepcast::simulator
