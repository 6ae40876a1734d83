#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "core/error.h"
#include "core/graph/program_builder.h"
#include "runtime/cuda/communicator_plan.h"
#include "runtime/cuda/kernels/quantise.h"
#include "runtime/cuda/ledger.h"
#include "runtime/cuda/matmul_plan.h"
#include "runtime/cuda/message_plan.h"

using namespace stepcast;
using namespace stepcast::runtime::cuda;

namespace {

ExecutionGraph graph_of(Mesh mesh, std::vector<Communicator> communicators,
                        std::vector<Program> programs, std::vector<RankClass> classes) {
  ExecutionGraph graph;
  graph.mesh = mesh;
  graph.communicators = std::move(communicators);
  graph.programs = std::move(programs);
  graph.classes = std::move(classes);
  return graph;
}

/// A pipeline of `stages`: each stage but the last sends forward, each but the first sends back.
ExecutionGraph pipeline(std::int32_t stages) {
  std::vector<Program> programs;
  std::vector<RankClass> classes;
  for (std::int32_t s = 0; s < stages; ++s) {
    ProgramBuilder b;
    const TensorId x = b.buffer("x", 1, 4, Format::kBf16);
    const auto step = b.begin_segment("step");
    const auto message = [&](OpKind kind, std::int32_t communicator, std::int32_t peer) {
      auto op = b.op(kind, "message", {4, 0}).communicator(communicator, peer);
      kind == OpKind::kSend ? op.in({x}) : op.out({x});
    };
    if (s > 0) {
      message(OpKind::kRecv, 0, s - 1);
      message(OpKind::kSend, 1, s - 1);
    }
    if (s + 1 < stages) {
      message(OpKind::kSend, 0, s + 1);
      message(OpKind::kRecv, 1, s + 1);
    }
    b.op(OpKind::kAllReduce, "sum", {4}).communicator(2).in({x}).out({x});
    b.end_segment();
    b.call(step);
    programs.push_back(std::move(b).finish());
    classes.push_back({s, {s}});
  }
  Mesh mesh;
  mesh.pipeline = stages;
  const std::vector<Axis> axes{Axis::kPipeline};
  return graph_of(
      mesh,
      {{"forward", axes, {}}, {"backward", axes, {}}, {"all", axes, {}}, {"unused", axes, {}}},
      std::move(programs), std::move(classes));
}

}  // namespace

TEST_CASE("communicators are split off in rounds of disjoint groups", "[runtime][cuda]") {
  const std::int32_t stages = GENERATE(2, 3, 4, 7);
  CAPTURE(stages);
  const ExecutionGraph graph = pipeline(stages);
  const CommunicatorPlan plan = communicator_plan(graph);
  // One round for the sum; communicators with messages only, or not used, have none.
  CHECK(plan.round_of == std::vector<std::int32_t>{-1, -1, 0, -1});
  CHECK(plan.rounds[0].groups.size() == 1);
  // Each neighbouring pair exchanges messages both ways.
  CHECK(plan.pairs.size() == 2 * static_cast<std::size_t>(stages - 1));
  for (const SplitRound& round : plan.rounds) {
    std::set<std::int32_t> seen;
    for (const auto& group : round.groups) {
      for (const std::int32_t rank : group) {
        CHECK(seen.insert(rank).second);
      }
    }
  }
  // A rank inside has two neighbours and two directions: four rounds are enough for any chain.
  CHECK(plan.rounds.size() <= 1 + 4);
  for (const CommunicatorPlan::Pair& p : plan.pairs) {
    const auto sender = split_of(plan.rounds[p.round], p.sender);
    const auto receiver = split_of(plan.rounds[p.round], p.receiver);
    CHECK(sender.color == receiver.color);
    CHECK(sender.key == 0);
    CHECK(receiver.key == 1);
  }
  CHECK(split_of({{{0, 1}}}, 2).color == -1);
}

TEST_CASE("groups of mesh axes are rounds with all their groups", "[runtime][cuda]") {
  // 2 x 3 ranks, a sum over data: ranks {0, 2, 4} and {1, 3, 5}.
  ProgramBuilder b;
  const TensorId x = b.buffer("x", 1, 4, Format::kFp32);
  const auto step = b.begin_segment("step");
  b.op(OpKind::kAllReduce, "sum", {4}).communicator(0).in({x}).out({x});
  b.end_segment();
  b.call(step);
  std::vector<Program> programs;
  programs.push_back(std::move(b).finish());
  Mesh mesh;
  mesh.tensor = 2;
  mesh.data = 3;
  const ExecutionGraph graph =
      graph_of(mesh, {{"data", {Axis::kData}, {}}}, std::move(programs), {{0, {0, 1, 2, 3, 4, 5}}});
  const CommunicatorPlan plan = communicator_plan(graph);
  REQUIRE(plan.rounds.size() == 1);
  CHECK(plan.rounds[0].groups == std::vector<std::vector<std::int32_t>>{{0, 2, 4}, {1, 3, 5}});
  CHECK(split_of(plan.rounds[0], 5).color == 1);
  CHECK(split_of(plan.rounds[0], 5).key == 2);
}

TEST_CASE("an exchange is the same from both sides", "[runtime][cuda][property]") {
  const int members = GENERATE(1, 2, 5, 8);
  std::mt19937 random(7);
  const auto n = static_cast<std::size_t>(members);
  std::vector<std::vector<std::int64_t>> sends(n, std::vector<std::int64_t>(n));
  for (auto& row : sends) {
    for (std::int64_t& count : row) {
      count = random() % 3 == 0 ? 0 : static_cast<std::int64_t>(random() % 100);
    }
  }
  std::map<std::pair<int, int>, std::size_t> sent, received;
  for (int rank = 0; rank < members; ++rank) {
    std::vector<std::int64_t> receives(n);
    for (std::size_t p = 0; p < n; ++p) {
      receives[p] = sends[p][static_cast<std::size_t>(rank)];
    }
    const auto plan = message_plan(rank, sends[static_cast<std::size_t>(rank)], receives);
    std::vector<bool> covered(1000, false);
    for (const Message& m : plan) {
      CHECK(m.count > 0);
      const auto key = m.sends ? std::pair(rank, m.peer) : std::pair(m.peer, rank);
      (m.sends ? sent : received)[key] = m.count;
      for (std::size_t i = m.offset; m.sends && i < m.offset + m.count; ++i) {
        CHECK(!covered[i]);  // parts do not overlap
        covered[i] = true;
      }
    }
  }
  CHECK(sent == received);
  for (int from = 0; from < members; ++from) {
    for (int to = 0; to < members; ++to) {
      const auto count = static_cast<std::size_t>(
          sends[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)]);
      CHECK((sent.count({from, to}) != 0 ? sent.at({from, to}) : 0) == count);
    }
  }
}

TEST_CASE("a part for itself has one size", "[runtime][cuda]") {
  CHECK_THROWS_AS(message_plan(1, std::vector<std::int64_t>{1, 2}, std::vector<std::int64_t>{1, 3}),
                  InternalError);
}

namespace {

/// C = op(A) op(B) as a column-major library computes it from a plan; fp32, integers, so exact.
std::vector<float> by_columns(const MatmulPlan& p, const std::vector<float>& first,
                              const std::vector<float>& second, std::vector<float> out) {
  const auto at = [](const MatmulPlan::Matrix& m, const std::vector<float>& data, std::int64_t i,
                     std::int64_t j) {
    const std::int64_t row = m.transpose ? j : i;
    const std::int64_t column = m.transpose ? i : j;
    REQUIRE(row < m.rows);
    REQUIRE(column < m.columns);
    return data.at(static_cast<std::size_t>(row + column * m.leading));
  };
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < p.k; ++k) {
        sum += at(p.first, first, i, k) * at(p.second, second, k, j);
      }
      float& to = out.at(static_cast<std::size_t>(i + j * p.out.leading));
      to = p.alpha * sum + p.beta * to;
    }
  }
  return out;
}

}  // namespace

TEST_CASE("a row-major product is planned column-major", "[runtime][cuda]") {
  const bool transpose_a = GENERATE(false, true);
  const bool transpose_b = GENERATE(false, true);
  const float beta = GENERATE(0.0F, 1.0F);
  const std::int64_t gap = GENERATE(0, 3);  // rows of a wider matrix
  Product p;
  p.m = 3;
  p.n = 5;
  p.k = 2;
  p.transpose_a = transpose_a;
  p.transpose_b = transpose_b;
  p.beta = beta;
  const std::int64_t width_a = (transpose_a ? p.m : p.k) + gap;
  const std::int64_t width_b = (transpose_b ? p.k : p.n) + gap;
  p.stride_a = width_a;
  p.stride_b = width_b;
  p.stride_c = p.n + gap;
  std::vector<float> a(static_cast<std::size_t>((transpose_a ? p.k : p.m) * width_a));
  std::vector<float> b(static_cast<std::size_t>((transpose_b ? p.n : p.k) * width_b));
  std::vector<float> c(static_cast<std::size_t>(p.m * p.stride_c), 7);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(i % 5) - 2;
  }
  for (std::size_t i = 0; i < b.size(); ++i) {
    b[i] = static_cast<float>(i % 7) - 3;
  }
  const auto result = by_columns(matmul_plan(p, 0, 0, 0), b, a, c);
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      float expected = beta * 7;
      for (std::int64_t k = 0; k < p.k; ++k) {
        const float av =
            a[static_cast<std::size_t>(transpose_a ? k * width_a + i : i * width_a + k)];
        const float bv =
            b[static_cast<std::size_t>(transpose_b ? j * width_b + k : k * width_b + j)];
        expected += av * bv;
      }
      CHECK(result[static_cast<std::size_t>(i * p.stride_c + j)] == expected);
    }
  }
}

TEST_CASE("products follow the op, and operands of another format are converted",
          "[runtime][cuda]") {
  ProgramBuilder b;
  const TensorId logits = b.buffer("logits", 8, 32, Format::kFp32);
  const TensorId weight = b.buffer("weight", 32, 16, Format::kBf16);
  const TensorId out = b.buffer("out", 8, 16, Format::kBf16);
  const auto s = b.begin_segment("step");
  b.op(OpKind::kGemm, "product", {8, 16, 32, 1})
      .in({logits, weight})
      .out({out})
      .format(Format::kBf16)
      .flags(op_flags::kAccumulate);
  b.op(OpKind::kGemm, "too large", {80, 16, 32, 1}).in({logits, weight}).out({out});
  b.end_segment();
  b.call(s);
  const Program program = std::move(b).finish();
  const Product p = product_of(program, program.ops[0]);
  CHECK(p.beta == 1);
  const MatmulPlan plan = matmul_plan(p, 1024, 2 * 1024 + 32, 4);
  CHECK(plan.m == 16);
  CHECK(plan.n == 8);
  CHECK(!plan.first.converted);  // our B
  CHECK(plan.first.alignment == 32);
  CHECK(plan.second.converted);  // our A: fp32
  CHECK(plan.second.format == Format::kBf16);
  CHECK(plan.converted_bytes() == 8 * 32 * 2);  // already a multiple of 256
  CHECK(plan.out.alignment == 4);
  CHECK_THROWS_WITH(product_of(program, program.ops[1]), Catch::Contains("too large"));
  Product blocks = p;
  blocks.compute = Format::kMxfp8;
  CHECK_THROWS_AS(matmul_plan(blocks, 0, 0, 0), InputError);
  Product tf32;
  tf32.m = tf32.n = tf32.k = 4;
  tf32.compute = Format::kTf32;
  CHECK(matmul_plan(tf32, 0, 0, 0).tf32);
  CHECK(!matmul_plan(tf32, 0, 0, 0).first.converted);
  CHECK(!(matmul_plan(tf32, 0, 0, 0) == plan));
}

TEST_CASE("fp8 operands stand with the summed dimension innermost", "[runtime][cuda]") {
  Product p;
  p.m = 24;
  p.n = 48;
  p.k = 20;
  p.a = p.b = p.c = Format::kBf16;
  p.compute = Format::kFp8;
  for (const bool transposed : {false, true}) {  // however they are stored
    p.transpose_a = p.transpose_b = transposed;
    p.gradient_b = transposed;
    const MatmulPlan plan = matmul_plan(p, 0, 0, 0);
    CHECK(plan.fp8());
    CHECK(plan.k == 32);  // 20 padded to whole 16
    CHECK(plan.first.transpose);
    CHECK(!plan.second.transpose);
    CHECK(plan.first.rows == 32);
    CHECK(plan.first.columns == 48);
    CHECK(plan.second.columns == 24);
    CHECK(plan.first.gradient == transposed);
    CHECK(!plan.second.gradient);
    // 32 * 48 and 32 * 24 bytes, and what the scales are found with.
    CHECK(plan.converted_bytes() == 1536 + 768 + 2 * kernels::kQuantiseWorkspace);
  }
  Product narrow = p;
  narrow.n = 40;
  CHECK_THROWS_WITH(matmul_plan(narrow, 0, 0, 0),
                    Catch::Contains("24 x 40 x 20") && Catch::Contains("multiples of 16"));
  Product many = p;
  many.batch = 2;
  CHECK_THROWS_WITH(matmul_plan(many, 0, 0, 0), Catch::Contains("2 of them"));
  CHECK_THROWS_AS(matmul_plan(p, 0, 0, 8), InputError);  // a result that begins anywhere
}

TEST_CASE("gradients stand left in backward products but for those of weights", "[runtime][cuda]") {
  ProgramBuilder b;
  const TensorId x = b.buffer("x", 16, 16, Format::kBf16);
  const auto s = b.begin_segment("step");
  for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
    for (const std::uint8_t flags : {op_flags::kTransposeB, op_flags::kTransposeA}) {
      b.op(OpKind::kGemm, "product", {16, 16, 16, 1})
          .in({x, x})
          .out({x})
          .format(Format::kFp8)
          .phase(phase)
          .flags(flags);
    }
  }
  b.end_segment();
  b.call(s);
  const Program program = std::move(b).finish();
  const auto gradients = [&](std::size_t op) {
    const Product p = product_of(program, program.ops[op]);
    return std::pair(p.gradient_a, p.gradient_b);
  };
  CHECK(gradients(0) == std::pair(false, false));
  CHECK(gradients(1) == std::pair(false, false));
  CHECK(gradients(2) == std::pair(true, false));
  CHECK(gradients(3) == std::pair(false, true));
}

TEST_CASE("the ledger says where device memory went", "[runtime][cuda]") {
  Ledger ledger;
  ledger.add("parameter", 1e9);
  ledger.add("activation", 3e9);
  ledger.add("batch", 2e6);
  ledger.add("batch", -2e6);  // released
  CHECK(ledger.total() == Bytes(4e9));
  const std::string text =
      out_of_memory(ledger, "workspaces", 500'000'000, 100'000'000, 4'200'000'000);
  INFO(text);
  CHECK(text.find("workspaces needs 0.500 GB, 0.100 GB of 4.200 GB are free") != std::string::npos);
  CHECK(text.find("activation") < text.find("parameter"));  // largest first
  CHECK(text.find("  batch ") == std::string::npos);
  CHECK(text.find("4.000 GB") != std::string::npos);
}
