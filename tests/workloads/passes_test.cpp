#include "core/graph/memory_use.h"
#include "workloads/op_writer.h"
#include "workloads/passes/graph_pass.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/workloads/transformer_jobs.h"
#include "workloads/build_graph.h"
#include "workloads/transformer/transformer.h"

using namespace stepcast;
using namespace stepcast::workloads;

namespace {

/// Two tensor ranks, two stages, two replicas, all of whose transfers overlap.
Job overlapping_job() {
  Job job = test::llama_job(4, 64, 4, 2, 128, 32, 128);
  test::split(job, 2, 2, 2, 4);
  job.parallel.sequence_parallel = true;
  job.parallel.zero = 3;
  job.parallel.overlap.data = job.parallel.overlap.tensor = job.parallel.overlap.pipeline = true;
  job.parallel.bucket = Bytes(1e5);
  return job;
}

const GraphPass& pass_named(std::string_view name) {
  const auto at = std::find_if(graph_passes().begin(), graph_passes().end(),
                               [name](const GraphPass& p) { return p.name == name; });
  REQUIRE(at != graph_passes().end());
  return *at;
}

ExecutionGraph graph_with(const Job& job, const PassOptions& options) {
  GraphUnderConstruction draft = build_transformer(job);
  run_passes(draft, job, options);
  return std::move(draft.graph);
}

std::int64_t updated_elements(const Program& p) {
  std::int64_t elements = 0;
  for (const Op& op : p.ops) {
    elements += op.kind == OpKind::kOptimizer ? op.shape[0] : 0;
  }
  return elements;
}

/// Sizes here are even, so that nothing is padded.
std::int64_t stored_weights(const Program& p) {
  std::int64_t elements = 0;
  for (const Tensor& t : p.tensors) {
    elements += t.role == TensorRole::kParameter && !t.is_view() ? t.elements() : 0;
  }
  return elements;
}

/// Products in fp8 whose weights are quantised once a step, by two replicas.
Job quantising_job(int zero) {
  Job job = test::llama_job(4, 64, 4, 2, 128, 32, 128);
  test::split(job, 1, 1, 2, 4);
  job.formats.compute = Format::kFp8;
  job.parallel.zero = zero;
  job.parallel.bucket = Bytes(1e5);
  return job;
}

}  // namespace

TEST_CASE("passes have different names, and the job says which of them run",
          "[workloads][passes]") {
  std::vector<std::string_view> names;
  for (const GraphPass& pass : graph_passes()) {
    CHECK(std::find(names.begin(), names.end(), pass.name) == names.end());
    CHECK_FALSE(pass.what.empty());
    names.push_back(pass.name);
  }
  Job job = overlapping_job();
  GraphUnderConstruction draft = build_transformer(job);
  const std::vector<PassRun> runs = run_passes(draft, job, {.verify = true});
  const auto ran = [&runs](std::string_view name) {
    return std::any_of(runs.begin(), runs.end(), [&](const PassRun& r) { return r.name == name; });
  };
  CHECK(ran("shard_parameters"));
  CHECK(ran("streams"));
  CHECK_FALSE(ran("fuse_epilogues"));
  for (const PassRun& run : runs) {
    CHECK(run.time.base() >= 0);
  }
}

TEST_CASE("without streams a step is sequential, with the same ops in the same order",
          "[workloads][passes]") {
  const Job job = overlapping_job();
  const ExecutionGraph parallel = graph_with(job, {.verify = true});
  const ExecutionGraph sequential = graph_with(job, {.off = {"streams"}, .verify = true});
  REQUIRE(parallel.programs.size() == sequential.programs.size());
  for (std::size_t i = 0; i < parallel.programs.size(); ++i) {
    const Program& with = parallel.programs[i];
    const Program& without = sequential.programs[i];
    CHECK(with.streams.size() == 5);  // compute, tensor, data, forward, backward
    CHECK(without.streams.size() == 1);
    CHECK(without.events == 0);
    CHECK(without.waits.empty());
    REQUIRE(with.ops.size() == without.ops.size());
    for (std::size_t o = 0; o < with.ops.size(); ++o) {
      CHECK(with.ops[o].kind == without.ops[o].kind);
      CHECK(with.name(with.ops[o]) == without.name(without.ops[o]));
    }
  }
}

TEST_CASE("without recomputation a step is that of a job that recomputes nothing",
          "[workloads][passes]") {
  const Job nothing = overlapping_job();
  const ExecutionGraph plain = graph_with(nothing, {.verify = true});
  for (const RecomputeKind kind :
       {RecomputeKind::kSelective, RecomputeKind::kFull, RecomputeKind::kFirstLayers}) {
    Job job = nothing;
    job.parallel.recompute = {kind, 1, {.norms = true, .feed_forward = true}};
    const ExecutionGraph off = graph_with(job, {.off = {"recompute"}, .verify = true});
    const ExecutionGraph on = graph_with(job, {.verify = true});
    for (std::size_t i = 0; i < plain.programs.size(); ++i) {
      CHECK(off.programs[i].ops.size() == plain.programs[i].ops.size());
      CHECK(memory_use(off.programs[i]).total() == memory_use(plain.programs[i]).total());
      CHECK(on.programs[i].ops.size() > plain.programs[i].ops.size());
    }
    // The first stage holds two micro-batches; the last one, so that it gains nothing.
    CHECK(memory_use(on.programs[0]).total() < memory_use(plain.programs[0]).total());
  }
}

TEST_CASE("sharding adds exchanges, zeroes and updates of shards, and nothing else",
          "[workloads][passes]") {
  for (const int zero : {0, 1, 2, 3}) {
    for (const bool overlaps : {false, true}) {
      CAPTURE(zero, overlaps);
      Job job = overlapping_job();
      job.parallel.zero = zero;
      job.parallel.overlap.data = overlaps;
      const ExecutionGraph with = graph_with(job, {.verify = true});
      const ExecutionGraph without = graph_with(job, {.off = {"shard_parameters"}, .verify = true});
      const auto added = [&](const Op& op) {
        return op.kind == OpKind::kFill || op.phase == Phase::kGradientSync ||
               (op.communicator >= 0 &&
                with.communicators[static_cast<std::size_t>(op.communicator)].role ==
                    CommunicatorRole::kReplicas);
      };
      for (std::size_t i = 0; i < with.programs.size(); ++i) {
        const Program& p = with.programs[i];
        const Program& plain = without.programs[i];
        // Begin, forward, backward, update; the overlapped exchange has a backward pass of its own.
        REQUIRE(plain.segments.size() == 4);
        REQUIRE(p.segments.size() == (overlaps ? 5 : 4));
        for (const std::size_t s : {1, 2}) {
          std::vector<std::string> kept;
          for (const Op& op : p.ops_of(p.segments[s])) {
            if (!added(op)) {
              kept.push_back(p.name(op));
            }
          }
          std::vector<std::string> all;
          for (const Op& op : plain.ops_of(plain.segments[s])) {
            CHECK_FALSE(added(op));
            all.push_back(plain.name(op));
          }
          CHECK(kept == all);
        }
        // Without it one replica is left, which updates all it holds with its own gradients.
        for (const Op& op : plain.ops) {
          const bool among_replicas =
              op.communicator >= 0 &&
              without.communicators[static_cast<std::size_t>(op.communicator)].role ==
                  CommunicatorRole::kReplicas;
          CHECK_FALSE(among_replicas);
        }
        CHECK(updated_elements(plain) == stored_weights(plain));
        CHECK(updated_elements(p) == stored_weights(plain) / (zero > 0 ? 2 : 1));
      }
    }
  }
}

TEST_CASE("a verifier finds a weight that is read before it is gathered", "[workloads][passes]") {
  Job job = overlapping_job();
  GraphUnderConstruction draft = build_transformer(job);
  const GraphPass& sharding = pass_named("shard_parameters");
  sharding.run(draft, job);
  CHECK_FALSE(sharding.verify(draft));
  Program& p = draft.graph.programs.front();
  const auto gather = std::find_if(p.ops.begin(), p.ops.end(), [&](const Op& op) {
    return op.kind == OpKind::kAllGather &&
           draft.graph.communicators[static_cast<std::size_t>(op.communicator)].role ==
               CommunicatorRole::kReplicas;
  });
  REQUIRE(gather != p.ops.end());
  gather->kind = OpKind::kBroadcast;
  CHECK(sharding.verify(draft));
}

TEST_CASE("weights are quantised once they are gathered", "[workloads][passes]") {
  const auto segments_with = [](const Program& p, SegmentKind kind, MicrobatchRole role) {
    std::int64_t ops = 0;
    for (const Segment& s : p.segments) {
      for (const Op& op : p.ops_of(s)) {
        ops += s.kind == kind && s.microbatches == role && p.name(op) == "weights.quantise" ? 1 : 0;
      }
    }
    return ops;
  };
  constexpr auto kAny = MicrobatchRole::kAny;
  constexpr std::int64_t kProducts = 4 * 4;  // qkv, projection, fc1, fc2 of four layers
  SECTION("before all passes, where they are whole") {
    const ExecutionGraph graph = graph_with(quantising_job(1), {.verify = true});
    CHECK(segments_with(graph.programs[0], SegmentKind::kBegin, kAny) == kProducts);
  }
  SECTION("in the first pass, where that gathers them") {
    Job ahead = quantising_job(1);
    ahead.parallel.overlap.data = ahead.parallel.overlap.parameters = true;
    Job kept = quantising_job(3);
    kept.parallel.zero_reshard = false;
    for (const Job& job : {ahead, kept}) {
      const ExecutionGraph graph = graph_with(job, {.verify = true});
      const Program& p = graph.programs[0];
      CHECK(segments_with(p, SegmentKind::kBegin, kAny) == 0);
      CHECK(segments_with(p, SegmentKind::kForward, MicrobatchRole::kFirst) == kProducts);
      CHECK(segments_with(p, SegmentKind::kForward, kAny) == 0);
    }
  }
  SECTION("in each pass, where each gathers them: for the layer at work") {
    const ExecutionGraph graph = graph_with(quantising_job(3), {.verify = true});
    const Program& p = graph.programs[0];
    CHECK(segments_with(p, SegmentKind::kBegin, kAny) == 0);
    CHECK(segments_with(p, SegmentKind::kForward, kAny) == kProducts);
    CHECK(segments_with(p, SegmentKind::kBackward, kAny) == kProducts);
    const auto copies = std::find_if(p.tensors.begin(), p.tensors.end(), [](const Tensor& t) {
      return t.role == TensorRole::kBuffer && t.format == Format::kFp8;
    });
    REQUIRE(copies != p.tensors.end());
    // Query and output h^2, keys and values half of it each, three matrices of the block; twice.
    CHECK(copies->elements() == 2 * (3 * 64 * 64 + 3 * 64 * 128));
  }
}

TEST_CASE("a verifier finds a weight that is quantised before its gather", "[workloads][passes]") {
  Job job = quantising_job(1);
  job.parallel.overlap.data = job.parallel.overlap.parameters = true;
  GraphUnderConstruction draft = build_transformer(job);
  const GraphPass& sharding = pass_named("shard_parameters");
  sharding.run(draft, job);
  CHECK_FALSE(sharding.verify(draft));
  // A gather of this step's weights after the last pass comes too late for all of them.
  Program& p = draft.graph.programs.front();
  const auto finish = std::find_if(p.segments.begin(), p.segments.end(),
                                   [](const Segment& s) { return s.kind == SegmentKind::kFinish; });
  REQUIRE(finish != p.segments.end());
  const auto gather = std::find_if(p.ops.begin(), p.ops.end(),
                                   [](const Op& op) { return op.kind == OpKind::kAllGather; });
  REQUIRE(gather != p.ops.end());
  std::swap(p.ops[finish->first_op], *gather);
  CHECK(sharding.verify(draft));
}

TEST_CASE("a recomputed layer has the ops of its forward pass once more, before its gradients",
          "[workloads][passes]") {
  Job job = test::llama_job(2, 64, 4, 2, 128, 32, 128);
  test::split(job, 1, 1, 1, 1);
  job.parallel.recompute.kind = RecomputeKind::kFirstLayers;
  job.parallel.recompute.layers = 1;
  const ExecutionGraph graph = graph_with(job, {.verify = true});
  const Program& p = graph.programs.front();
  // norm, qkv, rope, attention, projection, add; norm, fc1, activation, fc2, add
  const std::vector<OpKind> layer{OpKind::kNormForward,
                                  OpKind::kGemm,
                                  OpKind::kRopeForward,
                                  OpKind::kAttentionForward,
                                  OpKind::kGemm,
                                  OpKind::kAdd,
                                  OpKind::kNormForward,
                                  OpKind::kGemm,
                                  OpKind::kActivationForward,
                                  OpKind::kGemm,
                                  OpKind::kAdd};
  std::vector<OpKind> again;
  for (const Op& op : p.ops) {
    if (op.phase == Phase::kRecompute) {
      again.push_back(op.kind);
    }
  }
  CHECK(again == layer);
  // Layer 0 is the last of the backward pass: one attention follows, its own.
  const auto last = std::find_if(p.ops.rbegin(), p.ops.rend(),
                                 [](const Op& op) { return op.phase == Phase::kRecompute; });
  const auto gradients = std::count_if(
      p.ops.rbegin(), last, [](const Op& op) { return op.kind == OpKind::kAttentionBackward; });
  CHECK(gradients == 1);
}

TEST_CASE("a verifier finds a temporary that is read before it is made again",
          "[workloads][passes]") {
  Job job = test::llama_job(2, 64, 4, 2, 128, 32, 128);
  test::split(job, 1, 1, 1, 1);
  job.parallel.recompute.kind = RecomputeKind::kFull;
  GraphUnderConstruction draft = build_transformer(job);
  const GraphPass& recompute = pass_named("recompute");
  recompute.run(draft, job);
  CHECK_FALSE(recompute.verify(draft));
  Program& p = draft.graph.programs.front();
  const auto again = std::find_if(p.ops.begin(), p.ops.end(), [](const Op& op) {
    return op.phase == Phase::kRecompute && op.kind == OpKind::kNormForward;
  });
  REQUIRE(again != p.ops.end());
  again->outputs = 0;
  CHECK(recompute.verify(draft));
}

TEST_CASE("ops that follow others by name wait where the two have different streams",
          "[workloads][passes]") {
  const bool overlaps = GENERATE(false, true);
  OpWriter w(Format::kFp32);
  w.order().by_name = true;
  const std::uint32_t all = w.begin_segment("all", SegmentKind::kOther);
  w.compute(OpKind::kFill, "first", {1});
  const OpId first = w.written();
  w.op(Channel::kExchange, OpKind::kFill, "exchange", {1});
  w.follows(first);
  const OpId exchange = w.written();
  w.compute(OpKind::kFill, "meanwhile", {1});
  w.follows(kNoOp);
  w.compute(OpKind::kFill, "last", {1});
  w.follows(exchange);
  w.follows(first);
  w.end_segment();
  w.builder().call(all);
  OpWriter::Written written = std::move(w).finish();
  GraphUnderConstruction draft;
  draft.graph.programs.push_back(std::move(written.program));
  draft.orders.push_back(std::move(written.order));
  Job job;
  job.devices = 2;
  job.parallel.overlap.output_all_to_all = overlaps;
  const GraphPass& streams = pass_named("streams");
  streams.run(draft, job);
  CHECK_FALSE(streams.verify(draft));
  const Program& p = draft.graph.programs.front();
  const auto waits = [&p](std::size_t op) {
    const auto events = p.waits_of(p.ops[op]);
    return std::vector<std::int32_t>(events.begin(), events.end());
  };
  using Events = std::vector<std::int32_t>;
  CHECK(p.events == (overlaps ? 2 : 0));
  CHECK(p.ops[1].stream == (overlaps ? 1 : 0));
  CHECK(waits(1) == (overlaps ? Events{p.ops[0].record} : Events{}));
  CHECK(waits(2).empty());
  CHECK(waits(3) == (overlaps ? Events{p.ops[1].record} : Events{}));
}

TEST_CASE("a verifier finds the wait for an event that nothing records", "[workloads][passes]") {
  const Job job = overlapping_job();
  GraphUnderConstruction draft = build_transformer(job);
  run_passes(draft, job, {.verify = true});
  const GraphPass& streams = pass_named("streams");
  CHECK_FALSE(streams.verify(draft));
  Program& program = draft.graph.programs.front();
  const std::int32_t event = program.waits.front();
  for (Op& op : program.ops) {
    op.record = op.record == event ? program.events++ : op.record;
  }
  CHECK(streams.verify(draft));
}

TEST_CASE("passes alone are those of the whole step where no weights are sharded",
          "[workloads][passes]") {
  for (const RecomputeKind recompute :
       {RecomputeKind::kNone, RecomputeKind::kSelective, RecomputeKind::kFull}) {
    Job job = overlapping_job();
    job.parallel.zero = 0;
    job.parallel.recompute.kind = recompute;
    const ExecutionGraph whole = build_graph(job);
    const ExecutionGraph alone = build_passes(job);
    for (std::size_t i = 0; i < whole.programs.size(); ++i) {
      const Program& p = whole.programs[i];
      const Program& q = alone.programs[i];
      CHECK(updated_elements(p) > 0);
      CHECK(updated_elements(q) == 0);
      const auto pass = [](const Program& of, SegmentKind kind) {
        std::vector<std::string> ops;
        for (const Segment& s : of.segments) {
          for (const Op& op : of.ops_of(s)) {
            if (s.kind == kind && s.microbatches == MicrobatchRole::kAny) {
              ops.push_back(of.name(op) + " on " + of.streams[op.stream] + " waits for " +
                            std::to_string(op.waits) + ", reads " +
                            std::to_string(op.bytes_read.base()));
            }
          }
        }
        return ops;
      };
      CHECK(pass(p, SegmentKind::kForward) == pass(q, SegmentKind::kForward));
      CHECK(pass(p, SegmentKind::kBackward) == pass(q, SegmentKind::kBackward));
      CHECK_FALSE(pass(q, SegmentKind::kBackward).empty());
    }
  }
}
