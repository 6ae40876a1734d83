// How a transformer is trained beside its split: loss, adapters, lengths of documents, what an
// optimizer keeps, what is recomputed.
#include <algorithm>
#include <cmath>

#include "core/config/internal/loaders.h"

namespace stepcast::config {
namespace {

constexpr std::int64_t kMostChunks = 1 << 16;

const std::vector<std::pair<std::string, LossKind>>& loss_names() {
  static const std::vector<std::pair<std::string, LossKind>> names{
      {"in_place", LossKind::kInPlace},
      {"copied", LossKind::kCopied},
      {"compiled", LossKind::kCompiled},
      {"eager", LossKind::kEager},
      {"fused", LossKind::kFused}};
  return names;
}

Loss loss_from(const Value& v) {
  if (!v.is_object()) {
    return {v.choice(loss_names()), 1};
  }
  v.keys({"kind", "chunks"});
  Loss loss;
  if (const auto kind = v.find("kind")) {
    loss.kind = kind->choice(loss_names());
  }
  if (const auto chunks = v.find("chunks")) {
    loss.chunks = chunks->integer(1, kMostChunks);
  }
  return loss;
}

using Target = bool Lora::*;
const std::vector<std::pair<std::string, Target>>& target_names() {
  static const std::vector<std::pair<std::string, Target>> names{{"qkv", &Lora::qkv},
                                                                 {"projection", &Lora::projection},
                                                                 {"fc1", &Lora::fc1},
                                                                 {"fc2", &Lora::fc2}};
  return names;
}

Lora lora_from(const Value& v) {
  constexpr std::int64_t kHighestRank = 1 << 16;
  v.keys({"rank", "alpha", "targets", "dropout"});
  Lora lora;
  lora.rank =
      v.at("rank", "the columns between an adapter's two matrices").integer(1, kHighestRank);
  lora.alpha = 2.0 * static_cast<double>(lora.rank);
  if (const auto alpha = v.find("alpha")) {
    lora.alpha = alpha->number(0, 1e6);
  }
  if (const auto dropout = v.find("dropout")) {
    lora.dropout = dropout->number(0, 0.999);
  }
  if (const auto targets = v.find("targets")) {
    for (const auto& [name, target] : target_names()) {
      lora.*target = false;
    }
    for (const Value& t :
         targets->items("the matrices that have adapters, like [\"qkv\", \"projection\"]", 1)) {
      lora.*t.choice(target_names()) = true;
    }
  }
  return lora;
}

SequenceLengths lengths_from(const Value& v, const Job& j) {
  v.keys({"mean", "deviation", "packed", "attention"});
  SequenceLengths lengths;
  const auto longest = static_cast<double>(j.batch.sequence);
  lengths.mean = v.at("mean", "the mean length of a document in tokens").number(1, longest);
  double deviation = 0;
  if (const auto given = v.find("deviation")) {
    deviation = given->number(0, longest);
  }
  lengths.mean_square = lengths.mean * lengths.mean + deviation * deviation;
  if (lengths.length_of_a_token() > longest) {
    v.refuse(fmt::format(
        "a mean of {:g} and a deviation of {:g} tokens put an average token into a document of "
        "{:.0f}, but a sequence has {} (batch.sequence): documents are cut there; give the moments "
        "of what is left of them",
        lengths.mean, deviation, lengths.length_of_a_token(), j.batch.sequence));
  }
  if (const auto packed = v.find("packed")) {
    lengths.packed = packed->boolean();
  }
  if (const auto attention = v.find("attention")) {
    lengths.attend_within = attention->choice<bool>({{"document", true}, {"sequence", false}});
  }
  return lengths;
}

using Module = bool RecomputeModules::*;
const std::vector<std::pair<std::string, Module>>& module_names() {
  static const std::vector<std::pair<std::string, Module>> names{
      {"core_attn", &RecomputeModules::attention_core},
      {"layernorm", &RecomputeModules::norms},
      {"mlp", &RecomputeModules::feed_forward},
      {"moe_act", &RecomputeModules::expert_activation}};
  return names;
}

void only_transformers(const std::optional<Value>& v, const Job& j, std::string_view what) {
  if (v && !is_transformer(j)) {
    v->refuse(
        fmt::format("found {}: {} belongs to transformers; leave it out", shown(v->json()), what));
  }
}

}  // namespace

RecomputeModules recompute_modules_from(const Value& list) {
  RecomputeModules modules;
  modules.attention_core = false;
  for (const Value& m : list.items("the modules to recompute, like [\"core_attn\", \"mlp\"]", 1)) {
    modules.*m.choice(module_names()) = true;
  }
  return modules;
}

OrderedJson recompute_modules_json(const RecomputeModules& modules) {
  OrderedJson list = OrderedJson::array();
  for (const auto& [name, module] : module_names()) {
    if (modules.*module) {
      list.push_back(name);
    }
  }
  return list;
}

void read_training(const Value& job, Job& j) {
  const auto loss = job.find("loss");
  const auto lora = job.find("lora");
  const auto lengths = job.find("sequence_lengths");
  only_transformers(loss, j, "a way to make the loss");
  only_transformers(lora, j, "an adapter");
  only_transformers(lengths, j, "a law of lengths");
  if (loss) {
    j.loss = loss_from(*loss);
  }
  if (lora) {
    j.lora = lora_from(*lora);
  }
  if (lengths) {
    j.sequence_lengths = lengths_from(*lengths, j);
  }
}

void add_training(OrderedJson& j, const Job& job) {
  if (job.loss.chunks > 1) {
    j["loss"] = {{"kind", name_in(loss_names(), job.loss.kind)}, {"chunks", job.loss.chunks}};
  } else if (job.loss.kind != LossKind::kInPlace) {
    j["loss"] = name_in(loss_names(), job.loss.kind);
  }
  if (job.lora) {
    const Lora& l = *job.lora;
    OrderedJson targets = OrderedJson::array();
    for (const auto& [name, target] : target_names()) {
      if (l.*target) {
        targets.push_back(name);
      }
    }
    j["lora"] = {{"rank", l.rank},
                 {"alpha", plain(l.alpha)},
                 {"targets", std::move(targets)},
                 {"dropout", plain(l.dropout)}};
  }
  if (job.sequence_lengths) {
    const SequenceLengths& s = *job.sequence_lengths;
    const double variance = std::max(0.0, s.mean_square - s.mean * s.mean);
    j["sequence_lengths"] = {{"mean", plain(s.mean)},
                             {"deviation", plain(std::sqrt(variance))},
                             {"packed", s.packed},
                             {"attention", s.attend_within ? "document" : "sequence"}};
  }
}

}  // namespace stepcast::config
