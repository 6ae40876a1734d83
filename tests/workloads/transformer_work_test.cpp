#include <algorithm>
#include <catch2/catch.hpp>
#include <string_view>

#include "core/job/layer_split.h"
#include "tests/workloads/transformer_graphs.h"
#include "workloads/transformer/shape.h"

using namespace stepcast;
using namespace stepcast::test;

namespace {

/// Sums of doubles in another order: a few units in the last place.
Approx digits(double v) { return Approx(v).epsilon(1e-13); }

struct Published {
  double billions;
  std::int64_t heads, hidden, layers, tensor, pipeline, data, global, micro, virtual_stages;
};

/// arXiv 2104.04473, table 1; micro-batches and interleaving of the published launch script.
const std::vector<Published> kTable1{{1.7, 24, 2304, 24, 1, 1, 32, 512, 16, 1},
                                     {3.6, 32, 3072, 30, 2, 1, 32, 512, 16, 1},
                                     {7.5, 32, 4096, 36, 4, 1, 32, 512, 16, 1},
                                     {18.4, 48, 6144, 40, 8, 1, 32, 1024, 8, 1},
                                     {39.1, 64, 8192, 48, 8, 2, 32, 1536, 4, 1},
                                     {76.1, 80, 10240, 60, 8, 4, 32, 1792, 2, 3},
                                     {145.6, 96, 12288, 80, 8, 8, 24, 2304, 2, 2},
                                     {310.1, 128, 16384, 96, 8, 16, 15, 2160, 1, 2},
                                     {529.6, 128, 20480, 105, 8, 35, 9, 2520, 1, 3},
                                     {1008.0, 160, 25600, 128, 8, 64, 6, 3072, 1, 1}};

Job published_job(const Published& row) {
  Job job = gpt_job(row.layers, row.hidden, row.heads);
  split(job, row.tensor, row.pipeline, row.data, 1);
  job.batch.global = row.global;
  job.batch.micro = row.micro;
  job.parallel.virtual_stages = row.virtual_stages;
  return job;
}

/// `factor` * B s l h^2 (1 + s / (attention h) + V / (vocabulary l h)).
double closed_form(const Job& job, double factor, double attention, double vocabulary) {
  const TransformerWorkload& m = *job.workload.transformer();
  const double h = d(m.hidden);
  const double s = d(job.batch.sequence);
  return factor * d(job.batch.global) * s * d(m.layers) * h * h *
         (1 + s * attention / h + d(m.vocabulary) / (vocabulary * d(m.layers) * h));
}

}  // namespace

TEST_CASE("parameters are those of the closed form and of the published table",
          "[workloads][transformer]") {
  for (const Published& row : kTable1) {
    const Job job = published_job(row);
    const double l = static_cast<double>(row.layers);
    const double h = static_cast<double>(row.hidden);
    const auto n = workloads::transformer_parameters(*job.workload.transformer(), 2048);
    // The published form leaves the final norm's 2 h out.
    const double form =
        12 * l * h * h * (1 + 13 / (12 * h) + (51200 + 2048) / (12 * l * h)) + 2 * h;
    CHECK(static_cast<double>(n) == digits(form));
    CHECK(static_cast<double>(n) * 1e-9 ==
          Approx(row.billions).margin(row.billions > 1000 ? 0.5 : 0.06));
  }
  // Llama 2 70B has 68,976,648,192 parameters as published with its weights.
  const Job llama = llama_job(80, 8192, 64, 8, 28672, 4096, 32000);
  CHECK(workloads::transformer_parameters(*llama.workload.transformer(), 4096) == 68'976'648'192);
}

TEST_CASE("the graph holds each parameter", "[workloads][transformer]") {
  const bool gpt = GENERATE(true, false);
  const std::int64_t tensor = GENERATE(1, 2);
  const std::int64_t pipeline = GENERATE(1, 2, 4);
  const std::int64_t chunks = GENERATE(1, 2);
  if (pipeline == 1 && chunks > 1) {
    return;
  }
  Job job = gpt ? gpt_job(8, 64, 4, 32, 128) : llama_job(8, 64, 4, 2, 96, 32, 128);
  split(job, tensor, pipeline, 2, 4);
  job.parallel.virtual_stages = chunks;
  const ExecutionGraph graph = workloads::build_graph(job);
  REQUIRE(graph.programs.size() == static_cast<std::size_t>(pipeline));
  std::int64_t held = 0;
  for (const Program& program : graph.programs) {
    for (const Tensor& t : program.tensors) {
      if (t.role == TensorRole::kParameter && !t.is_view()) {
        held += tensor * t.elements();
      }
    }
  }
  const TransformerWorkload& m = *job.workload.transformer();
  // Norms (and biases after row-parallel products) are on every tensor rank; a tied embedding is on
  // both ends of a pipeline.
  const std::int64_t replicated = m.layers * (gpt ? 6 : 2) * 64 + (gpt ? 2 : 1) * 64;
  const std::int64_t copied = gpt && pipeline > 1 ? 128 * 64 : 0;
  CHECK(held == workloads::transformer_parameters(m, 32) + (tensor - 1) * replicated + copied);
}

TEST_CASE("FLOPs of a step are those of the closed forms", "[workloads][transformer]") {
  for (const Published& row : kTable1) {
    Job job = published_job(row);
    INFO(row.billions << " B");
    job.flash_attention = false;
    job.parallel.recompute.kind = RecomputeKind::kFull;
    workloads::StepFlops f = workloads::step_flops(job);
    CHECK(f.model.base() == digits(closed_form(job, 72, 1.0 / 6, 12)));
    CHECK(f.model_causal.base() == digits(closed_form(job, 72, 1.0 / 12, 12)));
    CHECK(f.hardware.base() == digits(closed_form(job, 96, 1.0 / 6, 16)));
    job.parallel.recompute.kind = RecomputeKind::kSelective;  // the attention core again
    f = workloads::step_flops(job);
    CHECK(f.model.base() == digits(closed_form(job, 72, 1.0 / 6, 12)));
    CHECK(f.hardware.base() == digits(closed_form(job, 72, 2.0 / 9, 12)));
    job.parallel.recompute.kind = RecomputeKind::kNone;
    CHECK(workloads::step_flops(job).hardware.base() == digits(closed_form(job, 72, 1.0 / 6, 12)));
    job.flash_attention = true;  // its backward pass makes the scores again
    f = workloads::step_flops(job);
    CHECK(f.model.base() == digits(closed_form(job, 72, 1.0 / 6, 12)));
    CHECK(f.model_causal.base() == digits(closed_form(job, 72, 1.0 / 12, 12)));
    CHECK(f.hardware.base() == digits(closed_form(job, 72, 7.0 / 36, 12)));
  }
}

TEST_CASE("FLOPs of a gated model with grouped heads count the real matrices",
          "[workloads][transformer]") {
  const std::int64_t tensor = GENERATE(1, 2, 8);
  Job job = llama_job(16, 4096, 32, 8, 14336, 8192, 128256);
  split(job, tensor, 2, 2, 4);
  job.parallel.virtual_stages = 2;
  // Per token, forward: qkv 2 h (h + 2 h / 4), projection 2 h^2, gate, up and down 6 h f, all 16
  // times; head 2 h V; attention 4 s h (full), 16 times. Backward twice that.
  const double h = 4096;
  const double layer = 2 * h * 1.5 * h + 2 * h * h + 6 * h * 14336 + 4 * 8192 * h;
  const double token = 3 * (16 * layer + 2 * h * 128256);
  CHECK(workloads::step_flops(job).model.base() ==
        digits(token * static_cast<double>(job.batch.global) * 8192));
}

TEST_CASE("a transformer that cannot be split says where and how to mend it",
          "[workloads][transformer]") {
  Job job = gpt_job(8, 70, 7, 32, 128);
  split(job, 2, 1, 1, 1);
  CHECK(message_of(job) == "parallel.tensor: 2 does not divide workload.heads = 7; use 1");
  job = llama_job(8, 96, 12, 4, 96, 32, 126);
  split(job, 6, 1, 1, 1);
  CHECK_THAT(message_of(job), Catch::Contains("6 does not divide workload.kv_heads = 4"));
  job = gpt_job(8, 64, 4, 32, 127);
  split(job, 2, 1, 1, 1);
  CHECK_THAT(message_of(job),
             Catch::Contains("workload.vocabulary = 127; pad the vocabulary to 128"));
  job = gpt_job(3, 64, 4, 32, 128);
  split(job, 1, 4, 1, 4);
  CHECK_THAT(message_of(job),
             Catch::StartsWith("parallel.pipeline: 4 leaves stages of workload.layers = 3 empty"));
  job = gpt_job(8, 64, 4, 32, 128);
  split(job, 1, 4, 1, 4);
  job.parallel.pipeline_split.layers = {3, 3, 2};
  CHECK(message_of(job) ==
        "parallel.pipeline_split: found 3 numbers of layers, expected one for each of pipeline * "
        "virtual_stages = 4 * 1 = 4 chunks");
  job.parallel.pipeline_split.layers = {3, 3, 2, 1};
  CHECK(message_of(job) ==
        "parallel.pipeline_split: its numbers make 9 layers, but workload.layers = 8");
  job.parallel.pipeline_split.layers = {3, 0, 3, 2};
  CHECK_THAT(message_of(job),
             Catch::StartsWith("parallel.pipeline_split: leaves chunk 0 of stage 1 without layers, "
                               "but only the first and the last of all"));
  job.parallel.pipeline_split = {4, 0, {}};  // (8 + 4) / 4 = 3 for the first
  CHECK(message_of(job) ==
        "parallel.pipeline_split: an embedding that counts as 4 and a head that counts as 0 layers "
        "are too much for chunks of 3; use 3 or less");
  job.parallel.virtual_stages = 3;
  job.parallel.pipeline_split = {1, 1, {}};  // 8 + 2 for 12 chunks
  CHECK(message_of(job) ==
        "parallel.pipeline_split: 8 layers, and 2 that the ends count as, leave some of 12 chunks "
        "empty; use a smaller pipeline or fewer virtual_stages");
  job = gpt_job(8, 64, 4, 32, 128);
  split(job, 1, 1, 2, 2);
  job.batch.global = 3;
  CHECK_THAT(message_of(job), Catch::StartsWith("batch.global: "));
}

TEST_CASE("ends that count as layers have as many fewer", "[workloads][transformer]") {
  const auto counts = [](std::int64_t layers, std::int64_t chunks, const PipelineSplit& by) {
    std::vector<std::int64_t> all;
    std::int64_t next = 0;
    for (const LayerRange& range : split_layers(layers, chunks, by)) {
      CHECK(range.first == next);
      next += range.count;
      all.push_back(range.count);
    }
    CHECK(next == layers);
    CHECK(most_layers_of_chunk(layers, chunks, by) == *std::max_element(all.begin(), all.end()));
    return all;
  };
  using Counts = std::vector<std::int64_t>;
  // (14 + 1 + 1) / 4 = 4, less one at each end; with the head alone (15 + 1) / 4.
  CHECK(counts(14, 4, {1, 1, {}}) == Counts{3, 4, 4, 3});
  CHECK(counts(15, 4, {0, 1, {}}) == Counts{4, 4, 4, 3});
  // A head of three layers: 13 + 3 = 16. What does not divide goes to the middle: 14 + 3 = 17.
  CHECK(counts(13, 4, {0, 3, {}}) == Counts{4, 4, 4, 1});
  CHECK(counts(14, 4, {0, 3, {}}) == Counts{4, 5, 4, 1});
  CHECK(counts(2, 4, {1, 1, {}}) == Counts{0, 1, 1, 0});
  CHECK(counts(7, 1, {1, 2, {}}) == Counts{7});
  CHECK(counts(9, 4, {0, 0, {1, 4, 4, 0}}) == Counts{1, 4, 4, 0});
  CHECK(counts(14, 2, {}) == Counts{7, 7});
  Counts llama(16, 8);  // 126 = 7 + 14 * 8 + 7, as published for Llama 3 405B
  llama.front() = llama.back() = 7;
  CHECK(counts(126, 16, {}) == llama);
  CHECK(most_layers(126, 16, 8, {1, 1, {}}) == 8);
}

TEST_CASE("Llama 3 405B's first chunk has only the embedding, its last only the head",
          "[workloads][transformer]") {
  // arXiv 2407.21783, section 3.3.2: 16 stages; one layer less in the first and in the last.
  Job job = llama_job(126, 256, 8, 8, 512, 32, 128);
  split(job, 1, 16, 1, 16);
  const ExecutionGraph even = workloads::build_graph(job);
  job.parallel.virtual_stages = 8;
  job.parallel.pipeline_split = {1, 1, {}};
  const auto shape = workloads::transformer_shape(job);
  for (std::int64_t stage = 0; stage < 16; ++stage) {
    for (std::int64_t chunk = 0; chunk < 8; ++chunk) {
      const std::int64_t at = chunk * 16 + stage;
      CHECK(shape.range(stage, chunk).count == (at == 0 || at == 127 ? 0 : 1));
      CHECK(shape.range(stage, chunk).first == std::max<std::int64_t>(at - 1, 0));
    }
  }
  const ExecutionGraph graph = workloads::build_graph(job);
  const auto ops_of = [&graph](std::int32_t stage, std::string_view segment) {
    const Program& p = graph.programs[static_cast<std::size_t>(stage)];
    std::vector<std::string> names;
    for (const Segment& s : p.segments) {
      for (const Op& op : p.ops_of(s)) {
        if (s.name == segment) {
          names.emplace_back(p.name(op));
        }
      }
    }
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(ops_of(0, "forward.0") == Names{"embedding.lookup", "pipeline.send"});
  CHECK(ops_of(0, "backward.0") == Names{"pipeline.receive_gradient", "embedding.gradient"});
  CHECK(ops_of(15, "forward.7") == Names{"pipeline.receive", "head.norm", "head.logits", "loss.max",
                                         "loss.sum", "loss.gradient"});
  CHECK(ops_of(15, "backward.7") == Names{"head.input_gradient", "head.weight_gradient",
                                          "head.norm_gradient", "pipeline.send_gradient"});
  // Each parameter once, however layers are dealt out.
  const auto parameters = [](const ExecutionGraph& g) {
    double bytes = 0;
    for (const Program& p : g.programs) {
      bytes += memory_use(p).parameters.base();
    }
    return bytes;
  };
  CHECK(parameters(graph) == parameters(even));
}

TEST_CASE("a trillion parameters on 3,072 devices is a small graph", "[workloads][transformer]") {
  const Job job = published_job(kTable1.back());
  const ExecutionGraph graph = workloads::build_graph(job);
  CHECK(graph.ranks() == 3072);
  CHECK(graph.programs.size() == 64);
  std::size_t ops = 0;
  for (const Program& p : graph.programs) {
    ops += p.ops.size();
  }
  CHECK(ops < 64 * 400);  // 2 layers of about 50 ops, buckets, ends
  CHECK(graph.programs.front().calls.size() == 2 + 2 * 512);
}
