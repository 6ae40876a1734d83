#include <algorithm>
#include <catch2/catch.hpp>

#include "simulator/reports/memory_ledger.h"
#include "tests/workloads/transformer_graphs.h"

// Facts that a system says of a framework, beside the arithmetic: FrameworkTraits.
using namespace stepcast;
using namespace stepcast::test;

namespace {

constexpr std::int64_t kSequence = 64;
constexpr std::int64_t kHidden = 128;

Job with(Job job, bool FrameworkTraits::*trait) {
  job.system.framework.*trait = true;
  return job;
}

simulator::MemoryLedger ledger_of(const Job& job, std::size_t stage) {
  return simulator::memory_ledger(workloads::build_graph(job), stage, job.system.device);
}

}  // namespace

TEST_CASE("blocking launches: each op waits for the one before", "[workloads][traits]") {
  Job job = gpt_job(8, kHidden, 4, kSequence, 128);
  split(job, 2, 2, 1, 4);
  const ExecutionGraph plain = workloads::build_graph(job);
  const ExecutionGraph graph =
      workloads::build_graph(with(job, &FrameworkTraits::blocking_launches));
  for (std::size_t stage = 0; stage < 2; ++stage) {
    const Program& program = graph.programs[stage];
    REQUIRE(program.ops.size() == plain.programs[stage].ops.size());
    const std::int32_t event = program.ops.front().record;
    REQUIRE(event >= 0);
    for (const Op& op : program.ops) {
      CHECK((op.flags & op_flags::kHostWaits) != 0);
      CHECK(op.record == event);
      const auto waits = program.waits_of(op);
      CHECK(std::find(waits.begin(), waits.end(), event) != waits.end());
    }
  }
}

TEST_CASE("a stage that keeps its outputs has one for each micro-batch in flight",
          "[workloads][traits]") {
  Job job = gpt_job(32, kHidden, 8, kSequence, 256);
  split(job, 1, 4, 1, 16);
  for (std::size_t stage = 0; stage < 3; ++stage) {
    // Stage i of 4 has 4 - i in flight; without the trait no output is left when most is held, in a
    // backward pass.
    const double in_flight = 4 - d(static_cast<std::int64_t>(stage));
    const double more = (ledger_of(with(job, &FrameworkTraits::keeps_outputs), stage).in_flight -
                         ledger_of(job, stage).in_flight)
                            .base();
    CHECK(more == in_flight * d(kSequence * kHidden) * 2);
  }
}

TEST_CASE("FSDP2 copies what it gathers and what it reduces", "[workloads][traits]") {
  Job job = gpt_job(4, kHidden, 4, kSequence, 256);
  split(job, 1, 1, 4, 2);
  job.parallel.zero = 3;
  Job copying = with(job, &FrameworkTraits::copies_gathered);
  copying.system.framework.gradient_passes = 2;
  const Program program = workloads::build_graph(copying).programs.front();
  const auto sum = [&program](const char* name, auto amount) {
    double all = 0;
    for (const Op& op : program.ops) {
      all += program.name(op) == name ? amount(op) : 0.0;
    }
    return all;
  };
  const auto elements = [](const Op& op) { return d(op.shape[0]); };
  const auto read = [](const Op& op) { return op.bytes_read.base(); };
  CHECK(sum("weights.gather", elements) > 0);
  CHECK(sum("weights.copy", elements) == sum("weights.gather", elements));
  CHECK(sum("weights.copy", read) == 2 * sum("weights.gather", elements));  // bf16
  CHECK(sum("gradients.copy", elements) == sum("gradients.exchange", elements));
  CHECK(sum("gradients.copy", read) == 2 * 2 * sum("gradients.exchange", elements));
}

TEST_CASE("dropout after the embedding keeps a mask that nothing recomputes",
          "[workloads][traits]") {
  Job job = gpt_job(32, kHidden, 8, kSequence, 256);
  split(job, 1, 4, 1, 16);
  job.parallel.recompute.kind = RecomputeKind::kFull;
  Job dropping = job;
  transformer_of(dropping).dropout = true;
  CHECK((ledger_of(dropping, 0).in_flight - ledger_of(job, 0).in_flight).base() ==
        4 * d(kSequence * kHidden));
  CHECK(ledger_of(dropping, 1).in_flight == ledger_of(job, 1).in_flight);
}

TEST_CASE("an eager loss has log-probabilities and their gradient in fp32", "[workloads][traits]") {
  const std::int64_t vocabulary = 8192;
  Job job = llama_job(1, kHidden, 8, 4, 352, kSequence, vocabulary);
  split(job, 1, 1, 1, 1);
  Job eager = job;
  eager.loss.kind = LossKind::kEager;
  const double two = 8 * d(kSequence * vocabulary);
  CHECK(ledger_of(eager, 0).temporaries.base() >= two);
  CHECK(ledger_of(job, 0).temporaries.base() < two / 4);
  // widen, softmax, pick, its gradient, narrow: 6 + 12 + 4 + 12 + 6 bytes an element.
  double moved = 0;
  const ExecutionGraph graph = workloads::build_graph(eager);
  const Program& program = graph.programs.front();
  for (const Op& op : program.ops) {
    if (program.name(op).starts_with("loss.")) {
      moved += op.bytes_read.base() + op.bytes_written.base();
    }
  }
  CHECK(moved == 40 * d(kSequence * vocabulary));
}

TEST_CASE("the head's products are as wide as activations, or as narrow as those of layers",
          "[workloads][traits]") {
  Job job = llama_job(2, kHidden, 8, 4, 352, kSequence, 1024);
  split(job, 1, 1, 1, 1);
  job.formats.compute = Format::kFp8;
  const auto count = [](const Job& of, const std::string& prefix, Format format) {
    return sum_over(workloads::build_graph(of).programs.front(),
                    [&](const Op& op, const std::string& name) {
                      return name.starts_with(prefix) && op.format == format ? 1.0 : 0.0;
                    });
  };
  CHECK(count(job, "head.", Format::kFp8) == 0);
  // Three products; of their operands the norm's output and the gradient of the logits are cast,
  // and the weights once.
  const Job narrow = with(job, &FrameworkTraits::narrow_head);
  CHECK(count(narrow, "head.", Format::kFp8) == 3 + 2);
  CHECK(count(narrow, "weights.quantise", Format::kFp8) ==
        count(job, "weights.quantise", Format::kFp8) + 1);
  CHECK((ledger_of(narrow, 0).buffers - ledger_of(job, 0).buffers).base() == 2 * d(1024 * kHidden));
  job.formats.compute = Format::kBf16;
  CHECK(count(with(job, &FrameworkTraits::narrow_head), "head.", Format::kBf16) ==
        count(job, "head.", Format::kBf16));
}

TEST_CASE("a softmax in fp32 keeps its result beside what products read", "[workloads][traits]") {
  Job job = gpt_job(4, kHidden, 8, kSequence, 256);
  split(job, 1, 1, 1, 1);
  job.flash_attention = false;
  for (const bool dropout : {false, true}) {
    transformer_of(job).dropout = dropout;
    // Two bytes or six a score with dropout's mask and output, and 4 for 2 or beside them.
    const double more = (ledger_of(with(job, &FrameworkTraits::wide_scores), 0).in_flight -
                         ledger_of(job, 0).in_flight)
                            .base();
    CHECK(more == 4 * 8 * d(kSequence * kSequence) * (dropout ? 2 : 4));
  }
}

TEST_CASE("gradients of the head that wait for the end keep what they read", "[workloads][loss]") {
  Job job = gpt_job(4, kHidden, 4, kSequence, 256);
  split(job, 1, 2, 1, 8);
  const double before = ledger_of(job, 1).total().base();
  for (const auto& [deferred, kept] : {std::pair{2, 2}, {100, 8}}) {
    job.loss.deferred = deferred;
    CHECK(ledger_of(job, 1).total().base() - before == kept * kSequence * (256 + kHidden) * 2);
  }
}

TEST_CASE("narrow weights are made once and kept, or in each pass for the layer at work",
          "[workloads][traits]") {
  const std::int64_t layers = 3;
  Job job = llama_job(layers, kHidden, 8, 4, 352, kSequence, 256);
  split(job, 1, 1, 1, 4);
  job.formats.compute = Format::kFp8;
  // Query and output h^2, keys and values half of it each, three matrices of the block.
  const double layer = 3 * d(kHidden * kHidden) + 3 * d(kHidden * 352);
  const auto casts = [](const ExecutionGraph& graph) {
    return sum_over(graph.programs.front(), [](const Op&, const std::string& name) {
      return name == "weights.quantise" ? 1.0 : 0.0;
    });
  };
  const Job each = with(job, &FrameworkTraits::casts_each_pass);
  CHECK(casts(workloads::build_graph(job)) == 4 * layers);
  CHECK(casts(workloads::build_graph(each)) == 4 * layers * 2 * 4);  // both passes of 4
  CHECK(ledger_of(job, 0).buffers.base() == 2 * d(layers) * layer);
  CHECK(ledger_of(each, 0).buffers.base() == 2 * layer);
}

TEST_CASE("ZeRO 3 keeps and gathers narrow weights where the framework does",
          "[workloads][traits]") {
  const std::int64_t layers = 3, shards = 2;
  Job job = llama_job(layers, kHidden, 8, 4, 352, kSequence, 256);
  split(job, 1, 1, shards, 4);
  job.parallel.zero = 3;
  job.formats.compute = Format::kFp8;
  const Job narrow = with(job, &FrameworkTraits::gathers_narrow);
  const double layer = 3 * d(kHidden * kHidden) + 3 * d(kHidden * 352);
  struct Found {
    std::int64_t casts = 0;
    double gathered = 0;  ///< bytes in a pass over the layers, of products' weights
  };
  const auto found = [](const Job& of) {
    Found f;
    const ExecutionGraph graph = workloads::build_graph(of);
    const Program& program = graph.programs.front();
    each_executed(program, [&](const Op& op, const Call& call) {
      f.casts += program.name(op) == "weights.quantise" ? 1 : 0;
      if (program.name(op) == "weights.gather" &&
          program.segments[call.segment].kind == SegmentKind::kForward && call.microbatch == 0) {
        f.gathered += op.bytes_written.base();
      }
    });
    return f;
  };
  const Found wide = found(job), kept = found(narrow);
  CHECK(wide.casts == 4 * layers * 2 * 4);  // both passes of 4 micro-batches
  CHECK(kept.casts == 0);
  CHECK(wide.gathered - kept.gathered == d(layers) * layer);  // a byte each where there were two
  const simulator::MemoryLedger before = ledger_of(job, 0), after = ledger_of(narrow, 0);
  // Shards of a byte an element where they were of two.
  CHECK(before.weights.base() - after.weights.base() == d(layers) * layer / d(shards));
  CHECK(before.buffers.base() == 2 * layer);  // plain and transposed, of the layer at work
  CHECK(after.buffers.base() == layer);       // transposed, of the layer at work
}

TEST_CASE("weights whose heads tensor ranks share are cast in each pass, a layer's at a time",
          "[workloads][traits]") {
  const std::int64_t layers = 3, tensor = 4, key_value_heads = 2, ffn = 352;
  Job job = llama_job(layers, kHidden, 8, key_value_heads, ffn, kSequence, 256);
  split(job, tensor, 1, 2, 4);
  job.parallel.zero = 3;
  job.formats.compute = Format::kFp8;
  // A rank has two heads of queries and one of keys and values, 16 columns each.
  const double qkv = d(kHidden * (2 + 1 + 1) * 16);
  const double others = d(kHidden * kHidden / tensor) + 3 * d(kHidden * ffn / tensor);
  CHECK(ledger_of(with(job, &FrameworkTraits::gathers_narrow), 0).buffers.base() ==
        (qkv + others) + qkv);  // transposed; plain those that are shared
}

TEST_CASE("only weight gradients are added to the sum by a kernel of their own",
          "[workloads][traits]") {
  Job job = llama_job(2, kHidden, 8, 4, 352, kSequence, 256);
  transformer_of(job).parallel_block = true;  // both blocks' products add to one sum
  split(job, 1, 1, 1, 1);
  const ExecutionGraph graph =
      workloads::build_graph(with(job, &FrameworkTraits::separate_accumulation));
  const Program& program = graph.programs.front();
  std::int64_t sums = 0;
  for (const Op& op : program.ops) {
    sums += program.name(op) == "gradient.accumulate" ? 1 : 0;
    const bool adds = op.kind == OpKind::kGemm && (op.flags & op_flags::kAccumulate) != 0;
    CHECK_FALSE((adds && (op.flags & op_flags::kTransposeA) != 0));
  }
  CHECK(sums == 2 * 4 + 1);  // qkv, projection, fc1, fc2; the head
}
