#include "core/graph/op.h"

#include <algorithm>

namespace stepcast {
namespace {

constexpr std::array<std::string_view, static_cast<std::size_t>(Phase::kCount)> kPhases{
    "input", "forward", "recompute", "backward", "gradient_sync", "optimizer"};
constexpr std::array<std::string_view, static_cast<std::size_t>(OpClass::kCount)> kClasses{
    "gemm", "attention", "scan", "embedding", "memory_bound", "recorded", "collective"};

template <typename Names>
auto index_of(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) - names.begin();
}

}  // namespace

std::string_view name_of(Phase phase) { return kPhases.at(static_cast<std::size_t>(phase)); }
std::string_view name_of(OpClass op_class) {
  return kClasses.at(static_cast<std::size_t>(op_class));
}

std::string_view name_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return "sgd";
    case OptimizerKind::kAdam:
      return "adam";
    case OptimizerKind::kRowwiseAdagrad:
      return "rowwise_adagrad";
    case OptimizerKind::kAdagrad:
      return "adagrad";
    case OptimizerKind::kMuon:
      return "muon";
  }
  return "unknown";
}

std::string_view name_of(ScanRule rule) {
  return rule == ScanRule::kDecay   ? "decay"
         : rule == ScanRule::kDelta ? "delta"
                                    : "delta_by_column";
}
std::string_view name_of(Norm norm) { return norm == Norm::kRmsNorm ? "rms_norm" : "layer_norm"; }

std::string_view name_of(Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return "none";
    case Activation::kRelu:
      return "relu";
    case Activation::kGelu:
      return "gelu";
    case Activation::kSquaredRelu:
      return "squared_relu";
    case Activation::kSwiGlu:
      return "swiglu";
    case Activation::kGeGlu:
      return "geglu";
    case Activation::kSilu:
      return "silu";
    case Activation::kTanh:
      return "tanh";
    case Activation::kSigmoid:
      return "sigmoid";
  }
  return "unknown";
}

std::string_view name_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return "none";
    case Epilogue::kBias:
      return "bias";
    case Epilogue::kBiasRelu:
      return "bias_relu";
    case Epilogue::kBiasReluMask:
      return "bias_relu_mask";
    case Epilogue::kReluBackward:
      return "relu_backward";
    case Epilogue::kColumnSums:
      return "column_sums";
    case Epilogue::kGelu:
      return "gelu";
    case Epilogue::kBiasGelu:
      return "bias_gelu";
    case Epilogue::kGeluInput:
      return "gelu_input";
    case Epilogue::kBiasGeluInput:
      return "bias_gelu_input";
    case Epilogue::kGeluBackward:
      return "gelu_backward";
    case Epilogue::kGeluBackwardSums:
      return "gelu_backward_sums";
  }
  return "unknown";
}

std::optional<Phase> phase_named(std::string_view name) {
  const auto i = index_of(kPhases, name);
  return i == static_cast<std::ptrdiff_t>(kPhases.size()) ? std::nullopt
                                                          : std::optional(static_cast<Phase>(i));
}

}  // namespace stepcast
