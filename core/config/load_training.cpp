// How a transformer is trained, apart from its plan: loss, adapters, lengths of documents, what an
// optimizer keeps, what is recomputed.
#include <algorithm>
#include <cmath>

#include "core/config/internal/job_tables.h"
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

const Keys<Loss>& loss_keys() {
  static const Keys<Loss> keys{
      choice_key("kind", &Loss::kind, loss_names(), "what becomes of the logits").usual("in_place"),
      integer_key("chunks", &Loss::chunks, 1, kMostChunks,
                  "parts of the tokens whose head, loss and gradients are done before the next")
          .usual(1),
      integer_key("deferred", &Loss::deferred, 0, kMostChunks,
                  "micro-batches whose weight gradient of the head waits for the end of the step")
          .terse_usual(0)};
  return keys;
}

using Target = bool Lora::*;
const std::vector<std::pair<std::string, Target>>& target_names() {
  static const std::vector<std::pair<std::string, Target>> names{{"qkv", &Lora::qkv},
                                                                 {"projection", &Lora::projection},
                                                                 {"fc1", &Lora::fc1},
                                                                 {"fc2", &Lora::fc2}};
  return names;
}

void read_targets(const Value& v, Lora& lora, const Reading&) {
  for (const auto& [name, target] : target_names()) {
    lora.*target = false;
  }
  for (const Value& t :
       v.items("the matrices that have adapters, like [\"qkv\", \"projection\"]", 1)) {
    lora.*t.choice(target_names()) = true;
  }
}

OrderedJson targets_json(const Lora& lora, const Writing&) {
  OrderedJson targets = OrderedJson::array();
  for (const auto& [name, target] : target_names()) {
    if (lora.*target) {
      targets.push_back(name);
    }
  }
  return targets;
}

const Keys<Lora>& lora_keys() {
  static const Keys<Lora> keys = [] {
    constexpr std::int64_t kHighestRank = 1 << 16;
    Key<Lora> rank = integer_key("rank", &Lora::rank, 1, kHighestRank,
                                 "columns between an adapter's two matrices")
                         .needed("the columns between an adapter's two matrices");
    rank.read = [read = rank.read](const Value& v, Lora& lora, const Reading& reading) {
      read(v, lora, reading);
      lora.alpha = 2.0 * static_cast<double>(lora.rank);
    };
    return Keys<Lora>{
        std::move(rank),
        number_key("alpha", &Lora::alpha, 0, 1e6, "alpha / rank scales what an adapter adds")
            .otherwise("2 rank"),
        custom_key<Lora>("targets", list_form(choice_form(target_names()), 1),
                         "matrices that have adapters", read_targets, targets_json)
            .usual({"qkv", "projection"}),
        number_key("dropout", &Lora::dropout, 0, 0.999, "of what goes into an adapter").usual(0)};
  }();
  return keys;
}

double deviation_of(const SequenceLengths& s) {
  return std::sqrt(std::max(0.0, s.mean_square - s.mean * s.mean));
}

const Keys<SequenceLengths>& lengths_keys() {
  using S = SequenceLengths;
  constexpr auto kLongest = static_cast<double>(1 << 26);
  static const Keys<S> keys{
      custom_key<S>(
          "mean", number_form(1, kLongest), "mean length of a document in tokens",
          [](const Value& v, S& s, const Reading& reading) {
            s.mean = v.number(1, static_cast<double>(reading.job->batch.sequence));
            s.mean_square = s.mean * s.mean;
          },
          [](const S& s, const Writing&) { return plain(s.mean); })
          .needed("the mean length of a document in tokens"),
      custom_key<S>(
          "deviation", number_form(0, kLongest), "standard deviation of the lengths",
          [](const Value& v, S& s, const Reading& reading) {
            const double deviation = v.number(0, static_cast<double>(reading.job->batch.sequence));
            s.mean_square = s.mean * s.mean + deviation * deviation;
          },
          [](const S& s, const Writing&) { return plain(deviation_of(s)); })
          .usual(0),
      boolean_key("packed", &S::packed, "documents follow one another until a sequence is full")
          .usual(true),
      choice_key<S, bool>("attention", &S::attend_within, {{"document", true}, {"sequence", false}},
                          "what a token of a packed sequence attends to")
          .usual("document")};
  return keys;
}

SequenceLengths lengths_from(const Value& v, const Reading& reading) {
  SequenceLengths lengths;
  read_keys(v, lengths_keys(), lengths, reading);
  const std::int64_t longest = reading.job->batch.sequence;
  if (lengths.length_of_a_token() > static_cast<double>(longest)) {
    v.reject(fmt::format(
        "a mean of {:g} and a deviation of {:g} tokens put an average token into a document of "
        "{:.0f}, but a sequence has {} (batch.sequence): documents are cut there; give the moments "
        "of what is left of them",
        lengths.mean, deviation_of(lengths), lengths.length_of_a_token(), longest));
  }
  return lengths;
}

const Keys<Offload>& offload_keys() {
  static const Keys<Offload> keys{
      boolean_key("activations", &Offload::activations,
                  "what a layer keeps for its backward pass, until then")
          .usual(false),
      boolean_key("optimizer", &Offload::optimizer,
                  "optimizer states; the host updates the weights")
          .usual(false),
      boolean_key("parameters", &Offload::parameters,
                  "with zero 3 and optimizer: shards of weights, loaded before they are gathered")
          .usual(false)};
  return keys;
}

using Module = bool RecomputeModules::*;
std::vector<std::pair<std::string, Module>> module_names() {
  std::vector<std::pair<std::string, Module>> names;
  for (const auto& [name, module] : kRecomputeModules) {
    names.emplace_back(name, module);
  }
  return names;
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

std::vector<std::string> recompute_module_names() {
  std::vector<std::string> names;
  for (const auto& [name, module] : module_names()) {
    names.push_back(name);
  }
  return names;
}

Key<Job> loss_key() {
  return custom_key<Job>(
             "loss", any_form({choice_form(loss_names()), object_form(facts_of(loss_keys()))}),
             "how logits become the loss and their gradient",
             [](const Value& v, Job& j, const Reading& reading) {
               if (v.is_object()) {
                 read_keys(v, loss_keys(), j.loss, reading);
               } else {
                 j.loss = {v.choice(loss_names())};
               }
             },
             [](const Job& job, const Writing& w) {
               return job.loss.chunks > 1 || job.loss.deferred > 0
                          ? write_keys(loss_keys(), job.loss, w)
                          : OrderedJson(name_in(loss_names(), job.loss.kind));
             })
      .terse_usual("in_place")
      .only(kTransformers,
            "found {}: a way to make the loss belongs to transformers; leave it out");
}

Key<Job> lora_key() {
  return custom_key<Job>(
             "lora", object_form(facts_of(lora_keys())),
             "adapters are trained, the weights are frozen",
             [](const Value& v, Job& j, const Reading& reading) {
               if (!v.json().is_object()) {
                 v.fail(R"(an object such as {"rank": 16})");
               }
               read_keys(v, lora_keys(), j.lora.emplace(), reading);
             },
             [](const Job& job, const Writing& w) {
               return job.lora ? write_keys(lora_keys(), *job.lora, w) : OrderedJson();
             })
      .only(kTransformers, "found {}: an adapter belongs to transformers; leave it out");
}

Key<Job> offload_key() {
  return custom_key<Job>(
             "offload", object_form(facts_of(offload_keys())),
             "what the host's memory (tier ddr) holds between uses",
             [](const Value& v, Job& j, const Reading& reading) {
               read_keys(v, offload_keys(), j.offload, reading);
             },
             [](const Job& job, const Writing& w) {
               return job.offload == Offload{} ? OrderedJson()
                                               : write_keys(offload_keys(), job.offload, w);
             })
      .otherwise("nothing")
      .only(kTransformers, "found {}: offloading belongs to transformers; leave it out");
}

Key<Job> sequence_lengths_key() {
  return custom_key<Job>(
             "sequence_lengths", object_form(facts_of(lengths_keys())),
             "documents that sequences are made of",
             [](const Value& v, Job& j, const Reading& reading) {
               j.sequence_lengths = lengths_from(v, reading);
             },
             [](const Job& job, const Writing& w) {
               return job.sequence_lengths ? write_keys(lengths_keys(), *job.sequence_lengths, w)
                                           : OrderedJson();
             })
      .otherwise("all full")
      .only(kTransformers, "found {}: a law of lengths belongs to transformers; leave it out");
}

}  // namespace stepcast::config
