#include "workloads/fuse_epilogues.h"

#include <catch2/catch.hpp>
#include <map>

#include "core/epilogue.h"
#include "core/program_builder.h"

using namespace stepcast;
using namespace stepcast::workloads;

namespace {

constexpr std::int64_t kRows = 64, kIn = 48, kOut = 200;

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
    relu.variant(static_cast<std::uint8_t>(Activation::kRelu)).in({y, bias}).out({y});
    if (recorded) {
      relu.waits(event);
    }
  }
  void backward() {
    b.op(OpKind::kBiasActivationBackward, "sums", {kRows, kIn})
        .variant(static_cast<std::uint8_t>(Activation::kNone))
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
        .variant(static_cast<std::uint8_t>(Activation::kRelu))
        .in({dy, y})
        .out({dy, d_bias});
  }
  /// `parts`, each a segment.
  template <class... Parts>
  ExecutionGraph graph(const Parts&... parts) {
    const auto add = [this](const auto& part) {
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
};

Epilogue epilogue_of(const Op& op) { return static_cast<Epilogue>(op.variant); }

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
