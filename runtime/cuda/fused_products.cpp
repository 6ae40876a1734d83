#include "runtime/cuda/fused_products.h"

#include <algorithm>

#include "core/error.h"
#include "runtime/cuda/kernels/activation.h"

namespace stepcast::runtime::cuda {
namespace {

using kernels::ConstMatrixView;
using kernels::MatrixView;

MatmulPlan plan_of(const FusedProduct& p) {
  const auto address = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at); };
  return matmul_plan(p.product, address(p.a), address(p.b), address(p.out.data),
                     {address(p.epilogue.bias.data), address(p.epilogue.aux.data)});
}

/// The product alone; a GELU's input is what it makes then.
FusedProduct plain(FusedProduct p) {
  if (keeps_gelu_input(p.product.epilogue)) {
    p.out = p.epilogue.aux;
    p.product.stride_c = p.epilogue.aux.stride;
  }
  p.product.epilogue = Epilogue::kNone;
  p.epilogue = {};
  return p;
}

/// Does what an epilogue does, after the plain product; no mask is written.
void apply(const FusedProduct& p, const kernels::Workspace& workspace, cudaStream_t stream) {
  const EpilogueOperands& e = p.epilogue;
  switch (p.product.epilogue) {
    case Epilogue::kNone:
      return;
    case Epilogue::kBias:
    case Epilogue::kBiasRelu:
    case Epilogue::kBiasReluMask:
      kernels::activation_forward(
          p.product.epilogue == Epilogue::kBias ? Activation::kNone : Activation::kRelu, p.out,
          e.bias, p.out, stream);
      return;
    case Epilogue::kReluBackward:
      kernels::bias_activation_backward(Activation::kRelu, p.out, p.y, p.out, e.d_bias, workspace,
                                        stream);
      return;
    case Epilogue::kColumnSums: {
      const MatrixView b(p.b, p.product.b, p.product.k, p.product.n);
      kernels::bias_activation_backward(Activation::kNone, b, b, b, e.d_bias, workspace, stream);
      return;
    }
    case Epilogue::kGelu:
    case Epilogue::kBiasGelu:
      kernels::activation_forward(Activation::kGelu, p.out, e.bias, p.out, stream);
      return;
    case Epilogue::kGeluInput:
    case Epilogue::kBiasGeluInput:
      if (e.bias.data != nullptr) {
        kernels::activation_forward(Activation::kNone, e.aux, e.bias, e.aux, stream);
      }
      kernels::activation_forward(Activation::kGelu, e.aux, {}, p.out, stream);
      return;
    case Epilogue::kGeluBackward:
    case Epilogue::kGeluBackwardSums:
      kernels::activation_backward(Activation::kGelu, e.aux, {}, p.out, p.out, e.d_bias, workspace,
                                   stream);
      return;
  }
}

}  // namespace

FusedProduct fused_product(const Program& program, const Op& op,
                           const std::function<MatrixView(TensorId)>& view) {
  const auto in = program.inputs(op);
  const auto out = program.outputs(op);
  const auto epilogue = op.as<GemmAttributes>().epilogue;
  FusedProduct p;
  p.product = product_of(program, op);
  p.a = view(in[0]).data;
  p.b = view(in[1]).data;
  const std::int64_t m = p.product.m;
  const std::int64_t n = p.product.n;
  p.out = {view(out[0]).data, p.product.c, m, n};
  if (adds_bias(epilogue)) {
    const MatrixView bias = view(in[2]);
    p.epilogue.bias = {bias.data, bias.format};
  }
  if (sums_columns(epilogue)) {
    const MatrixView d_bias = view(out.back());
    p.epilogue.d_bias = {d_bias.data, d_bias.format};
  }
  if (epilogue == Epilogue::kReluBackward) {
    p.y = {view(in[2]).data, view(in[2]).format, m, n};
    p.epilogue.aux = view(in[3]);
  } else if (epilogue == Epilogue::kBiasReluMask) {
    p.epilogue.aux = view(out[1]);
  } else if (keeps_gelu_input(epilogue) || reads_gelu_input(epilogue)) {
    const MatrixView input = view(keeps_gelu_input(epilogue) ? out[1] : in[2]);
    STEPCAST_CHECK(input.format == p.out.format, "the GELU's input of '{}' is {}, its result {}",
                   program.name(op), name_of(input.format), name_of(p.out.format));
    p.epilogue.aux = input.block(0, n);
    p.product.stride_aux = input.stride;
  }
  return p;
}

std::size_t FusedProducts::workspace_bytes(const FusedProduct& p) {
  return std::max({Matmul::workspace_bytes(plan_of(p)), Matmul::workspace_bytes(plan_of(plain(p))),
                   kernels::activation_backward_workspace(p.product.m, p.product.n),
                   kernels::activation_backward_workspace(p.product.k, p.product.n)});
}

FusedProducts::Choice& FusedProducts::choice(const FusedProduct& p,
                                             const kernels::Workspace& workspace) {
  const MatmulPlan plan = plan_of(p);
  const bool masked =
      plan.epilogue != Epilogue::kReluBackward || !no_masks_.contains(p.epilogue.aux.data);
  auto known = std::find_if(choices_.begin(), choices_.end(),
                            [&](const Choice& c) { return c.plan == plan && c.masked == masked; });
  if (known == choices_.end()) {
    const std::string rejection =
        masked ? multiply_.rejection(plan, p.epilogue, workspace)
               : fmt::format("no mask for a product of {} x {} x {}, epilogue {}", plan.n, plan.m,
                             plan.k, name_of(plan.epilogue));
    known = choices_.insert(choices_.end(), {plan, masked, rejection, false});
  }
  if (plan.epilogue == Epilogue::kBiasReluMask && !known->rejection.empty()) {
    no_masks_.insert(p.epilogue.aux.data);
  }
  return *known;
}

void FusedProducts::run(const FusedProduct& p, kernels::Workspace workspace, cudaStream_t stream) {
  Choice& chosen = choice(p, workspace);
  if (chosen.rejection.empty()) {
    try {
      multiply_(p.product, p.a, p.b, p.out.data, workspace, stream, p.epilogue);
      chosen.ran = true;
      return;
    } catch (const RunError& e) {
      if (chosen.ran) {
        throw;
      }
      chosen.rejection = e.what();
      choice(p, workspace);  // a mask that is not written now
      if (p.product.epilogue == Epilogue::kBiasReluMask) {
        forget_backward_masks();
      }
    }
  }
  const FusedProduct alone = plain(p);
  multiply_(alone.product, alone.a, alone.b, alone.out.data, workspace, stream);
  apply(p, workspace, stream);
}

/// A mask that was counted on is not written: backward ReLUs that have not run do without theirs.
void FusedProducts::forget_backward_masks() {
  for (Choice& c : choices_) {
    if (c.plan.epilogue == Epilogue::kReluBackward && c.masked && !c.ran && c.rejection.empty()) {
      c.rejection = "the forward product that was to write its mask failed";
    }
  }
}

KernelUse FusedProducts::used() const {
  KernelUse use;
  bool own = false;
  bool library = false;
  for (const Choice& c : choices_) {
    (c.rejection.empty() ? library : own) = true;
    if (use.reason.empty()) {
      use.reason = c.rejection;
    }
  }
  if (library) {
    use.kernels = own ? Matmul::version() + " and own" : Matmul::version();
  } else if (own) {
    use.kernels = "own";
  }
  return use;
}

}  // namespace stepcast::runtime::cuda
