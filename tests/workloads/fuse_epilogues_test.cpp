#include "workloads/passes/fuse_epilogues.h"
#include "core/graph/memory_use.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "core/graph/epilogue.h"
#include "core/graph/program_builder.h"
#include "tests/workloads/transformer_jobs.h"
#include "workloads/build_graph.h"

using namespace stepcast;
using namespace stepcast::workloads;

namespace {

constexpr std::int64_t kRows = 64, kIn = 48, kOut = 200;

/// `parts`, each a segment of a program's ops, with epilogues fused.
template <class... Parts>
ExecutionGraph fused_graph(ProgramBuilder& b, const Parts&... parts) {
  const auto add = [&b](const auto& part) {
    const std::uint32_t segment = b.begin_segment("part");
    part();
    b.end_segment();
    b.call(segment);
  };
  (add(parts), ...);
  ExecutionGraph g;
  g.programs.push_back(std::move(b).finish());
  fuse_epilogues(g);
  return g;
}

/// Forward and backward of one layer, y = relu(x W + b), under a second one without activation.
struct Layers {
  ProgramBuilder b;
  TensorId x = b.activation("x", kRows, kIn, Format::kFp32);
  TensorId w = b.activation("w", kIn, kOut, Format::kFp32);
  TensorId bias = b.activation("bias", 1, kOut, Format::kFp32);
  TensorId y = b.activation("y", kRows, kOut, Format::kFp32);
  TensorId w2 = b.activation("w2", kOut, kIn, Format::kFp32);
  TensorId dz = b.activation("dz", kRows, kIn, Format::kFp32);
  TensorId dy = b.activation("dy", kRows, kOut, Format::kFp32);
  TensorId d_bias = b.activation("d_bias", 1, kOut, Format::kFp32);
  TensorId d_bias2 = b.activation("d_bias2", 1, kIn, Format::kFp32);
  TensorId dw2 = b.activation("dw2", kOut, kIn, Format::kFp32);
  std::int32_t event = b.event();

  void forward(bool recorded = false) {
    auto product = b.op(OpKind::kGemm, "product", {kRows, kOut, kIn, 1}).in({x, w}).out({y});
    if (recorded) {
      product.records(event);
    }
    auto relu = b.op(OpKind::kBiasActivationForward, "relu", {kRows, kOut});
    relu.attributes(ActivationAttributes{Activation::kRelu}).in({y, bias}).out({y});
    if (recorded) {
      relu.waits(event);
    }
  }
  void backward() {
    b.op(OpKind::kBiasActivationBackward, "sums", {kRows, kIn})
        .attributes(ActivationAttributes{Activation::kNone})
        .in({dz})
        .out({dz, d_bias2});
    b.op(OpKind::kGemm, "weight_gradient", {kOut, kIn, kRows, 1})
        .flags(op_flags::kTransposeA)
        .in({y, dz})
        .out({dw2});
    b.op(OpKind::kGemm, "input_gradient", {kRows, kOut, kIn, 1})
        .flags(op_flags::kTransposeB)
        .in({dz, w2})
        .out({dy});
    b.op(OpKind::kBiasActivationBackward, "relu_backward", {kRows, kOut})
        .attributes(ActivationAttributes{Activation::kRelu})
        .in({dy, y})
        .out({dy, d_bias});
  }
  template <class... Parts>
  ExecutionGraph graph(const Parts&... parts) {
    return fused_graph(b, parts...);
  }
};

Epilogue epilogue_of(const Op& op) { return op.as<GemmAttributes>().epilogue; }

std::vector<TensorId> ids(std::span<const TensorId> list) { return {list.begin(), list.end()}; }

}  // namespace

TEST_CASE("products take in the biases and activations beside them", "[workloads]") {
  Layers l;
  const ExecutionGraph g = l.graph([&] { l.forward(); }, [&] { l.backward(); });
  const Program& p = g.programs.front();
  REQUIRE(p.ops.size() == 3);
  REQUIRE(p.segments.size() == 2);
  CHECK(p.segments[0].op_count == 1);
  CHECK(p.segments[1].first_op == 1);
  CHECK(p.segments[1].op_count == 2);

  const auto mask = static_cast<TensorId>(p.tensors.size() - 1);
  CHECK(p.tensors[mask].name == "y.mask");
  CHECK(p.tensors[mask].rows == kRows);
  CHECK(p.tensors[mask].columns == 8);  // 200 bits take two packs of 128, eight words of 32

  CHECK(p.name(p.ops[0]) == "product");
  CHECK(epilogue_of(p.ops[0]) == Epilogue::kBiasReluMask);
  CHECK(ids(p.inputs(p.ops[0])) == std::vector<TensorId>{l.x, l.w, l.bias});
  CHECK(ids(p.outputs(p.ops[0])) == std::vector<TensorId>{l.y, mask});

  CHECK(p.name(p.ops[1]) == "weight_gradient");
  CHECK(epilogue_of(p.ops[1]) == Epilogue::kColumnSums);
  CHECK(ids(p.inputs(p.ops[1])) == std::vector<TensorId>{l.y, l.dz});
  CHECK(ids(p.outputs(p.ops[1])) == std::vector<TensorId>{l.dw2, l.d_bias2});

  CHECK(p.name(p.ops[2]) == "input_gradient");
  CHECK(epilogue_of(p.ops[2]) == Epilogue::kReluBackward);
  CHECK(ids(p.inputs(p.ops[2])) == std::vector<TensorId>{l.dz, l.w2, l.y, mask});
  CHECK(ids(p.outputs(p.ops[2])) == std::vector<TensorId>{l.dy, l.d_bias});

  // The product's operands, and beside them only a row and the mask: no pass over y.
  CHECK(p.ops[0].bytes_read.base() == 4.0 * (kRows * kIn + kIn * kOut + kOut));
  CHECK(p.ops[0].bytes_written.base() == 4.0 * (kRows * kOut + kRows * 8));
  CHECK(p.ops[2].bytes_read.base() == 4.0 * (kRows * kIn + kOut * kIn + kRows * 8));
  CHECK(p.ops[2].bytes_written.base() == 4.0 * (kRows * kOut + kOut));
  CHECK(p.ops[0].flops.base() == 2.0 * kRows * kIn * kOut);
}

TEST_CASE("a forward alone keeps no mask", "[workloads]") {
  Layers l;
  const ExecutionGraph g = l.graph([&] { l.forward(); });
  CHECK(epilogue_of(g.programs.front().ops.at(0)) == Epilogue::kBiasRelu);
  CHECK(g.programs.front().tensors.back().name == "dw2");
}

TEST_CASE("ops with an event or a segment between them stay two", "[workloads]") {
  Layers recorded;
  const ExecutionGraph g =
      recorded.graph([&] { recorded.forward(true); }, [&] { recorded.backward(); });
  CHECK(g.programs.front().ops.size() == 5);  // only the column sums joined
  // No product makes the mask of y, so its backward stays an op too.
  CHECK(g.programs.front().ops.back().kind == OpKind::kBiasActivationBackward);
  Layers apart;
  const ExecutionGraph h = apart.graph(
      [&] {
        apart.b.op(OpKind::kGemm, "product", {kRows, kOut, kIn, 1})
            .in({apart.x, apart.w})
            .out({apart.y});
      },
      [&] {
        apart.b.op(OpKind::kBiasActivationForward, "bias", {kRows, kOut})
            .in({apart.y, apart.bias})
            .out({apart.y});
      });
  CHECK(h.programs.front().ops.size() == 2);
}

namespace {

/// Forward and backward of one layer as a transformer has it, y = gelu(x W + bias), z = y W2. The
/// GELU's input stands without its bias; the weight gradient of W2 comes between the gradient of y
/// and that of the GELU.
struct GeluLayer {
  explicit GeluLayer(std::int64_t columns = kOut) : width(columns) {}
  std::int64_t width;
  ProgramBuilder b;
  TensorId x = b.activation("x", kRows, kIn, Format::kFp32);
  TensorId w = b.activation("w", kIn, width, Format::kFp32);
  TensorId bias = b.activation("bias", 1, width, Format::kFp32);
  TensorId input = b.activation("input", kRows, width, Format::kFp32);
  TensorId y = b.activation("y", kRows, width, Format::kFp32);
  TensorId w2 = b.activation("w2", width, kIn, Format::kFp32);
  TensorId dz = b.activation("dz", kRows, kIn, Format::kFp32);
  TensorId dw2 = b.activation("dw2", width, kIn, Format::kFp32);
  TensorId dy = b.activation("dy", kRows, width, Format::kFp32);
  TensorId d_input = b.activation("d_input", kRows, width, Format::kFp32);
  TensorId d_bias = b.activation("d_bias", 1, width, Format::kFp32);
  std::int32_t ready = b.event();

  void forward() {
    b.op(OpKind::kGemm, "fc1", {kRows, width, kIn, 1}).in({x, w}).out({input});
    b.op(OpKind::kActivationForward, "gelu", {kRows, width})
        .attributes(ActivationAttributes{Activation::kGelu})
        .in({input, bias})
        .out({y});
  }
  ProgramBuilder::OpEdit gradient() {
    return b.op(OpKind::kGemm, "dy", {kRows, width, kIn, 1})
        .flags(op_flags::kTransposeB)
        .in({dz, w2})
        .out({dy});
  }
  ProgramBuilder::OpEdit weight_gradient() {
    return b.op(OpKind::kGemm, "dw2", {width, kIn, kRows, 1})
        .flags(op_flags::kTransposeA)
        .in({y, dz})
        .out({dw2});
  }
  ProgramBuilder::OpEdit gelu_gradient() {
    return b.op(OpKind::kActivationBackward, "gelu_backward", {kRows, width})
        .attributes(ActivationAttributes{Activation::kGelu})
        .in({dy, input, bias})
        .out({d_input, d_bias});
  }
  void backward() {
    gradient();
    weight_gradient();
    gelu_gradient();
  }
  template <class... Parts>
  Program fused(const Parts&... parts) {
    return fused_graph(b, parts...).programs.front();
  }
};

std::vector<std::string> named(const Program& p, std::span<const TensorId> list) {
  std::vector<std::string> names;
  for (const TensorId id : list) {
    names.push_back(p.tensors[id].name);
  }
  return names;
}
using Names = std::vector<std::string>;

std::vector<Epilogue> epilogues_of(const Program& p) {
  std::vector<Epilogue> all;
  for (const Op& op : p.ops) {
    all.push_back(op.kind == OpKind::kGemm ? epilogue_of(op) : Epilogue::kNone);
  }
  return all;
}

double d(std::int64_t v) { return static_cast<double>(v); }

}  // namespace

TEST_CASE("products take in a GELU, forward and backward, and keep its input after the bias",
          "[workloads]") {
  GeluLayer l;
  const Program p = l.fused([&] { l.forward(); }, [&] { l.backward(); });
  REQUIRE(p.ops.size() == 3);
  CHECK(p.name(p.ops[0]) == "fc1");
  CHECK(epilogue_of(p.ops[0]) == Epilogue::kBiasGeluInput);
  CHECK(named(p, p.inputs(p.ops[0])) == Names{"x", "w", "bias"});
  CHECK(named(p, p.outputs(p.ops[0])) == Names{"y", "input"});
  // The gradient of y waits for the weight gradient beside it: the op after that wrote d_input.
  CHECK(p.name(p.ops[1]) == "dw2");
  CHECK(epilogue_of(p.ops[1]) == Epilogue::kNone);
  CHECK(p.name(p.ops[2]) == "dy");
  CHECK(epilogue_of(p.ops[2]) == Epilogue::kGeluBackwardSums);
  CHECK(named(p, p.inputs(p.ops[2])) == Names{"dz", "w2", "input"});
  CHECK(named(p, p.outputs(p.ops[2])) == Names{"d_input", "d_bias"});
  CHECK(p.segments[1].first_op == 1);
  CHECK(p.segments[1].op_count == 2);
  // Tensors that no op writes any more are gone, all others stand where they stood.
  CHECK(std::none_of(p.tensors.begin(), p.tensors.end(),
                     [](const Tensor& t) { return t.name == "dy"; }));
  CHECK(p.tensors.size() == 10);

  const double e = 4;
  CHECK(p.ops[0].bytes_read.base() == e * (d(kRows * kIn) + d(kIn * kOut) + d(kOut)));
  CHECK(p.ops[0].bytes_written.base() == e * 2 * d(kRows * kOut));
  CHECK(p.ops[2].bytes_read.base() == e * (d(kRows * kIn) + d(kOut * kIn) + d(kRows * kOut)));
  CHECK(p.ops[2].bytes_written.base() == e * (d(kRows * kOut) + d(kOut)));
}

TEST_CASE("the input of a GELU has rows a multiple of 8 apart", "[workloads]") {
  GeluLayer l(50);
  const Program p = l.fused([&] { l.forward(); }, [&] { l.backward(); });
  REQUIRE(p.ops.size() == 3);
  CHECK(p.tensors[p.outputs(p.ops[0])[1]].columns == 56);
  CHECK(p.tensors[p.outputs(p.ops[0])[0]].columns == 50);
}

TEST_CASE("a GELU's forward alone keeps nothing", "[workloads]") {
  GeluLayer l;
  const Program p = l.fused([&] { l.forward(); });
  REQUIRE(p.ops.size() == 1);
  CHECK(epilogue_of(p.ops[0]) == Epilogue::kBiasGelu);
  CHECK(named(p, p.outputs(p.ops[0])) == Names{"y"});
  CHECK(std::none_of(p.tensors.begin(), p.tensors.end(),
                     [](const Tensor& t) { return t.name == "input"; }));
}

TEST_CASE("a GELU whose input something else reads without its bias stays an op", "[workloads]") {
  GeluLayer l;
  const Program p = l.fused([&] { l.forward(); }, [&] { l.backward(); },
                            [&] {
                              l.b.op(OpKind::kAdd, "reader", {kRows, kOut})
                                  .in({l.input, l.y})
                                  .out({l.b.activation("sum", kRows, kOut, Format::kFp32)});
                            });
  CHECK(p.ops.size() == 6);
  CHECK(epilogues_of(p) == std::vector<Epilogue>(6, Epilogue::kNone));
}

TEST_CASE("the gradient of a GELU that is read again stays an op, and so does its forward",
          "[workloads]") {
  GeluLayer l;
  const Program p = l.fused([&] { l.forward(); },
                            [&] {
                              l.backward();
                              l.b.op(OpKind::kAdd, "reader", {kRows, kOut})
                                  .in({l.dy, l.y})
                                  .out({l.b.activation("sum", kRows, kOut, Format::kFp32)});
                            });
  CHECK(p.ops.size() == 6);
}

TEST_CASE("a product passes ops between only where nobody can tell", "[workloads]") {
  const auto fused_with = [](const auto& between, const auto& of_gradient, const auto& of_gelu) {
    GeluLayer l;
    const Program p =
        l.fused([&] { l.b.op(OpKind::kFill, "x", {kRows * kIn}).out({l.x}).records(l.ready); },
                [&] { l.forward(); },
                [&] {
                  auto gradient = l.gradient();
                  of_gradient(l, gradient);
                  between(l);
                  auto gelu = l.gelu_gradient();
                  of_gelu(l, gelu);
                });
    Names order;
    for (const Op& op : p.ops_of(p.segments[2])) {
      order.push_back(p.name(op));
    }
    return order;
  };
  using Edit = ProgramBuilder::OpEdit;
  const auto weights = [](GeluLayer& l) { l.weight_gradient(); };
  const auto as_it_is = [](GeluLayer&, Edit&) {};
  const auto waits = [](GeluLayer& l, Edit& op) { op.waits(l.ready); };
  const auto records = [](GeluLayer& l, Edit& op) { op.records(l.b.event()); };
  // The earlier moves; where it waits for what the weight gradient may need too, the later does.
  CHECK(fused_with(weights, as_it_is, as_it_is) == Names{"dw2", "dy"});
  CHECK(fused_with(weights, waits, as_it_is) == Names{"dy", "dw2"});
  // An event after the GELU's gradient says that the weights' is done too.
  CHECK(fused_with(weights, as_it_is, records) == Names{"dw2", "dy"});
  CHECK(fused_with(weights, waits, records) == Names{"dy", "dw2", "gelu_backward"});
  // An event after the weights' gradient says that the earlier is done with what it reads.
  const auto recorded = [](GeluLayer& l) { l.weight_gradient().records(l.b.event()); };
  CHECK(fused_with(recorded, as_it_is, as_it_is) == Names{"dy", "dw2"});
  CHECK(fused_with(recorded, waits, as_it_is) == Names{"dy", "dw2"});
  CHECK(fused_with(recorded, as_it_is, records) == Names{"dy", "dw2", "gelu_backward"});
  // Tensors that the GELU's gradient reads or the product reads are written between.
  const auto fills = [](auto tensor) {
    return [tensor](GeluLayer& l) { l.b.op(OpKind::kFill, "fill", {kOut}).out({l.*tensor}); };
  };
  CHECK(fused_with(fills(&GeluLayer::w2), as_it_is, as_it_is) == Names{"dy", "fill"});
  CHECK(fused_with(fills(&GeluLayer::d_bias), as_it_is, as_it_is) == Names{"fill", "dy"});
  CHECK(fused_with([&](GeluLayer& l) { fills (&GeluLayer::w2)(l), fills (&GeluLayer::d_bias)(l); },
                   as_it_is, as_it_is) == Names{"dy", "fill", "fill", "gelu_backward"});
}

TEST_CASE("a GPT's step moves and keeps less by what its GELUs were", "[workloads][transformer]") {
  Job job = test::gpt_job(3, 128, 8, 64, 256);
  job.batch.micro = 2;
  const bool recompute = GENERATE(false, true);
  job.parallel.recompute.kind = recompute ? RecomputeKind::kFull : RecomputeKind::kNone;
  const std::int64_t tensor = GENERATE(1, 2);
  test::split(job, tensor, 1, 1, 2);
  const auto bytes_moved = [](const Program& p) {
    double sum = 0;
    for (const Call& call : p.calls) {
      for (const Op& op : p.ops_of(p.segments[call.segment])) {
        sum += op.bytes_read.base() + op.bytes_written.base();
      }
    }
    return sum;
  };
  const Program separate = build_graph(job).programs.front();
  job.fused_epilogues = true;
  const Program fused = build_graph(job).programs.front();
  std::map<Epilogue, int> layers;  // in the program, each once
  for (const Op& op : fused.ops) {
    CHECK(op.kind != OpKind::kActivationForward);
    CHECK(op.kind != OpKind::kActivationBackward);
    layers[op.kind == OpKind::kGemm ? epilogue_of(op) : Epilogue::kNone] += 1;
  }
  CHECK(layers[Epilogue::kBiasGeluInput] == (recompute ? 6 : 3));
  CHECK(layers[Epilogue::kGeluBackwardSums] == 3);
  // For n = tokens x width numbers, e = 2 bytes each. Forward a GELU read its input, which its
  // product now leaves on the chip: n e, but the bias is the product's now. Backward the product
  // wrote its result and the GELU read it: 2 n e, less 4 bytes a column of sums. The biases of
  // queries, keys and values were a pass that read and wrote them. The gradient of the last bias
  // stands beside that of its weights now, which read the same.
  const double e = 2;
  const double tokens = 2 * 64;
  const double width = 512 / d(tensor);
  const double qkv = 384 / d(tensor);
  const double forward = (tokens * width - width) * e + (2 * tokens * qkv - qkv) * e;
  const double backward = 2 * tokens * width * e - 4 * width + tokens * 128 * e - 4 * 128;
  CHECK(bytes_moved(separate) - bytes_moved(fused) ==
        3 * 2 * ((recompute ? 2 : 1) * forward + backward));
  // The result of that product was memory too; then another op is the one with most.
  const double saved = memory_use(separate).total().base() - memory_use(fused).total().base();
  CHECK(saved >= 0);
  CHECK(saved <= tokens * width * e);
}
