// State that was saved under one plan goes on under every other: on the same plan with the same
// losses to the last bit.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/config/config.h"
#include "core/error.h"
#include "core/temporary_folder.h"
#include "runtime/checkpoint/checkpoints.h"
#include "runtime/data/batch_source.h"
#include "studies/plan/searched_plan.h"
#include "tests/runtime/thread_ranks.h"
#include "workloads/build_graph.h"

using namespace stepcast;
using namespace stepcast::runtime;
namespace fs = std::filesystem;

namespace {

using Sets = std::vector<std::string>;

constexpr const char* kDlrm = R"({
  "system": "dgx-h100", "devices": 2, "batch": {"global": 16}, "formats": {"compute": "fp32"},
  "optimizer": {"dense": "adam", "embedding": "adam"},
  "workload": {"kind": "dlrm", "name": "tiny", "dense_features": 4, "bottom_mlp": [16, 8],
    "interaction": {"kind": "dot"}, "top_mlp": [16, 1], "tables": [
      {"name": "a", "rows": 301, "dim": 8, "pooling": 4, "mode": "sum", "access": {"zipf": 1.1}},
      {"name": "b", "rows": 200, "dim": 8, "pooling": 2, "mode": "mean", "access": {"zipf": 0.6}},
      {"name": "c", "rows": 7, "dim": 8, "pooling": 3, "mode": "sum", "access": {"uniform": true}}]}})";

constexpr const char* kGpt = R"({
  "system": "dgx-h100", "devices": 1, "batch": {"global": 8, "micro": 1, "sequence": 8},
  "formats": {"compute": "fp32"}, "optimizer": "adam",
  "parallel": {"bucket": "8 kB"},
  "workload": {"kind": "transformer", "name": "small", "layers": 4, "hidden": 32, "heads": 4, "kv_heads": 2,
    "ffn_hidden": 48, "activation": "swiglu", "vocabulary": 64, "tied_embeddings": true}})";

Job job_of(const char* text, const Sets& sets) {
  return studies::with_searched_plan(
      config::load_job(config::text_source(text, "test"), sets, {STEPCAST_SOURCE_DIR}));
}

CheckpointImage::Memory memory_of(StepExecutor& executor) {
  return [&executor](TensorId id) { return executor.numbers(id); };
}

/// Losses of steps [first, last) on ranks that are threads, after `resume`; saves the state that
/// they lead to.
std::vector<double> train(const Job& job, std::int64_t first, std::int64_t last,
                          const fs::path& from, const fs::path& save) {
  const ExecutionGraph graph = workloads::build_graph(job);
  test::ThreadRanks ranks(graph);
  const std::int32_t n = graph.ranks();
  std::vector<std::unique_ptr<BatchSource>> sources;
  for (std::int32_t r = 0; r < n; ++r) {
    if (!from.empty()) {
      resume(from, graph, r, ranks.executor(static_cast<std::size_t>(r)));
    }
    sources.push_back(make_batch_source(graph.inputs, graph.mesh, r, 1));
  }
  const auto draw = [&](std::int64_t step) {
    std::vector<HostBatch> batches(sources.size());
    for (std::size_t r = 0; r < sources.size(); ++r) {
      sources[r]->draw(step, batches[r]);
    }
    return batches;
  };
  auto now = draw(first);
  const bool pipelined = ranks.executor(0).pipelined();
  if (pipelined) {
    ranks.fill_pipeline(now);
  }
  std::vector<double> losses;
  for (std::int64_t s = first; s < last; ++s) {
    const auto next = draw(s + 1);
    losses.push_back(ranks.step(s, now, pipelined ? &next : nullptr));
    now = next;
  }
  for (std::int32_t r = 0; r < n && !save.empty(); ++r) {
    StepExecutor& executor = ranks.executor(static_cast<std::size_t>(r));
    executor.settle();
    CheckpointImage image(written_state(graph, r), r, n, memory_of(executor));
    image.copy();
    image.write(last, save / checkpoint_file(r));
  }
  return losses;
}

/// Every plan saves, every plan goes on.
void check_all(const char* text, const std::vector<Sets>& plans) {
  constexpr std::int64_t kSaved = 3, kSteps = 6;
  std::vector<std::vector<double>> whole;
  for (const Sets& plan : plans) {
    const std::vector<double> all = train(job_of(text, plan), 0, kSteps, {}, {});
    whole.emplace_back(all.begin() + kSaved, all.end());
  }
  for (std::size_t a = 0; a < plans.size(); ++a) {
    const TemporaryFolder folder("stepcast");
    train(job_of(text, plans[a]), 0, kSaved, {}, folder.path());
    for (std::size_t b = 0; b < plans.size(); ++b) {
      CAPTURE(a, b);
      const std::vector<double> after =
          train(job_of(text, plans[b]), kSaved, kSteps, folder.path(), {});
      if (a == b) {
        CHECK(after == whole[b]);
      }
      for (std::size_t s = 0; s < after.size(); ++s) {
        CHECK(after[s] == Approx(whole[b][s]).epsilon(1e-5));
      }
    }
  }
}

}  // namespace

TEST_CASE("a recommender goes on from every sharding in every sharding", "[runtime][checkpoint]") {
  check_all(kDlrm, {{"devices=1"},
                    {"devices=2", "embedding.plan=table_wise"},
                    {"devices=4", "embedding.plan=row_wise"},
                    {"devices=2", "embedding.plan=column_wise"},
                    {"devices=4", "embedding.plan=table_row_wise", "system.fabric[0].size=2",
                     "system.host.devices=2"},
                    {"devices=2", "embedding.plan=data_parallel"},
                    {"devices=2", "embedding.plan=tiered"},
                    {"devices=2", "embedding.plan=row_wise", "parallel.dlrm_pipeline=prefetch"}});
}

TEST_CASE("a transformer goes on from every split in every split", "[runtime][checkpoint]") {
  check_all(kGpt, {{"devices=1"},
                   {"devices=2"},
                   {"devices=4", "parallel.zero=1"},
                   {"devices=2", "parallel.zero=2"},
                   {"devices=4", "parallel.zero=3"},
                   {"devices=2", "parallel.tensor=2", "parallel.sequence_parallel=true"},
                   {"devices=4", "parallel.pipeline=2", "parallel.tensor=2"},
                   {"devices=4", "parallel.pipeline=2", "parallel.zero=1"}});
}

TEST_CASE("every number is written once", "[runtime][checkpoint]") {
  const Job job = job_of(kGpt, {"devices=4", "parallel.zero=1", "parallel.tensor=2"});
  const ExecutionGraph graph = workloads::build_graph(job);
  double numbers = 0;
  for (std::int32_t r = 0; r < graph.ranks(); ++r) {
    numbers += checkpoint_bytes(graph, r).base() / 4;
  }
  // Parameters and Adam's two moments.
  CHECK(numbers == 3 * config::parameter_count(job.workload));
}

TEST_CASE("a state of rows does not fit columns cut otherwise", "[runtime][checkpoint]") {
  const TemporaryFolder folder("stepcast");
  const auto job = [](const char* plan) {
    return job_of(kDlrm, {"devices=2", "optimizer.embedding=rowwise_adagrad",
                          std::string("embedding.plan=") + plan});
  };
  train(job("column_wise"), 0, 1, {}, folder.path());
  train(job("column_wise"), 1, 2, folder.path(), {});
  CHECK_THROWS_WITH(train(job("table_wise"), 1, 2, folder.path(), {}),
                    Catch::Contains("the optimizer's state") && Catch::Contains("cut otherwise"));
}

TEST_CASE("a damaged file is named with the place", "[runtime][checkpoint]") {
  const TemporaryFolder folder("stepcast");
  const Job job = job_of(kDlrm, {"devices=2"});
  train(job, 0, 1, {}, folder.path());
  const fs::path file = folder.path() / checkpoint_file(1);
  const auto size = fs::file_size(file);
  const auto fails = [&](const std::string& what) {
    CHECK_THROWS_WITH(train(job, 1, 2, folder.path(), {}),
                      Catch::Contains(file.string()) && Catch::Contains(what));
  };
  const auto flip = [&](std::uintmax_t at) {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(static_cast<std::streamoff>(at));
    const int value = bytes.get();
    bytes.seekp(static_cast<std::streamoff>(at));
    bytes.put(static_cast<char>(value ^ 1));
  };
  for (const std::uintmax_t at : {size - 5, std::uintmax_t{64 + 9}, size / 2}) {
    CAPTURE(at);
    flip(at);
    fails("at byte");
    flip(at);
  }
  flip(9);
  fails("its beginning is damaged");
  flip(9);
  fs::resize_file(file, size - 16);
  fails("is cut off");
  fs::remove(file);
  fails("cannot be read");
}
