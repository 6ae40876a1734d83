#include "workloads/passes/program_editor.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>

#include "tests/workloads/transformer_jobs.h"
#include "workloads/passes/graph_pass.h"
#include "workloads/transformer/transformer.h"

using namespace stepcast;
using namespace stepcast::workloads;

namespace {

/// A product, the sum of its result over ranks, and an addition that awaits the sum.
OpWriter::Written summed_product() {
  OpWriter w(Format::kBf16);
  const TensorId x = w.builder().activation("x", 4, 4, Format::kBf16);
  const TensorId y = w.value("layer.0.y", "y", 4, 4, Format::kBf16);
  const std::uint32_t segment = w.begin_segment("forward.0", SegmentKind::kForward);
  w.compute(OpKind::kGemm, "product", {4, 4, 4, 1}).in({x, x}).out({y});
  OpWriter::Transfer sum;
  sum.name = "sum";
  sum.elements = 16;
  sum.in = sum.out = {y};
  w.await(w.transfer(Channel::kTensor, sum));
  w.part(LayerPart::kLayer, 0, [&] { w.compute(OpKind::kAdd, "add", {4, 4}).in({y, x}).out({x}); });
  w.end_segment();
  w.builder().call(segment, 0);
  return std::move(w).finish();
}

void keep_calls(ProgramEditor& edit) {
  for (const Call& call : edit.program().calls) {
    edit.writer().builder().call(call.segment, call.microbatch);
  }
}

/// Inserts a fill before the addition, after `awaits` of what is awaited there.
OpWriter::Written with_fill(std::uint32_t awaits) {
  OpWriter::Written w = summed_product();
  ProgramEditor edit(w.program, w.order, ProgramEditor::Tables::kSaved);
  const Segment& s = edit.program().segments.front();
  edit.begin_segment(s, s.name, s.microbatches);
  edit.keep_to({2, awaits});
  edit.writer().compute(OpKind::kFill, "fill", {16}).out({0});
  edit.end_segment();
  keep_calls(edit);
  edit.finish(w.program, w.order);
  return w;
}

void check_equal(const Program& a, const Program& b) {
  CHECK(a.names == b.names);
  CHECK(a.operands == b.operands);
  CHECK(a.waits == b.waits);
  CHECK(a.streams == b.streams);
  CHECK(a.events == b.events);
  REQUIRE(a.tensors.size() == b.tensors.size());
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    CHECK(a.tensors[i].name == b.tensors[i].name);
    CHECK(a.tensors[i].view_of == b.tensors[i].view_of);
    CHECK(a.tensors[i].bytes() == b.tensors[i].bytes());
  }
  REQUIRE(a.ops.size() == b.ops.size());
  for (std::size_t i = 0; i < a.ops.size(); ++i) {
    const Op& x = a.ops[i];
    const Op& y = b.ops[i];
    CHECK((x.kind == y.kind && x.name == y.name && x.stream == y.stream && x.record == y.record &&
           x.shape == y.shape && x.flops == y.flops && x.first_operand == y.first_operand &&
           x.waits == y.waits && x.phase == y.phase));
  }
}

}  // namespace

TEST_CASE("a program edited without a change is what it was", "[workloads][passes]") {
  Job job = test::llama_job(4, 64, 4, 2, 128, 32, 128);
  test::split(job, 2, 2, 2, 4);
  job.parallel.sequence_parallel = true;
  job.parallel.zero = 3;
  job.parallel.overlap.data = job.parallel.overlap.tensor = job.parallel.overlap.pipeline = true;
  job.parallel.recompute.kind = RecomputeKind::kSelective;
  for (const auto tables : {ProgramEditor::Tables::kSaved, ProgramEditor::Tables::kAnew}) {
    GraphUnderConstruction plain = build_transformer(job);
    GraphUnderConstruction edited = build_transformer(job);
    const GraphPass& sharding = graph_passes().front();
    sharding.run(plain, job);
    sharding.run(edited, job);
    for (std::size_t i = 0; i < edited.orders.size(); ++i) {
      Program& program = edited.graph.programs[i];
      ProgramEditor edit(program, edited.orders[i], tables);
      if (tables == ProgramEditor::Tables::kAnew) {
        edit.keep_tensors();
      }
      for (const Segment& s : edit.program().segments) {
        edit.begin_segment(s, s.name, s.microbatches);
        edit.end_segment();
      }
      keep_calls(edit);
      edit.finish(program, edited.orders[i]);
    }
    for (const std::string_view name : {"recompute", "streams"}) {
      const auto pass = std::find_if(graph_passes().begin(), graph_passes().end(),
                                     [&](const GraphPass& p) { return p.name == name; });
      pass->run(plain, job);
      pass->run(edited, job);
    }
    for (std::size_t i = 0; i < plain.graph.programs.size(); ++i) {
      check_equal(plain.graph.programs[i], edited.graph.programs[i]);
    }
  }
}

TEST_CASE("an inserted op takes what is awaited at its place", "[workloads][passes]") {
  for (const std::uint32_t awaits : {0U, 1U}) {
    const OpWriter::Written w = with_fill(awaits);
    REQUIRE(w.program.ops.size() == 4);
    CHECK(w.program.segments.front().op_count == 4);
    CHECK(w.program.ops[2].kind == OpKind::kFill);
    CHECK(w.order.ops[2].awaits == awaits);
    CHECK(w.order.ops[3].awaits == 1 - awaits);
    // The part begins after what is still awaited before its op, and ends after it.
    REQUIRE(w.order.parts.size() == 1);
    CHECK(w.order.parts.front().begin.op == 3);
    CHECK(w.order.parts.front().begin.awaits == 1 - awaits);
    CHECK(w.order.parts.front().end == 4);
  }
}

TEST_CASE("a segment written twice has transfers of its own each time", "[workloads][passes]") {
  OpWriter::Written w = summed_product();
  ProgramEditor edit(w.program, w.order, ProgramEditor::Tables::kSaved);
  const Segment& s = edit.program().segments.front();
  edit.begin_segment(s, s.name, MicrobatchRole::kAny);
  edit.end_segment();
  edit.begin_segment(s, "forward_first.0", MicrobatchRole::kFirst);
  edit.end_segment();
  keep_calls(edit);
  edit.finish(w.program, w.order);
  REQUIRE(w.program.ops.size() == 6);
  CHECK(w.order.transfers.size() == 2);
  CHECK(w.order.ops[1].transfer == 0);
  CHECK(w.order.ops[4].transfer == 1);
  CHECK(w.order.awaits_of(w.order.ops[2]).front() == 0);
  CHECK(w.order.awaits_of(w.order.ops[5]).front() == 1);
  CHECK(w.order.parts.size() == 2);
  CHECK(w.order.parts.back().begin.op == 5);
  CHECK(w.order.values.at(1) == "y");
}
