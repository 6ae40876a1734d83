#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "core/job/internal/rules.h"
#include "core/job/layer_split.h"

namespace stepcast::internal {
namespace {

/// A stage starts its next chunk when the last one has its first micro-batch back, so the last
/// turn, too, has at least as many micro-batches as there are stages.
Broken turns_of_chunks(const Job& job) {
  const Parallel& p = job.parallel;
  const std::int64_t turn = p.turn_of_chunk();
  if (turn < p.pipeline) {
    return BrokenRule{
        "parallel.chunk_microbatches",
        fmt::format("found {}, expected at least pipeline = {}, or auto", turn, p.pipeline)};
  }
  const std::int64_t rest = job.microbatches() % turn;
  if (rest == 0 || rest >= p.pipeline) {
    return std::nullopt;
  }
  return remedied(
      "batch.global",
      fmt::format("{} makes {} micro-batches, but virtual_stages = {} needs a multiple of {} = {}",
                  job.batch.global, job.microbatches(), p.virtual_stages,
                  p.chunk_microbatches > 0 ? "chunk_microbatches" : "pipeline", turn),
      around(job.batch.global, batch_unit(job)));
}

Broken pipeline(const Job& job, const TransformerWorkload& w) {
  const Parallel& p = job.parallel;
  const bool evenly = p.pipeline_split == PipelineSplit{};
  if (evenly && p.pipeline > w.layers) {
    return BrokenRule{"parallel.pipeline",
                      fmt::format("{} leaves stages of workload.layers = {} empty; use at most {} "
                                  "stages",
                                  p.pipeline, w.layers, w.layers)};
  }
  const ScheduleTraits& schedule = traits_of(p.schedule);
  if (p.pipeline > 1 && p.virtual_stages < schedule.least_chunks) {
    return BrokenRule{
        "parallel.virtual_stages",
        fmt::format("found {}, but {} gives each stage {} chunks; use {}", p.virtual_stages,
                    schedule.name, schedule.least_chunks, schedule.least_chunks)};
  }
  if (p.chunk_microbatches > 0 &&
      (p.virtual_stages == 1 || schedule.placement != ChunkPlacement::kRound)) {
    return BrokenRule{"parallel.chunk_microbatches",
                      fmt::format("found {}, but chunks take turns on interleaved stages alone; "
                                  "use auto, or virtual_stages > 1 with 1f1b or gpipe",
                                  p.chunk_microbatches)};
  }
  if (p.virtual_stages == 1) {
    return std::nullopt;
  }
  if (p.pipeline == 1) {
    return BrokenRule{
        "parallel.virtual_stages",
        fmt::format("{} needs a pipeline, but parallel.pipeline = 1; use 1", p.virtual_stages)};
  }
  if (schedule.most_chunks != 0 && p.virtual_stages > schedule.most_chunks) {
    return BrokenRule{"parallel.schedule",
                      fmt::format("virtual_stages = {} interleaves the 1f1b schedule; use 1f1b or "
                                  "virtual_stages {}",
                                  p.virtual_stages, schedule.most_chunks)};
  }
  if (schedule.placement == ChunkPlacement::kRound) {
    if (Broken broken = turns_of_chunks(job)) {
      return broken;
    }
  }
  if (evenly && p.pipeline * p.virtual_stages > w.layers) {
    return BrokenRule{
        "parallel.virtual_stages",
        fmt::format("{} on {} pipeline stages leaves some of {} virtual stages empty, "
                    "as workload.layers = {}; use at most {}{}",
                    p.virtual_stages, p.pipeline, p.pipeline * p.virtual_stages, w.layers,
                    w.layers / p.pipeline,
                    p.pipeline * p.virtual_stages <= w.layers + 2
                        ? ", or let the ends count as layers: parallel.pipeline_split = "
                          "{\"embedding\": 1, \"head\": 1}"
                        : "")};
  }
  return std::nullopt;
}

/// Only the ends can do without layers: they have the embedding and the head.
Broken pipeline_split(const Job& job, const TransformerWorkload& w) {
  const Parallel& p = job.parallel;
  const PipelineSplit& split = p.pipeline_split;
  if (split == PipelineSplit{}) {
    return std::nullopt;
  }
  const char* key = "parallel.pipeline_split";
  const std::int64_t chunks = p.pipeline * p.virtual_stages;
  const std::vector<std::int64_t>& given = split.layers;
  if (!given.empty() && static_cast<std::int64_t>(given.size()) != chunks) {
    return BrokenRule{key, fmt::format("found {} numbers of layers, expected one for each of "
                                       "pipeline * virtual_stages = {} * {} = {} chunks",
                                       given.size(), p.pipeline, p.virtual_stages, chunks)};
  }
  const std::int64_t sum = std::accumulate(given.begin(), given.end(), std::int64_t{0});
  if (!given.empty() && sum != w.layers) {
    return BrokenRule{
        key, fmt::format("its numbers make {} layers, but workload.layers = {}", sum, w.layers)};
  }
  const std::int64_t all = w.layers + split.embedding + split.head;
  if (given.empty() && all < chunks) {
    return BrokenRule{
        key, fmt::format("{} layers, and {} that the ends count as, leave some of {} chunks empty; "
                         "use a smaller pipeline or fewer virtual_stages",
                         w.layers, split.embedding + split.head, chunks)};
  }
  const std::vector<LayerRange> ranges = split_layers(w.layers, chunks, split);
  for (std::int64_t i = 0; i < chunks; ++i) {
    const bool end = chunks > 1 && (i == 0 || i + 1 == chunks);
    if (ranges[static_cast<std::size_t>(i)].count >= (end ? 0 : 1)) {
      continue;
    }
    return BrokenRule{
        key,
        given.empty()
            ? fmt::format("an embedding that counts as {} and a head that counts as {} layers are "
                          "too much for chunks of {}; use {} or less",
                          split.embedding, split.head, all / chunks, all / chunks)
            : fmt::format("leaves chunk {} of stage {} without layers, but only the first and the "
                          "last of all, which have embedding and head, can do without; use 1 or "
                          "more",
                          p.stages().chunk_of(i), p.stages().stage_of(i))};
  }
  return std::nullopt;
}

Broken recompute(const Job& job, const TransformerWorkload& w) {
  const Parallel& p = job.parallel;
  const RecomputeKind kind = p.recompute.kind;
  if (kind == RecomputeKind::kFirstLayers) {
    const std::int64_t most = most_layers(w.layers, p.pipeline, p.virtual_stages, p.pipeline_split);
    if (p.recompute.layers > most) {
      return BrokenRule{"parallel.recompute.layers",
                        fmt::format("found {}, but a stage has at most {} of {} layers; use {} or "
                                    "less, or full",
                                    p.recompute.layers, most, w.layers, most)};
    }
  }
  if (splits_weights(p.schedule) &&
      (kind == RecomputeKind::kFull || kind == RecomputeKind::kFirstLayers)) {
    return BrokenRule{"parallel.recompute",
                      fmt::format("{} keeps what the weight gradients need until they are made, so "
                                  "whole layers cannot be recomputed; use selective or none, or "
                                  "schedule 1f1b",
                                  name_of(p.schedule))};
  }
  if (kind != RecomputeKind::kSelective || !job.system.framework.selective_per_op) {
    return std::nullopt;
  }
  const char* what = w.activation == Activation::kGelu ? "layers with biases"
                     : w.parallel_block                ? "parallel blocks"
                     : w.dropout                       ? "layers with dropout"
                     : job.lora                        ? "adapters"
                     : splits_weights(p.schedule) ? "a schedule that makes weight gradients later"
                                                  : nullptr;
  if (what == nullptr) {
    return std::nullopt;
  }
  return BrokenRule{"parallel.recompute",
                    fmt::format("selective recomputation op by op, as the stack does it, is for "
                                "layers of plain products in order, not for {}; use full or none",
                                what)};
}

Broken zero(const Job& job, const TransformerWorkload&) {
  const Parallel& p = job.parallel;
  const int zero = exchanged_zero(p);
  if (splits_weights(p.schedule) && p.data * p.context > 1 &&
      (zero == 2 || (zero == 3 && p.zero_reshard))) {
    return BrokenRule{"parallel.zero",
                      fmt::format("zero {} frees gradients after each backward pass, but {} "
                                  "makes them later; use zero 1, {{\"stage\": 3, \"reshard\": "
                                  "false}}, or schedule 1f1b",
                                  p.zero, name_of(p.schedule))};
  }
  return std::nullopt;
}

/// Shards inside a level of the fabric: it must hold several ranks of the same parameters, and data
/// many times its replicas.
Broken zero_level(const Job& job, const TransformerWorkload&) {
  const Parallel& p = job.parallel;
  if (p.zero == 0 || p.zero_level.empty()) {
    return std::nullopt;
  }
  const char* key = "parallel.zero.level";
  const auto inside = job.system.devices_in(p.zero_level);
  if (!inside) {
    std::string names = "\"node\"";
    for (const FabricLevel& level : job.system.fabric) {
      names += fmt::format(", \"{}\"", level.name);
    }
    return BrokenRule{key, fmt::format("found \"{}\"; use one of {}", p.zero_level, names)};
  }
  const std::int64_t split = p.mesh().stride(Axis::kData);
  const std::int64_t members = *inside / split;
  if (*inside % split != 0 || members * p.context < 2) {
    return BrokenRule{
        key,
        fmt::format("{} joins {} devices, but one replica of the model takes tensor * context * "
                    "pipeline = {}: no two lie inside to shard over; use zero {} without a level",
                    p.zero_level, *inside, split, p.zero)};
  }
  if (p.data % members != 0) {
    return BrokenRule{key,
                      fmt::format("{} joins {} replicas, which do not divide data = {}; use "
                                  "data = {} or zero {} without a level",
                                  p.zero_level, members, p.data,
                                  std::max<std::int64_t>(1, p.data / members) * members, p.zero)};
  }
  return std::nullopt;
}

constexpr std::array<TransformerRule, 5> kScheduleRules{pipeline, pipeline_split, recompute, zero,
                                                        zero_level};

}  // namespace

std::span<const TransformerRule> schedule_rules() { return kScheduleRules; }

}  // namespace stepcast::internal
