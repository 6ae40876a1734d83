#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <mutex>
#include <vector>

#include "core/graph/program_builder.h"
#include "runtime/cpu/executor.h"
#include "runtime/op_operands.h"

using namespace stepcast;
using namespace stepcast::runtime;
using namespace stepcast::runtime::cpu;

namespace {

/// Keeps everything it is told; streams report from their own threads.
class Recorder : public Observer {
 public:
  void on_op(const OpSpan& span) override {
    const std::lock_guard lock(mutex_);
    ops.push_back(span);
  }
  void on_host(const HostSpan& span) override { hosts.push_back(span); }
  void on_step_begin(std::int32_t, std::int32_t, SimTime at) override { begin = at; }
  void on_step_end(std::int32_t, std::int32_t, SimTime at) override { end = at; }
  /// The span of the n-th op of the program.
  [[nodiscard]] OpSpan of(std::uint32_t op, std::uint32_t call = 0) const {
    for (const OpSpan& span : ops) {
      if (span.ref == OpRef{call, op}) {
        return span;
      }
    }
    FAIL("op " << op << " of call " << call << " was not reported");
    return {};
  }
  std::vector<OpSpan> ops;
  std::vector<HostSpan> hosts;
  SimTime begin{};
  SimTime end{};

 private:
  std::mutex mutex_;
};

ExecutionGraph one_rank(ProgramBuilder builder) {
  ExecutionGraph graph;
  graph.programs.push_back(std::move(builder).finish());
  graph.classes.push_back({0, {0}});
  return graph;
}

ParameterPiece uniform(std::string_view name, std::int64_t columns, double scale = 1) {
  ParameterPiece piece;
  piece.key = parameter_key(name);
  piece.columns = columns;
  piece.scale = scale;
  return piece;
}

ParameterPiece constant(std::int64_t columns, double value) {
  ParameterPiece piece;
  piece.columns = columns;
  piece.constant = value;
  return piece;
}

}  // namespace

TEST_CASE("a program of products and sums computes what its ops say", "[runtime][executor]") {
  ProgramBuilder b;
  const auto a = b.parameter("a", 3, 4, Format::kFp32, Format::kFp32, {uniform("a", 4)});
  const auto w = b.parameter("w", 4, 2, Format::kFp32, Format::kFp32, {uniform("w", 2)});
  const TensorId y = b.buffer("y", 3, 2, Format::kFp32);
  const TensorId twice = b.buffer("twice", 3, 2, Format::kFp32);
  const auto s = b.begin_segment("step");
  b.op(OpKind::kGemm, "product", {3, 2, 4, 1}).in({a.weight, w.weight}).out({y});
  b.op(OpKind::kAdd, "sum", {3, 2}).in({y, y}).out({twice});
  b.end_segment();
  b.call(s);
  const ExecutionGraph graph = one_rank(std::move(b));
  Executor executor(graph, 0, {}, {});
  executor.run_step(0, {}, -1);
  const Matrix ma = executor.tensor(a.weight);
  const Matrix mw = executor.tensor(w.weight);
  const Matrix result = executor.tensor(twice);
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 2; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < 4; ++k) {
        sum += static_cast<double>(ma.data[i * 4 + k]) * static_cast<double>(mw.data[k * 2 + j]);
      }
      CHECK(result.data[i * 2 + j] == Approx(2 * sum).margin(1e-5));
    }
  }
}

TEST_CASE("each optimizer finds its gradient, weight and states", "[runtime][executor]") {
  // SGD on two parameters in one op: w -= 0.1 g, with g = 2 everywhere (filled by adding
  // constants).
  ProgramBuilder b;
  const auto p = b.parameter("p", 1, 8, Format::kFp32, Format::kFp32, {constant(8, 1.0)});
  const auto q = b.parameter("q", 2, 3, Format::kFp32, Format::kFp32, {constant(3, -1.0)});
  Tensor ones{.name = "ones",
              .role = TensorRole::kBuffer,
              .format = Format::kFp32,
              .rows = 1,
              .columns = 8,
              .per_microbatch = false,
              .pieces = {constant(8, 1.0)}};
  Tensor more = ones;
  more.rows = 2;
  more.columns = 3;
  more.pieces = {constant(3, 1.0)};
  const TensorId one = b.tensor(ones);
  const TensorId one_q = b.tensor(more);
  const auto s = b.begin_segment("step");
  b.op(OpKind::kAdd, "gp", {1, 8}).in({one, one}).out({p.gradient});
  b.op(OpKind::kAdd, "gq", {2, 3}).in({one_q, one_q}).out({q.gradient});
  b.op(OpKind::kOptimizer, "sgd", {14})
      .in({p.gradient, q.gradient})
      .out({p.weight, q.weight})
      .attributes(OptimizerAttributes{OptimizerKind::kSgd});
  b.end_segment();
  b.call(s);
  const ExecutionGraph graph = one_rank(std::move(b));
  Executor executor(graph, 0, {}, {});
  for (int step = 0; step < 3; ++step) {
    executor.run_step(step, {}, -1);
  }
  const float moved = 3 * 2 * learning_rate(OptimizerKind::kSgd);
  CHECK(executor.tensor(p.weight).data[7] == Approx(1 - moved));
  CHECK(executor.tensor(q.weight).data[5] == Approx(-1 - moved));
}

TEST_CASE("an event holds back the other stream until its op has ended", "[runtime][executor]") {
  constexpr std::int64_t n = 192;
  ProgramBuilder b;
  const auto a = b.parameter("a", n, n, Format::kFp32, Format::kFp32, {uniform("a", n, 0.05)});
  const TensorId x = b.buffer("x", n, n, Format::kFp32);
  const TensorId y = b.buffer("y", n, n, Format::kFp32);
  const auto done = b.event();
  const auto s = b.begin_segment("step");
  b.op(OpKind::kGemm, "long", {n, n, n, 1}).in({a.weight, a.weight}).out({x}).records(done);
  b.op(OpKind::kFill, "free", {n * n}).out({y}).on("other");
  b.op(OpKind::kAdd, "held", {n, n}).in({x, y}).out({y}).on("other").waits(done);
  b.end_segment();
  for (int call = 0; call < 5; ++call) {
    b.call(s);
  }
  const ExecutionGraph graph = one_rank(std::move(b));
  for (int round = 0; round < 10; ++round) {
    Recorder recorder;
    Executor executor(graph, 0, {}, {}, &recorder);
    executor.run_step(0, {}, 0);
    executor.run_step(1, {}, 1);
    REQUIRE(recorder.ops.size() == 30);
    for (const OpSpan& span : recorder.ops) {
      CHECK(span.issued <= span.begin);
      CHECK(span.begin <= span.end);
    }
    for (std::int32_t step = 0; step < 2; ++step) {
      std::map<OpRef, OpSpan> spans;
      for (const OpSpan& span : recorder.ops) {
        if (span.step == step) {
          spans[span.ref] = span;
        }
      }
      for (std::uint32_t call = 0; call < 5; ++call) {
        // The wait refers to the record of its own call, not to an earlier one of the same event.
        CHECK(spans[{call, 2}].begin >= spans[{call, 0}].end);
        CHECK(spans[{call, 2}].begin >= spans[{call, 1}].end);
      }
    }
    // y = 0 + a a: the data agrees with the order.
    CHECK(std::equal(executor.tensor(x).data, executor.tensor(x).data + n * n,
                     executor.tensor(y).data));
  }
}

TEST_CASE("a stream never holds more ops than its queue is deep", "[runtime][executor]") {
  constexpr std::uint32_t kDepth = 1024;  // kQueueDepth of runtime/cpu/executor.cpp
  constexpr std::uint32_t kOps = 6 * kDepth;
  ProgramBuilder b;
  const TensorId x = b.buffer("x", 1, 4096, Format::kFp32);
  const auto s = b.begin_segment("step");
  b.op(OpKind::kFill, "fill", {4096}).out({x});
  b.end_segment();
  for (std::uint32_t i = 0; i < kOps; ++i) {
    b.call(s);
  }
  const ExecutionGraph graph = one_rank(std::move(b));
  Recorder recorder;
  Executor executor(graph, 0, {}, {}, &recorder);
  executor.run_step(0, {}, 0);
  REQUIRE(recorder.ops.size() == kOps);
  for (std::uint32_t i = 0; i < kOps; ++i) {
    REQUIRE(recorder.ops[i].ref.call == i);  // first in, first out
    if (i >= kDepth) {
      // When op i was issued, op i - kDepth had ended: at most that many were under way.
      REQUIRE(recorder.ops[i].issued >= recorder.ops[i - kDepth].end);
    }
  }
  const auto full = std::count_if(recorder.hosts.begin(), recorder.hosts.end(),
                                  [](auto& h) { return h.kind == HostSpan::Kind::kQueueFull; });
  CHECK(full >= 1);
  CHECK(recorder.begin <= recorder.ops.front().issued);
  CHECK(recorder.end >= recorder.ops.back().end);
  // Host spans tile the step in order.
  for (std::size_t i = 1; i < recorder.hosts.size(); ++i) {
    CHECK(recorder.hosts[i].begin >= recorder.hosts[i - 1].end);
  }
}

TEST_CASE("copies join and split columns", "[runtime][executor]") {
  ProgramBuilder b;
  const auto left = b.parameter("l", 2, 3, Format::kFp32, Format::kFp32, {uniform("l", 3)});
  const auto right = b.parameter("r", 2, 1, Format::kFp32, Format::kFp32, {uniform("r", 1)});
  const TensorId joined = b.buffer("joined", 2, 4, Format::kFp32);
  const TensorId first = b.buffer("first", 2, 2, Format::kFp32);
  const TensorId last = b.buffer("last", 2, 2, Format::kFp32);
  const auto s = b.begin_segment("step");
  b.op(OpKind::kCopyColumns, "join", {2, 4}).in({left.weight, right.weight}).out({joined});
  b.op(OpKind::kCopyColumns, "split", {2, 4}).in({joined}).out({first, last});
  b.end_segment();
  b.call(s);
  const ExecutionGraph graph = one_rank(std::move(b));
  Executor executor(graph, 0, {}, {});
  executor.run_step(0, {}, -1);
  const float* l = executor.tensor(left.weight).data;
  const float* r = executor.tensor(right.weight).data;
  const std::vector<float> expected_first{l[0], l[1], l[3], l[4]};
  const std::vector<float> expected_last{l[2], r[0], l[5], r[1]};
  CHECK(std::equal(expected_first.begin(), expected_first.end(), executor.tensor(first).data));
  CHECK(std::equal(expected_last.begin(), expected_last.end(), executor.tensor(last).data));
}

TEST_CASE("a failing op ends the step with its error", "[runtime][executor]") {
  ProgramBuilder b;
  const TensorId small = b.buffer("small", 1, 1, Format::kFp32);
  const auto s = b.begin_segment("step");
  b.op(OpKind::kGemm, "too large", {8, 8, 8, 1}).in({small, small}).out({small});
  b.op(OpKind::kFill, "after", {1}).out({small});
  b.end_segment();
  b.call(s);
  const ExecutionGraph graph = one_rank(std::move(b));
  Executor executor(graph, 0, {}, {});
  CHECK_THROWS_WITH(executor.run_step(0, {}, -1), Catch::Contains("too large"));
}
