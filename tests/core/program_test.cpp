#include <catch2/catch.hpp>
#include <set>

#include "core/error.h"
#include "core/graph/memory_use.h"
#include "core/graph/program_builder.h"

using namespace stepcast;

TEST_CASE(
    "the mesh puts tensor ranks innermost, and communicators are all combinations of their axes",
    "[core][program]") {
  ExecutionGraph g;
  g.mesh = {.tensor = 2, .context = 1, .pipeline = 3, .data = 4};
  g.communicators.push_back({"tensor", {Axis::kTensor}, {}});
  g.communicators.push_back({"pipeline", {Axis::kPipeline}, {}});
  g.communicators.push_back({"tensor x data", {Axis::kTensor, Axis::kData}, {}});
  // rank = t + 2 * (p + 3 * d): rank 9 = t 1, p 1, d 1.
  CHECK(g.mesh.coordinate(9, Axis::kTensor) == 1);
  CHECK(g.mesh.coordinate(9, Axis::kPipeline) == 1);
  CHECK(g.mesh.coordinate(9, Axis::kData) == 1);
  CHECK(g.members(0, 9) == std::vector<std::int32_t>{8, 9});
  CHECK(g.members(1, 9) == std::vector<std::int32_t>{7, 9, 11});
  CHECK(g.members(2, 9) == std::vector<std::int32_t>{2, 3, 8, 9, 14, 15, 20, 21});
}

TEST_CASE("the groups of a communicator partition the ranks", "[core][program][property]") {
  const auto axes =
      GENERATE(std::vector<Axis>{Axis::kTensor}, std::vector<Axis>{Axis::kData},
               std::vector<Axis>{Axis::kPipeline, Axis::kData},
               std::vector<Axis>{Axis::kTensor, Axis::kContext, Axis::kPipeline, Axis::kData});
  ExecutionGraph g;
  g.mesh = {.tensor = 2, .context = 3, .pipeline = 2, .data = 5};
  g.communicators.push_back({"group", axes, {}});
  std::multiset<std::int32_t> seen;
  for (std::int32_t r = 0; r < g.ranks(); ++r) {
    const auto members = g.members(0, r);
    CHECK(std::find(members.begin(), members.end(), r) != members.end());
    CHECK(g.members(0, members.front()) == members);
    if (members.front() == r) {
      seen.insert(members.begin(), members.end());
    }
  }
  CHECK(seen.size() == 60);
  CHECK(std::set<std::int32_t>(seen.begin(), seen.end()).size() == 60);
}

TEST_CASE("work of an op follows from its shape", "[core][op]") {
  Op op;
  op.kind = OpKind::kGemm;
  op.format = Format::kBf16;
  op.shape = {10, 20, 30, 2};
  fill_work(op);
  CHECK(op.flops == Flops(2.0 * 10 * 20 * 30 * 2));
  CHECK(op.bytes_read ==
        Bytes(2.0 * 2 * (10 * 30 + 30 * 20)));  // two products of two bytes an element
  CHECK(op.bytes_written == Bytes(2.0 * 2 * 10 * 20));

  op = Op{};
  op.kind = OpKind::kAttentionForward;
  op.shape = {2, 4, 2, 8, 8, 16};
  fill_work(op);
  CHECK(op.flops == Flops(2.0 * 2 * 2 * 4 * 8 * 8 * 16));  // Q K^T and P V
  const Flops full = op.flops;
  op.flags = op_flags::kCausal;
  fill_work(op);
  CHECK(op.flops == full * 0.5);

  op = Op{};
  op.kind = OpKind::kOptimizer;
  op.attributes = OptimizerAttributes{OptimizerKind::kAdam};
  op.shape = {1000};
  fill_work(op);
  CHECK(op.bytes_read == Bytes(4 * 4000.0));  // weight, gradient, two moments
  CHECK(op.bytes_written == Bytes(3 * 4000.0));

  op.attributes = OptimizerAttributes{OptimizerKind::kRowwiseAdagrad};
  op.shape = {1000, 50};  // 20 rows: weights and gradients, and one number a row
  fill_work(op);
  CHECK(op.bytes_read == Bytes(2 * 4000.0 + 80));
  CHECK(op.bytes_written == Bytes(4000.0 + 80));
}

TEST_CASE(
    "memory counts per-microbatch tensors while they live, and temporaries of the largest segment",
    "[core][program]") {
  // Two microbatches, forward f saves 400 B for backward b. GPipe order f0 f1 b0 b1 holds both;
  // 1F1B order f0 b0 f1 b1 holds one.
  const auto peak = [](std::vector<std::pair<int, int>> order) {
    ProgramBuilder b;
    const TensorId saved = b.activation("saved", 10, 10, Format::kFp32);
    Tensor t;
    t.name = "temporary";
    t.rows = t.columns = 5;
    const TensorId temporary = b.tensor(t);
    b.parameter("w", 10, 10, Format::kBf16, Format::kFp32, {});
    b.set_microbatches(2);
    const auto f = b.begin_segment("forward");
    b.op(OpKind::kFill, "f", {100}).out({saved});
    b.end_segment();
    const auto back = b.begin_segment("backward");
    b.op(OpKind::kAdd, "b", {10, 10}).in({saved}).out({temporary});
    b.end_segment();
    for (const auto& [segment, microbatch] : order) {
      b.call(segment == 0 ? f : back, microbatch);
    }
    return memory_use(std::move(b).finish());
  };
  const MemoryUse gpipe = peak({{0, 0}, {0, 1}, {1, 0}, {1, 1}});
  const MemoryUse one_by_one = peak({{0, 0}, {1, 0}, {0, 1}, {1, 1}});
  CHECK(gpipe.activations == Bytes(800 + 100));
  CHECK(one_by_one.activations == Bytes(400 + 100));
  CHECK(gpipe.parameters == Bytes(200));
  CHECK(gpipe.gradients == Bytes(400));
}

TEST_CASE("the builder refuses programs that cannot run", "[core][program]") {
  ProgramBuilder open;
  open.begin_segment("s");
  CHECK_THROWS_AS(std::move(open).finish(), InternalError);

  ProgramBuilder waits;
  const auto event = waits.event();
  waits.begin_segment("s");
  waits.op(OpKind::kFill, "a", {1}).waits(event);
  waits.end_segment();
  CHECK_THROWS_WITH(std::move(waits).finish(), Catch::Contains("never recorded"));
}

TEST_CASE("names of kinds and phases read back", "[core][op]") {
  for (int k = 0; k < static_cast<int>(OpKind::kCount); ++k) {
    CHECK(op_kind_named(name_of(static_cast<OpKind>(k))) == static_cast<OpKind>(k));
  }
  for (int p = 0; p < static_cast<int>(Phase::kCount); ++p) {
    CHECK(phase_named(name_of(static_cast<Phase>(p))) == static_cast<Phase>(p));
  }
}
