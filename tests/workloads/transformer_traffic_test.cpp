#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <tuple>
#include <vector>

#include "tests/workloads/transformer_graphs.h"
#include "workloads/transformer/shape.h"

using namespace stepcast;
using namespace stepcast::test;

namespace {

constexpr std::int64_t kSequence = 32;
constexpr std::int64_t kHidden = 64;

/// Elements a ring moves per device: an all-gather or reduce-scatter of n sends n (t - 1) / t, an
/// all-reduce twice that.
double ring_units(const Op& op, double elements) {
  const double share = static_cast<double>(op.shape[0]) / elements;
  return op.kind == OpKind::kAllReduce ? 2 * share : share;
}

std::int32_t communicator(const ExecutionGraph& graph, const std::string& name) {
  for (std::size_t i = 0; i < graph.communicators.size(); ++i) {
    if (graph.communicators[i].name == name) {
      return static_cast<std::int32_t>(i);
    }
  }
  return -2;
}

}  // namespace

TEST_CASE("tensor-parallel traffic of a layer is 8, 10, 12 or 14 units",
          "[workloads][transformer]") {
  struct Case {
    bool sequence, overlap;
    RecomputeKind recompute;
    double units;
  };
  const auto c = GENERATE(
      Case{false, false, RecomputeKind::kNone, 8}, Case{true, false, RecomputeKind::kNone, 10},
      Case{false, false, RecomputeKind::kFull, 12}, Case{true, false, RecomputeKind::kFull, 14},
      Case{false, false, RecomputeKind::kSelective, 8},
      Case{true, true, RecomputeKind::kSelective, 10}, Case{true, true, RecomputeKind::kFull, 14});
  const bool gpt = GENERATE(true, false);
  Job job = gpt ? gpt_job(4, kHidden, 4, kSequence, 128)
                : llama_job(4, kHidden, 4, 2, 96, kSequence, 128);
  job.batch.micro = 2;
  split(job, 2, 1, 1, 3);
  job.parallel.sequence_parallel = c.sequence;
  job.parallel.overlap.tensor = c.overlap;
  job.parallel.recompute.kind = c.recompute;
  const ExecutionGraph graph = workloads::build_graph(job);
  double units = 0;
  double loss_elements = 0;
  each_executed(graph.programs.front(), [&](const Op& op, const Call&) {
    const std::string& name = graph.programs.front().name(op);
    if (is_collective(op.kind) && name.starts_with("layer.")) {
      CHECK(op.communicator == communicator(graph, "tensor"));
      CHECK(op.format == Format::kBf16);
      CHECK((op.stream != 0) == c.overlap);
      units += ring_units(op, 2 * kSequence * kHidden);
    } else if (name.starts_with("loss.reduce")) {
      loss_elements += static_cast<double>(op.shape[0]);
    }
  });
  CHECK(units == Approx(c.units * 4 * 3));        // 4 layers, 3 micro-batches
  CHECK(loss_elements == 3 * 2 * kSequence * 3);  // row maxima; sums and targets' logits
}

TEST_CASE("stages send each micro-batch's rows once each way, and receive them in order",
          "[workloads][transformer]") {
  const std::int64_t chunks = GENERATE(1, 2);
  const bool gpipe = GENERATE(false, true);
  const bool sequence = GENERATE(false, true);
  const bool overlap = GENERATE(false, true);
  if (gpipe && chunks > 1) {  // 1f1b alone is interleaved
    return;
  }
  const std::int64_t p = 4;
  const std::int64_t m = 8;
  Job job = gpt_job(8, kHidden, 4, kSequence, 128);
  split(job, 2, p, 1, m);
  job.parallel.virtual_stages = chunks;
  job.parallel.sequence_parallel = sequence;
  job.parallel.overlap.pipeline = overlap;
  job.parallel.schedule = gpipe ? ScheduleKind::kGpipe : ScheduleKind::kOneFOneB;
  const ExecutionGraph graph = workloads::build_graph(job);
  // Micro-batches in order, by communicator, sender, receiver and tag.
  using Channel = std::tuple<std::int32_t, std::int64_t, std::int64_t, std::int64_t>;
  std::map<Channel, std::vector<std::int32_t>> sent;
  std::map<Channel, std::vector<std::int32_t>> received;
  for (std::int64_t stage = 0; stage < p; ++stage) {
    double elements = 0;
    std::int64_t messages = 0;
    const Program& program = graph.programs[static_cast<std::size_t>(stage)];
    each_executed(program, [&](const Op& op, const Call& call) {
      if (op.kind == OpKind::kSend) {
        sent[{op.communicator, stage, op.peer, op.shape[1]}].push_back(call.microbatch);
        elements += static_cast<double>(op.shape[0]);
        ++messages;
      } else if (op.kind == OpKind::kRecv) {
        received[{op.communicator, op.peer, stage, op.shape[1]}].push_back(call.microbatch);
      }
    });
    // v b s h per micro-batch each way; the outermost virtual stages have one neighbour less.
    // Divided by t with split rows.
    const std::int64_t ways = 2 * chunks - (stage == 0 || stage == p - 1 ? 1 : 0);
    CHECK(messages == ways * m);
    CHECK(elements == static_cast<double>(ways * m * kSequence * kHidden / (sequence ? 2 : 1)));
  }
  CHECK(sent == received);
}

TEST_CASE("a stack with synchronous messages waits for each before it issues more",
          "[workloads][transformer]") {
  const bool gpt = GENERATE(true, false);
  const std::int64_t tensor = GENERATE(1, 2);
  const std::int64_t m = 4;
  Job job = gpt ? gpt_job(8, kHidden, 4, kSequence, 128)
                : llama_job(8, kHidden, 4, 2, 96, kSequence, 128);
  split(job, tensor, 2, 1, m);
  const ExecutionGraph plain = workloads::build_graph(job);
  job.system.framework.synchronous_messages = true;
  const ExecutionGraph graph = workloads::build_graph(job);
  for (std::size_t stage = 0; stage < 2; ++stage) {
    const Program& program = graph.programs[stage];
    REQUIRE(program.ops.size() == plain.programs[stage].ops.size());
    std::int64_t messages = 0;
    std::int64_t waits = 0;
    std::int32_t arrived = -1;  // event of the message just received
    each_executed(program, [&](const Op& op, const Call&) {
      const bool held = (op.flags & op_flags::kHostWaits) != 0;
      CHECK(held == (arrived >= 0));
      if (arrived >= 0) {
        const auto events = program.waits_of(op);
        CHECK(std::find(events.begin(), events.end(), arrived) != events.end());
      }
      arrived = op.kind == OpKind::kRecv ? op.record : -1;
      messages += op.kind == OpKind::kRecv ? 1 : 0;
      waits += held ? 1 : 0;
    });
    CHECK(messages == m);
    CHECK(waits == m);
  }
}

TEST_CASE("data-parallel traffic is one sum of all gradients", "[workloads][transformer]") {
  const bool overlap = GENERATE(false, true);
  const bool sequence = GENERATE(false, true);
  const int zero = GENERATE(0, 1);
  const std::int64_t d = 3;
  Job job = gpt_job(8, kHidden, 4, kSequence, 128);
  split(job, 2, 2, d, 4);
  job.parallel.sequence_parallel = sequence;
  job.parallel.zero = zero;
  job.parallel.overlap.data = overlap;
  job.parallel.bucket = Bytes(40000);
  const ExecutionGraph graph = workloads::build_graph(job);
  const std::int32_t data = communicator(graph, "data");
  for (const Program& program : graph.programs) {
    std::int64_t parameters = 0;
    std::int64_t buckets = 0;
    for (const Tensor& t : program.tensors) {
      if (t.role == TensorRole::kGradient && t.is_view() && !t.name.ends_with("shard")) {
        parameters += t.elements();
      }
      buckets += t.role == TensorRole::kGradient && !t.is_view() ? 1 : 0;
    }
    REQUIRE(buckets > 3);
    std::map<OpKind, std::int64_t> elements;
    std::int64_t exchanges = 0;
    std::int64_t beside_backward = 0;
    each_executed(program, [&](const Op& op, const Call& call) {
      if (op.communicator == data) {
        elements[op.kind] += op.shape[0];
        exchanges += op.kind == OpKind::kAllGather ? 0 : 1;
        CHECK(op.format == (op.kind == OpKind::kAllGather ? Format::kBf16 : Format::kFp32));
        beside_backward += program.segments[call.segment].name.starts_with("backward_last") ? 1 : 0;
        CHECK((op.stream != 0) == overlap);
      }
    });
    CHECK(exchanges == buckets);
    CHECK((beside_backward > 0) == overlap);
    if (zero == 0) {
      CHECK(elements == std::map<OpKind, std::int64_t>{{OpKind::kAllReduce, parameters}});
    } else {  // buckets are padded to whole shards
      CHECK(elements[OpKind::kReduceScatter] == elements[OpKind::kAllGather]);
      CHECK(elements[OpKind::kReduceScatter] >= parameters);
      CHECK(elements[OpKind::kReduceScatter] < parameters + d * buckets);
      CHECK(elements.count(OpKind::kAllReduce) == 0);
    }
  }
}

TEST_CASE("sharded models move what ZeRO says", "[workloads][transformer]") {
  struct Case {
    int zero;
    bool reshard;
    double gathers, scatters;  ///< of all parameters per step; m micro-batches
  };
  const double m = GENERATE(1, 3);
  // Rajbhandari et al., arXiv 1910.02054, section 7: 2 P for stages 1 and 2, 3 P for stage 3 (one
  // micro-batch). The ends stay gathered between forward and backward, so their second gather falls
  // away: it is taken out below.
  const auto c = GENERATE_COPY(Case{1, true, 1, 1}, Case{2, true, 1, m}, Case{3, true, 2 * m, m},
                               Case{3, false, 1, 1});
  const bool overlap = GENERATE(false, true);
  Job job = llama_job(6, kHidden, 4, 2, 96, kSequence, 128);
  split(job, 1, 1, 4, static_cast<std::int64_t>(m));
  job.parallel.zero = c.zero;
  job.parallel.zero_reshard = c.reshard;
  job.parallel.overlap.data = overlap;
  const ExecutionGraph graph = workloads::build_graph(job);
  std::map<OpKind, double> elements;
  each_executed(graph.programs.front(), [&](const Op& op, const Call&) {
    if (is_collective(op.kind)) {
      CHECK(op.communicator == communicator(graph, "data"));
      CHECK((op.stream != 0) == overlap);
      elements[op.kind] += static_cast<double>(op.shape[0]);
    }
  });
  const auto ends = static_cast<double>(2 * 128 * kHidden + kHidden);
  const auto all = static_cast<double>(
      workloads::transformer_parameters(*job.workload.transformer(), kSequence));
  const double twice = c.zero == 3 && c.reshard ? ends * m : 0;
  CHECK(elements[OpKind::kAllGather] == c.gathers * all - twice);
  CHECK(elements[OpKind::kReduceScatter] == c.scatters * all);
  CHECK(elements.count(OpKind::kAllReduce) == 0);
}

TEST_CASE("ZeRO 2 beside stages exchanges gradients once, as ZeRO 1", "[workloads][transformer]") {
  const std::int64_t pipeline = GENERATE(1, 2, 4);
  const bool overlap = GENERATE(false, true);
  const auto schedule =
      GENERATE(ScheduleKind::kGpipe, ScheduleKind::kOneFOneB, ScheduleKind::kZbH1);
  if (pipeline == 1 && schedule == ScheduleKind::kZbH1) {
    return;  // it scatters gradients that are not made yet
  }
  Job job = llama_job(8, kHidden, 4, 2, 96, kSequence, 128);
  split(job, 2, pipeline, 4, 8);
  job.parallel.schedule = schedule;
  job.parallel.overlap.data = overlap;
  const auto step = [&](int zero) {
    job.parallel.zero = zero;
    return workloads::build_graph(job);
  };
  const ExecutionGraph one = step(1);
  const ExecutionGraph two = step(2);
  CAPTURE(pipeline, overlap, name_of(schedule));
  for (std::size_t stage = 0; stage < one.programs.size(); ++stage) {
    const auto sent = [stage](const ExecutionGraph& graph) {
      return sum_over(graph.programs[stage], [](const Op& op, const std::string& name) {
        return name == "gradients.exchange" ? d(op.shape[0]) : 0;
      });
    };
    const double kept = memory_use(two.programs[stage]).total().base() -
                        memory_use(one.programs[stage]).total().base();
    if (pipeline == 1) {  // each of 8 micro-batches, but norms, which tensor ranks sum up first
      CHECK(sent(two) > 7 * sent(one));
      CHECK(kept < 0);
    } else {
      CHECK(sent(two) == sent(one));
      CHECK(kept == 0);
      CHECK(two.programs[stage].ops.size() == one.programs[stage].ops.size());
    }
  }
}

TEST_CASE("copies of shards are summed beside the gathers of the shards",
          "[workloads][transformer]") {
  Job job = llama_job(6, kHidden, 4, 2, 96, kSequence, 128);
  job.system.host.devices = 8;
  split(job, 2, 1, 12, 2);
  job.parallel.zero = GENERATE(1, 3);
  job.parallel.zero_level = "node";
  job.parallel.overlap.data = true;
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  for (const Op& op : program.ops) {
    const std::string& name = program.name(op);
    if (name == "gradients.replicas") {
      CHECK(program.streams.at(op.stream) == "across");
      CHECK(op.waits > 0);  // for the shard
    } else if (name == "weights.gather" || name == "gradients.exchange") {
      CHECK(program.streams.at(op.stream) == "data");
    }
  }
}

TEST_CASE("hybrid sharding gathers inside a machine and sums shards across",
          "[workloads][transformer]") {
  const bool overlap = GENERATE(false, true);
  const int zero = GENERATE(1, 2, 3);
  const std::int64_t m = GENERATE(1, 2);
  Job job = llama_job(6, kHidden, 4, 2, 96, kSequence, 128);
  job.system.host.devices = 8;  // two tensor ranks and four replicas
  split(job, 2, 1, 12, m);
  job.parallel.zero = zero;
  job.parallel.zero_level = "node";
  job.parallel.overlap.data = overlap;
  const ExecutionGraph graph = workloads::build_graph(job);
  const std::int32_t shards = communicator(graph, "shards");
  const std::int32_t replicas = communicator(graph, "replicas");
  REQUIRE(shards >= 0);
  CHECK(graph.members(shards, 10) == std::vector<std::int32_t>{8, 10, 12, 14});
  CHECK(graph.members(replicas, 10) == std::vector<std::int32_t>{2, 10, 18});
  double scattered = 0;
  double summed = 0;
  each_executed(graph.programs.front(), [&](const Op& op, const Call&) {
    if (op.kind == OpKind::kReduceScatter && op.communicator == shards) {
      scattered += static_cast<double>(op.shape[0]);
    } else if (op.kind == OpKind::kAllReduce && op.communicator == replicas) {
      summed += static_cast<double>(op.shape[0]);
    } else if (op.kind == OpKind::kAllGather) {
      CHECK(op.communicator == shards);
    }
  });
  CHECK(summed == scattered / (zero == 1 ? 4 : static_cast<double>(4 * m)));  // once a step
}

TEST_CASE("tied embeddings are summed between the ends of the pipeline only",
          "[workloads][transformer]") {
  Job job = gpt_job(8, kHidden, 4, kSequence, 128);
  split(job, 2, 4, 2, 4);
  const ExecutionGraph graph = workloads::build_graph(job);
  const std::int32_t ends = communicator(graph, "embedding");
  REQUIRE(ends >= 0);
  for (std::size_t stage = 0; stage < 4; ++stage) {
    std::int64_t elements = 0;
    each_executed(graph.programs[stage], [&](const Op& op, const Call&) {
      elements += op.communicator == ends ? op.shape[0] : 0;
    });
    CHECK(elements == (stage % 3 == 0 ? 128 / 2 * kHidden : 0));
  }
  // Ranks: tensor innermost, then pipeline (stride 2), then data (stride 8).
  CHECK(graph.members(ends, 1) == std::vector<std::int32_t>{1, 7});
  CHECK(graph.members(ends, 14) == std::vector<std::int32_t>{8, 14});
  CHECK(graph.members(ends, 2).empty());
}

TEST_CASE("ranks that differ only in their slices share a program", "[workloads][transformer]") {
  Job job = gpt_job(8, kHidden, 4, kSequence, 128);
  split(job, 2, 4, 2, 4);
  const ExecutionGraph graph = workloads::build_graph(job);
  REQUIRE(graph.classes.size() == 4);
  CHECK(graph.classes[1].ranks == std::vector<std::int32_t>{2, 3, 10, 11});
}
