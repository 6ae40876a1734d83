#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/workloads/dlrm_jobs.h"
#include "tests/workloads/transformer_jobs.h"
#include "workloads/build_graph.h"

using namespace stepcast;

// Streams run concurrently, so ops on different streams that touch the same memory, one of them
// writing, must be ordered by events. Vector clocks decide it exactly, whatever the timing: op A
// happens before op B iff B's clock has reached A's count on A's stream.

namespace {

using Clock = std::vector<std::uint64_t>;

/// A stretch of a tensor's memory that an op touched.
struct Touch {
  std::int64_t begin = 0, end = 0;
  bool write = false;
  std::uint32_t stream = 0;
  std::string op;
  std::uint64_t count = 0;
};

class RaceFinder {
 public:
  explicit RaceFinder(const Program& program)
      : program_(program),
        clocks_(program.streams.size(), Clock(program.streams.size(), 0)),
        events_(static_cast<std::size_t>(program.events)) {
    for (const Call& call : program.calls) {
      for (const Op& op : program.ops_of(program.segments[call.segment])) {
        execute(op, call.microbatch);
      }
    }
  }
  [[nodiscard]] const std::set<std::string>& races() const { return races_; }

 private:
  void execute(const Op& op, std::int32_t microbatch) {
    Clock& clock = clocks_[op.stream];
    ++clock[op.stream];
    for (const std::int32_t e : program_.waits_of(op)) {
      const Clock& seen = events_[static_cast<std::size_t>(e)];
      for (std::size_t s = 0; s < seen.size(); ++s) {
        clock[s] = std::max(clock[s], seen[s]);
      }
    }
    for (const TensorId t : program_.inputs(op)) {
      touch(op, t, microbatch, false);
    }
    for (const TensorId t : program_.outputs(op)) {
      touch(op, t, microbatch, true);
    }
    if (op.record >= 0) {
      events_[static_cast<std::size_t>(op.record)] = clock;
    }
  }

  void touch(const Op& op, TensorId id, std::int32_t microbatch, bool write) {
    const Tensor* t = &program_.tensors[id];
    const std::int64_t length = t->elements();
    std::int64_t begin = 0;
    while (t->is_view()) {
      begin += t->view_offset;
      id = static_cast<TensorId>(t->view_of);
      t = &program_.tensors[id];
    }
    auto& before = touches_[{id, t->per_microbatch ? microbatch : 0}];
    const Clock& clock = clocks_[op.stream];
    for (const Touch& b : before) {
      if (b.stream != op.stream && (b.write || write) && b.begin < begin + length &&
          begin < b.end && clock[b.stream] < b.count) {
        races_.insert(fmt::format("{} and {} on {}", b.op, program_.name(op), t->name));
      }
    }
    std::erase_if(before, [&](const Touch& b) {
      return b.stream == op.stream && b.write == write && b.begin == begin &&
             b.end == begin + length;
    });
    before.push_back(
        {begin, begin + length, write, op.stream, program_.name(op), clock[op.stream]});
  }

  const Program& program_;
  std::vector<Clock> clocks_;
  std::vector<Clock> events_;
  std::map<std::pair<TensorId, std::int32_t>, std::vector<Touch>> touches_;
  std::set<std::string> races_;
};

std::set<std::string> races_of(const Job& job) {
  const ExecutionGraph graph = workloads::build_graph(job);
  std::set<std::string> all;
  for (const Program& program : graph.programs) {
    all.merge(std::set<std::string>(RaceFinder(program).races()));
  }
  return all;
}

const std::set<std::string> kNone;

}  // namespace

TEST_CASE("streams of a DLRM step race for no tensor", "[workloads][streams]") {
  const std::string plan = GENERATE("table_wise", "row_wise", "column_wise", "table_row_wise",
                                    "data_parallel", "tiered", "auto");
  const int overlaps = GENERATE(range(0, 8));
  const std::int64_t devices = GENERATE(2, 4, 8);
  const bool sequences = GENERATE(true, false);  // their pooling waits for the exchanges before it
  Job job = test::mixed_job(devices, plan);
  for (EmbeddingTable& t : test::model_of(job).tables) {
    t.mode = sequences ? t.mode : PoolingMode::kSum;
  }
  job.system.host.devices = devices == 4 ? 2 : 4;
  job.parallel.bucket = devices == 4 ? Bytes(4096) : job.parallel.bucket;
  job.parallel.overlap.input_all_to_all = (overlaps & 1) != 0;
  job.parallel.overlap.output_all_to_all = (overlaps & 2) != 0;
  job.parallel.overlap.dense_all_reduce = (overlaps & 4) != 0;
  CAPTURE(plan, overlaps, devices, sequences);
  CHECK(races_of(job) == kNone);
  std::size_t streams = 1 + ((overlaps & 1) != 0 ? 1U : 0U) + ((overlaps & 4) != 0 ? 1U : 0U);
  streams += plan != "data_parallel" && (overlaps & 2) != 0 ? 1U : 0U;
  if (devices == 4) {
    for (const Program& program : workloads::build_graph(job).programs) {
      CHECK(program.streams.size() == streams);
    }
  }
}

TEST_CASE("streams of a pipelined DLRM step race for no tensor", "[workloads][streams]") {
  const std::string plan =
      GENERATE("table_wise", "row_wise", "column_wise", "table_row_wise", "data_parallel", "auto");
  const auto pipeline =
      GENERATE(DlrmPipeline::kSparseDist, DlrmPipeline::kPrefetch, DlrmPipeline::kFused);
  const int overlaps = GENERATE(range(0, 4));
  const std::int64_t devices = GENERATE(1, 2, 8);
  Job job = test::mixed_job(devices, plan);
  job.parallel.dlrm_pipeline = pipeline;
  job.parallel.overlap.output_all_to_all = (overlaps & 1) != 0;
  job.parallel.overlap.dense_all_reduce = (overlaps & 2) != 0;
  CAPTURE(plan, static_cast<int>(pipeline), overlaps, devices);
  CHECK(races_of(job) == kNone);
}

TEST_CASE("streams of a transformer step race for no tensor", "[workloads][streams]") {
  const bool llama = GENERATE(false, true);
  const int overlaps = GENERATE(range(0, 8));
  const int zero = GENERATE(0, 1, 2, 3);
  const bool reshard = GENERATE(true, false);
  if (zero < 3 && !reshard) {
    return;
  }
  const auto schedule =
      GENERATE(ScheduleKind::kGpipe, ScheduleKind::kOneFOneB, ScheduleKind::kZbH1);
  if (schedule == ScheduleKind::kZbH1 && (zero == 2 || (zero == 3 && reshard))) {
    return;
  }
  Job job = llama ? test::llama_job(8, 64, 4, 2, 96, 32, 128) : test::gpt_job(8, 64, 4, 32, 128);
  test::split(job, 2, 2, 2, 4);
  job.parallel.zero = zero;
  job.parallel.zero_reshard = reshard;
  job.parallel.schedule = schedule;
  job.parallel.bucket = Bytes(65536);
  job.parallel.overlap.data = (overlaps & 1) != 0;
  job.parallel.overlap.tensor = (overlaps & 2) != 0;
  job.parallel.overlap.pipeline = (overlaps & 4) != 0;
  CAPTURE(llama, overlaps, zero, reshard);
  CHECK(races_of(job) == kNone);
}

TEST_CASE("gathers of a sharded model race for no tensor", "[workloads][streams]") {
  const bool tied = GENERATE(false, true);
  const int zero = GENERATE(2, 3);
  const std::int64_t pipeline = GENERATE(1, 2);
  const std::int64_t microbatches = GENERATE(1, 4);
  const std::string level = GENERATE("", "node");
  Job job = test::llama_job(6, 64, 4, 2, 96, 32, 128);
  test::transformer_of(job).tied_embeddings = tied;
  job.system.host.devices = 2 * pipeline;
  test::split(job, 1, pipeline, 4, microbatches);
  job.parallel.zero = zero;
  job.parallel.zero_level = level;
  job.parallel.overlap.data = true;
  CAPTURE(tied, zero, pipeline, microbatches, level);
  CHECK(races_of(job) == kNone);
}

TEST_CASE("rings of keys, values and queries race for no tensor", "[workloads][streams]") {
  const auto algorithm = GENERATE(ContextAlgorithm::kAllGather, ContextAlgorithm::kPassKv,
                                  ContextAlgorithm::kPassQ, ContextAlgorithm::kAllToAll);
  const std::int64_t context = GENERATE(2, 3);
  const bool prefill = GENERATE(false, true);
  if ((algorithm == ContextAlgorithm::kPassQ && !prefill) ||
      (algorithm == ContextAlgorithm::kAllToAll && context == 3)) {
    return;
  }
  Job job = test::llama_job(4, 64, 8, 4, 96, 48, 128);
  test::split(job, 2, 1, 2, 2);
  job.parallel.context = context;
  job.devices *= context;
  job.parallel.context_algorithm = algorithm;
  job.phase = prefill ? JobPhase::kPrefill : JobPhase::kTrain;
  job.parallel.zero = prefill ? 0 : 3;
  job.parallel.overlap.data = true;
  CAPTURE(static_cast<int>(algorithm), context, prefill);
  CHECK(races_of(job) == kNone);
}

TEST_CASE("a missing event is found", "[workloads][streams]") {
  Job job = test::mixed_job(2, "table_wise");
  job.parallel.overlap.output_all_to_all = true;
  ExecutionGraph graph = workloads::build_graph(job);
  REQUIRE(RaceFinder(graph.programs.front()).races().empty());
  Program& program = graph.programs.front();
  for (Op& op : program.ops) {
    if (op.kind == OpKind::kEmbeddingForward) {
      op.record = -1;
    }
  }
  CHECK_FALSE(RaceFinder(program).races().empty());
}

TEST_CASE("messages between two ranks are received in the order in which they are sent",
          "[workloads][streams]") {
  const ScheduleTraits& schedule = GENERATE(from_range(kSchedules));
  const std::int64_t stages = GENERATE(2, 4);
  const std::int64_t chunks = schedule.most_chunks == 1 ? 1 : GENERATE(1, 2);
  if (chunks < schedule.least_chunks) {
    return;
  }
  const bool overlapped = GENERATE(false, true);
  Job job = test::llama_job(8, 64, 4, 2, 96, 32, 128);
  test::split(job, 2, stages, 1, 8);
  job.parallel.schedule = schedule.kind;
  job.parallel.virtual_stages = chunks;
  job.parallel.overlap.pipeline = overlapped;
  CAPTURE(name_of(schedule.kind), stages, chunks, overlapped);
  const ExecutionGraph graph = workloads::build_graph(job);
  using Way = std::tuple<std::int32_t, std::int32_t, std::int32_t>;     // communicator, from, to
  using Messages = std::vector<std::pair<std::int64_t, std::int32_t>>;  // tag, micro-batch
  std::map<Way, Messages> sent, received;
  for (const RankClass& of : graph.classes) {
    const Program& program = graph.programs[static_cast<std::size_t>(of.program)];
    for (const std::int32_t rank : of.ranks) {
      for (const Call& call : program.calls) {
        for (const Op& op : program.ops_of(program.segments[call.segment])) {
          if (op.kind != OpKind::kSend && op.kind != OpKind::kRecv) {
            continue;
          }
          const std::int32_t peer =
              graph.members(op.communicator, rank).at(static_cast<std::size_t>(op.peer));
          const bool sends = op.kind == OpKind::kSend;
          (sends ? sent : received)[{op.communicator, sends ? rank : peer, sends ? peer : rank}]
              .emplace_back(op.shape[1], call.microbatch);
        }
      }
    }
  }
  CHECK_FALSE(sent.empty());
  CHECK(sent == received);
}
