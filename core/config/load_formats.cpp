// In which numbers a job computes, keeps and sends what: its `formats`.
#include <array>

#include "core/config/internal/job_tables.h"
#include "core/config/internal/keys.h"

namespace stepcast::config {
namespace {

using Allowed = std::vector<Format>;

std::vector<std::pair<std::string, Format>> names_of(const Allowed& allowed) {
  std::vector<std::pair<std::string, Format>> names;
  for (const Format f : allowed) {
    names.emplace_back(name_of(f), f);
  }
  return names;
}

Key<RoleFormats> format_key(std::string_view name, Format RoleFormats::*member,
                            const Allowed& allowed, std::string_view help) {
  return choice_key(name, member, names_of(allowed), help);
}
Key<RoleFormats> format_key(std::string_view name, std::optional<Format> RoleFormats::*member,
                            const Allowed& allowed, std::string_view help) {
  const auto names = names_of(allowed);
  return custom_key<RoleFormats>(
      name, choice_form(names), help,
      [=](const Value& v, RoleFormats& f, const Reading&) { f.*member = v.choice(names); },
      [=](const RoleFormats& f, const Writing&) {
        return f.*member ? OrderedJson(name_of(*(f.*member))) : OrderedJson();
      });
}

/// A trait of the kernels, as a framework may have it: `read_formats` puts it there.
struct TraitFormat {
  std::string_view name, format;
  bool FrameworkTraits::*trait;
  std::string_view help;
};
constexpr std::array kTraitFormats{
    TraitFormat{"attention", "fp8", &FrameworkTraits::fp8_attention,
                "queries, keys, values and probabilities of fused attention"},
    TraitFormat{"scores", "fp32", &FrameworkTraits::wide_scores,
                "the softmax of unfused attention, kept with its copy for products"},
    TraitFormat{"head", "compute", &FrameworkTraits::narrow_head,
                "of training: the vocabulary head's products, in the format of layers' products"}};

Key<RoleFormats> trait_key(const TraitFormat& of) {
  const std::vector<std::pair<std::string, bool>> names{{std::string(of.format), true}};
  return custom_key<RoleFormats>(
             of.name, choice_form(names), of.help,
             [=](const Value& v, RoleFormats&, const Reading&) { (void)v.choice(names); },
             [of](const RoleFormats&, const Writing& w) {
               return w.job->system.framework.*(of.trait) ? OrderedJson(of.format) : OrderedJson();
             })
      .otherwise("as activations")
      .only(kTransformers,
            "found {}: attention and a vocabulary head belong to transformers; leave it out");
}

/// "none": the optimizer updates the narrow weight itself.
Key<RoleFormats> master_key(const Allowed& allowed) {
  std::vector<std::pair<std::string, std::optional<Format>>> names;
  for (const Format f : allowed) {
    names.emplace_back(name_of(f), f);
  }
  names.emplace_back("none", std::nullopt);
  return choice_key("master", &RoleFormats::master, names,
                    "the copy of a narrow weight that is updated; none: the weight itself");
}

/// "compute": that of the products, as pre-quantised models are kept.
Key<RoleFormats> frozen_key() {
  using enum Format;
  Key<RoleFormats> key = format_key(
      "frozen", &RoleFormats::frozen, {kBf16, kFp16, kFp8, kMxfp8, kMxfp4, kNvfp4, kInt8, kNf4},
      "with lora: the matrices of layers, which are not trained; compute: as products read them");
  key.facts.form = any_form({choice_form({"compute"}), key.facts.form});
  key.read = [named = key.read](const Value& v, RoleFormats& f, const Reading& reading) {
    if (v.is("compute")) {
      f.frozen = f.compute;
    } else {
      named(v, f, reading);
    }
  };
  return std::move(key).otherwise("as all weights");
}

const Keys<RoleFormats>& formats_keys() {
  static const Keys<RoleFormats> keys = [] {
    using enum Format;
    using F = RoleFormats;
    const Allowed wide{kFp32, kBf16, kFp16};
    Allowed compute = wide;
    compute.insert(compute.end(),
                   {kTf32, kFp8, kMxfp8, kMxint8, kMxfp6, kMxfp4, kNvfp4, kMx9, kMx6, kMx4});
    Allowed stored = wide;
    stored.insert(stored.end(), {kFp8, kInt8Row, kInt4Row});
    const Allowed kept{kFp32, kBf16, kFp16, kFp8, kInt8};
    constexpr std::string_view kOfTransformers =
        "found a format of a transformer's optimizer, but the workload has tables; "
        "leave it out";
    Keys<F> all;
    const auto add = [&all](Key<F> key) { all.push_back(std::move(key)); };
    add(format_key("compute", &F::compute, compute, "what products are made in")
            .otherwise("bf16 where the device has it, else fp16, else fp32"));
    add(format_key("gradient", &F::gradient, wide, "gradients as they are summed up")
            .usual("fp32"));
    add(format_key("embedding", &F::embedding, stored, "rows of tables").usual("fp32"));
    add(format_key("all_to_all_forward", &F::all_to_all_forward, stored,
                   "looked-up rows on their way")
            .usual("fp32"));
    add(format_key("all_to_all_backward", &F::all_to_all_backward, stored,
                   "their gradients on the way back")
            .usual("fp32"));
    add(format_key("expert_dispatch", &F::expert_dispatch, {kBf16, kFp16, kFp8, kMxfp8},
                   "tokens, and gradients, on their way to experts")
            .otherwise("as stored")
            .only(kTransformers,
                  "found a format of experts' tokens, but a dlrm has none; leave it out"));
    for (const TraitFormat& of : kTraitFormats) {
      add(trait_key(of));
    }
    add(format_key("moments", &F::moments, kept, "optimizer state per weight")
            .terse_usual("fp32")
            .only(kWithoutTables, kOfTransformers));
    add(master_key(kept).terse_usual("fp32").only(kWithoutTables, kOfTransformers));
    add(format_key("cache", &F::cache, {kBf16, kFp16, kFp8, kInt8},
                   "of prefill and decode: keys and values that are kept")
            .otherwise("as attention computes them")
            .of(kTransformers));
    add(frozen_key());
    add(format_key("activation", &F::activation, {kFp8},
                   "of training: inputs of feed-forward activations, kept for the backward pass")
            .otherwise("as computed")
            .of(kTransformers));
    return all;
  }();
  return keys;
}

}  // namespace

OrderedJson formats_json(const Job& job) { return write_keys(formats_keys(), job.formats, {&job}); }
const KeyTable& formats_table() {
  static const KeyTable table = facts_of(formats_keys());
  return table;
}

void read_formats(const Value& job, Job& j) {
  const auto has = [&](Format f) { return j.system.device.peak.count(f) != 0; };
  j.formats.compute = has(Format::kBf16)   ? Format::kBf16
                      : has(Format::kFp16) ? Format::kFp16
                                           : Format::kFp32;
  if (const auto v = job.find("formats")) {
    read_keys(*v, formats_keys(), j.formats, {.job = &j});
    for (const TraitFormat& of : kTraitFormats) {
      bool& trait = j.system.framework.*(of.trait);
      trait = trait || v->find(of.name).has_value();
    }
  }
  const Format compute = j.formats.compute;
  if ((compute == Format::kFp8 || compute == Format::kBf16) && !has(compute)) {
    std::vector<std::string> native;
    for (const Format f : {Format::kBf16, Format::kFp16, Format::kTf32, Format::kFp32}) {
      if (has(f)) {
        native.emplace_back(name_of(f));
      }
    }
    throw InputError(job.where("formats.compute"),
                     fmt::format("found \"{0}\", but device {1} has no {0} peak; use {2}, or add "
                                 "system.device.peak.{0}",
                                 name_of(compute), j.system.device.name, list_of(native)));
  }
  if (!j.system.device.peak_of(j.formats.compute)) {
    throw InputError(
        job.where("formats.compute"),
        fmt::format("device {} has no peak for {} or a wider format; use another or add the peak",
                    j.system.device.name, name_of(j.formats.compute)));
  }
}

}  // namespace stepcast::config
