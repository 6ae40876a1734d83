#include "runtime/cuda/quantised_plan.h"

#include <catch2/catch.hpp>
#include <set>

#include "core/graph/execution_order.h"
#include "core/graph/program_builder.h"
#include "runtime/cuda/kernels/quantise.h"
#include "runtime/cuda/matmul_plan.h"
#include "workloads/build_graph.h"

using namespace stepcast;
using namespace stepcast::runtime;
using namespace stepcast::runtime::cuda;

namespace {

std::vector<IssuedOp> issues_of(const Program& program) {
  std::int32_t communicators = 0;
  for (const Op& op : program.ops) {
    communicators = std::max(communicators, op.communicator + 1);
  }
  const ExecutionOrder order(program, static_cast<std::size_t>(communicators));
  std::vector<IssuedOp> issues;
  for (const Issue& issue : unrolled(order).issues) {
    issues.push_back({issue.op, issue.microbatch});
  }
  return issues;
}

/// Every tensor, of every micro-batch, in a megabyte of its own; views where they look.
std::pair<std::uintptr_t, std::size_t> apart(const Program& program, TensorId t,
                                             std::int32_t microbatch) {
  const Tensor& tensor = program.tensors[t];
  const std::size_t element = static_cast<std::size_t>(bits_per_element(tensor.format)) / 8;
  if (tensor.is_view()) {
    return {apart(program, static_cast<TensorId>(tensor.view_of), microbatch).first +
                static_cast<std::size_t>(tensor.view_offset) * element,
            static_cast<std::size_t>(tensor.elements()) * element};
  }
  const std::uintptr_t own = tensor.per_microbatch ? static_cast<std::uintptr_t>(microbatch) : 0;
  const std::uintptr_t place = 1 + t * std::uintptr_t{16} + own;
  return {place << 20U, static_cast<std::size_t>(tensor.elements()) * element};
}

QuantisedPlan plan_of(const Program& program, std::size_t in_graph = 0) {
  const auto place = [&](TensorId t, std::int32_t microbatch) {
    return apart(program, t, microbatch);
  };
  return quantised_plan(program, issues_of(program), place, in_graph);
}

Job fp8_job(Activation activation) {
  TransformerWorkload m;
  m.layers = 3;
  m.hidden = 32;
  m.heads = 2;
  m.kv_heads = 2;
  m.head_dim = 16;
  m.ffn_hidden = 48;
  m.activation = activation;
  m.vocabulary = 64;
  Job job;
  job.workload.name = "small";
  job.workload.model = m;
  job.batch = {4, 1, 16};  // four micro-batches
  job.formats.compute = Format::kFp8;
  return job;
}

/// y = x w^T, then with dy in place of y dx = dy w, dw = x^T dy; x, w and dy are cast once each,
/// and `between` may write them before the last product.
struct Layer {
  static constexpr std::int64_t kRows = 24, kIn = 32, kOut = 48;
  ProgramBuilder b;
  TensorId x = b.buffer("x", kRows, kIn, Format::kBf16);
  TensorId w = b.buffer("w", kOut, kIn, Format::kBf16);
  TensorId y = b.buffer("y", kRows, kOut, Format::kBf16);
  TensorId dx = b.buffer("dx", kRows, kIn, Format::kBf16);
  TensorId dw = b.buffer("dw", kIn, kOut, Format::kFp32);

  void cast(TensorId t) {
    b.op(OpKind::kCast, "cast", {b.tensor_at(t).elements()}).in({t}).out({t}).format(Format::kFp8);
  }
  void product(std::array<std::int64_t, 3> shape, TensorId a, TensorId c, TensorId out,
               std::uint8_t flags, Phase phase) {
    b.op(OpKind::kGemm, "product", {shape[0], shape[1], shape[2], 1})
        .in({a, c})
        .out({out})
        .format(Format::kFp8)
        .phase(phase)
        .flags(flags);
  }
  Program program(const std::function<void(Layer&)>& between = [](Layer&) {}) {
    const auto step = b.begin_segment("step");
    cast(w);                                                                       // 0
    cast(x);                                                                       // 1
    product({kRows, kOut, kIn}, x, w, y, op_flags::kTransposeB, Phase::kForward);  // 2
    cast(y);                                                                       // 3: dy
    product({kRows, kIn, kOut}, y, w, dx, 0, Phase::kBackward);                    // 4
    between(*this);
    product({kIn, kOut, kRows}, x, y, dw, op_flags::kTransposeA, Phase::kBackward);  // last
    b.end_segment();
    b.call(step);
    return std::move(b).finish();
  }
};

}  // namespace

TEST_CASE("a value is quantised once for all products that read it", "[runtime][cuda]") {
  Layer layer;
  const Program program = layer.program();
  const QuantisedPlan plan = plan_of(program);
  REQUIRE(plan.casts.size() == 3);
  REQUIRE(plan.copies.size() == 6);  // each as it is and turned
  const auto copy = [&](std::int32_t i) { return plan.copies.at(static_cast<std::size_t>(i)); };
  const auto cast = [&](std::size_t issue) {
    return plan.casts.at(static_cast<std::size_t>(plan.uses.at(issue).cast));
  };
  // Forward: x and w by rows. Data gradient: dy by rows, w by columns.
  CHECK(plan.uses[2].a == cast(1).plain);
  CHECK(plan.uses[2].b == cast(0).plain);
  CHECK(plan.uses[4].a == cast(3).plain);
  CHECK(plan.uses[4].b == cast(0).turned);
  CHECK((copy(cast(0).turned).rows == Layer::kIn && copy(cast(0).turned).pitch == Layer::kOut));
  // Weight gradient: sums over the rows of both.
  CHECK(plan.uses[5].a == cast(1).turned);
  CHECK(plan.uses[5].b == cast(3).turned);
  CHECK((copy(cast(3).turned).rows == Layer::kOut && copy(cast(3).turned).pitch == 32));  // of 24
  CHECK_FALSE(cast(0).gradient);
  CHECK(cast(3).gradient);
}

TEST_CASE("what changed since it was cast is quantised by the product", "[runtime][cuda]") {
  Layer layer;
  const Program program = layer.program(
      [](Layer& l) { l.b.op(OpKind::kFill, "new x", {l.b.tensor_at(l.x).elements()}).out({l.x}); });
  const QuantisedPlan plan = plan_of(program);
  CHECK(plan.uses.back().a == QuantisedPlan::kNone);
  CHECK(plan.uses.back().b != QuantisedPlan::kNone);
  CHECK(plan.uses[2].a != QuantisedPlan::kNone);
}

TEST_CASE("every product of a transformer's layers finds its operands quantised",
          "[runtime][cuda]") {
  const auto activation = GENERATE(Activation::kGelu, Activation::kSwiGlu);
  const Job job = fp8_job(activation);
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.program_of(0);
  const std::vector<IssuedOp> issues = issues_of(program);
  const QuantisedPlan plan = plan_of(program);
  std::size_t products = 0;
  std::size_t casts = 0;
  for (std::size_t i = 0; i < issues.size(); ++i) {
    const Op& op = *issues[i].op;
    INFO(program.name(op));
    if (op.kind == OpKind::kGemm && op.format == Format::kFp8) {
      ++products;
      const Product p = product_of(program, op);
      REQUIRE(plan.uses[i].a != QuantisedPlan::kNone);
      REQUIRE(plan.uses[i].b != QuantisedPlan::kNone);
      const auto& a = plan.copies[static_cast<std::size_t>(plan.uses[i].a)];
      const auto& b = plan.copies[static_cast<std::size_t>(plan.uses[i].b)];
      CHECK((a.rows == p.m && b.rows == p.n && a.pitch == b.pitch && a.pitch >= p.k));
      CHECK(plan.casts[static_cast<std::size_t>(a.cast)].gradient == p.gradient_a);
      CHECK(plan.casts[static_cast<std::size_t>(b.cast)].gradient == p.gradient_b);
    }
    casts += plan.uses[i].cast != QuantisedPlan::kNone ? 1 : 0;
  }
  CHECK(products > 0);
  CHECK(2 * products > 2 * casts);  // operands read, against operands quantised
  CHECK(casts == plan.casts.size());
}

TEST_CASE("copies that are needed at one time do not overlap", "[runtime][cuda][property]") {
  const Job job = fp8_job(Activation::kSwiGlu);
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.program_of(0);
  const std::size_t in_graph = GENERATE(std::size_t{0}, std::size_t{5120}, std::size_t{1} << 20);
  const QuantisedPlan plan = plan_of(program, in_graph);
  CHECK(quantised_buffer(program).has_value());
  // From its cast to its last product a block belongs to one copy: replay who wrote it last.
  struct Block {
    std::size_t begin, end;
    std::int32_t cast;
  };
  std::vector<Block> written;
  const auto write = [&](std::size_t at, std::size_t bytes, std::int32_t cast) {
    REQUIRE(at + bytes <= plan.bytes);
    REQUIRE((at >= in_graph || at + bytes <= in_graph));
    std::erase_if(written, [&](const Block& b) { return b.begin < at + bytes && at < b.end; });
    written.push_back({at, at + bytes, cast});
  };
  const auto stands = [&](std::size_t at, std::size_t bytes, std::int32_t cast) {
    return std::any_of(written.begin(), written.end(), [&](const Block& b) {
      return b.begin == at && b.end == at + bytes && b.cast == cast;
    });
  };
  std::size_t all = 0;
  for (const QuantisedPlan::Use& use : plan.uses) {
    if (use.cast != QuantisedPlan::kNone) {
      const auto& cast = plan.casts[static_cast<std::size_t>(use.cast)];
      write(cast.scales, kernels::kQuantiseWorkspace, use.cast);
      for (const std::int32_t i : {cast.plain, cast.turned}) {
        if (i != QuantisedPlan::kNone) {
          const auto& c = plan.copies[static_cast<std::size_t>(i)];
          write(c.offset, static_cast<std::size_t>(c.rows * c.pitch), use.cast);
          all += static_cast<std::size_t>(c.rows * c.pitch);
        }
      }
    }
    for (const std::int32_t i : {use.a, use.b}) {
      if (i != QuantisedPlan::kNone) {
        const auto& c = plan.copies[static_cast<std::size_t>(i)];
        CHECK(stands(c.offset, static_cast<std::size_t>(c.rows * c.pitch), c.cast));
        CHECK(stands(plan.casts[static_cast<std::size_t>(c.cast)].scales,
                     kernels::kQuantiseWorkspace, c.cast));
      }
    }
  }
  CHECK(all > 0);
}
