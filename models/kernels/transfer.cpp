#include "models/kernels/transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/formats.h"
#include "models/collectives/collective_form.h"
#include "models/kernels/kernel_form.h"

namespace stepcast::models {
namespace {

constexpr std::string_view kTransferred = "transferred from ";

/// Residual corrections belong to their points.
bool of_residual(std::string_view constant) { return constant.starts_with("residual_"); }

void carry(FittedModel& model, const std::vector<Constant>& from, const std::vector<Constant>& to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto it = model.constants.find(std::string(from[i].name));
    if (it == model.constants.end()) {
      continue;
    }
    const double ratio = to[i].ideal / from[i].ideal;
    const double scaled = std::isfinite(ratio) && ratio > 0 ? it->second * ratio : it->second;
    it->second = std::clamp(scaled, to[i].low, to[i].high);
  }
}

/// The rule for collectives between devices on a described fabric, see the header.
void carry_links(FittedModel& model, const System& from, const System& to) {
  if (from.fabric.empty() || to.fabric.empty()) {
    return;
  }
  constexpr double kTestedStep = 1.5;  // A100 to H100: 300 to 450 GB/s
  const FabricLevel& a = from.fabric.front();
  const FabricLevel& b = to.fabric.front();
  const double ratio = std::clamp(a.bandwidth / b.bandwidth, 1 / kTestedStep, kTestedStep);
  const double hop = b.latency > Seconds{} ? ratio * (a.latency / b.latency) : ratio;
  const auto scale = [&model](std::string_view name, double by) {
    if (const auto it = model.constants.find(std::string(name)); it != model.constants.end()) {
      it->second *= by;
    }
  };
  for (const std::string_view time : {"start", "peer", "ramp"}) {
    scale(time, ratio);
  }
  for (const std::string_view hops : {"latency", "bulk"}) {
    scale(hops, hop);
  }
  scale("outer", 1 / hop);
}

/// Compares chips: as many multiprocessors of the same make; clocks, memory and caches in use may
/// differ.
bool same_chip(const Device& a, const Device& b) {
  const auto tensor_over_vector = [](const Device& d) {
    return d.peak_of(Format::kFp16).value_or(FlopsPerSecond(0)) /
           d.peak_of(Format::kFp32).value_or(FlopsPerSecond(1));
  };
  return a.multiprocessors == b.multiprocessors &&
         std::abs(tensor_over_vector(a) / tensor_over_vector(b) - 1) < 0.03;
}

/// Carries over what a chip sustains under another power limit: dynamic power goes with the cube of
/// the clock, as the voltage follows it. Shares are of the peak, which may go with the clock too.
void carry_power(FittedModel& model, const Device& from, const Device& to) {
  if (!(from.watts > 0) || !(to.watts > 0)) {
    return;
  }
  const double peaks = from.peak_of(Format::kFp16).value_or(FlopsPerSecond(1)) /
                       to.peak_of(Format::kFp16).value_or(FlopsPerSecond(1));
  for (const char* name : {"sustained", "compute_efficiency"}) {
    if (const auto it = model.constants.find(name); it != model.constants.end()) {
      it->second = std::min(1.0, it->second * std::cbrt(to.watts / from.watts) * peaks);
    }
  }
}

/// The links inside a machine are alike; what joins machines never is.
bool same_links(const System& a, const System& b) {
  return same_chip(a.device, b.device) && !a.fabric.empty() && !b.fabric.empty() &&
         a.fabric[0].size == b.fabric[0].size && a.fabric[0].bandwidth == b.fabric[0].bandwidth;
}

/// How much wider than the source's a transferred residual is taken to be, ln(measured /
/// predicted). Between A100 and H100 the accuracy test finds median errors of 12 % (matrix
/// products), 18 and 24 % (collectives) and 39 % (attention, whose rows are also of two stacks):
/// sigmas of 0.18 to 0.58, median / 0.674.
constexpr double kSameChip = 1.25;   // factor: only clocks and memory differ
constexpr double kOtherChip = 2;     // factor: another generation
constexpr double kLeastSigma = 0.3;  // of another chip, however good the source

FittedModel stripped(const FittedModel& model, const std::string& from, bool keep_points,
                     bool same) {
  FittedModel t = model;
  t.range.clear();
  t.samples = 0;
  t.error = {};
  if (!keep_points) {
    t.points.clear();
    std::erase_if(t.constants, [](const auto& c) { return of_residual(c.first); });
  }
  const bool bytes = model.form == "memory.reserve";  // have no scatter
  t.log_sigma = bytes  ? 0
                : same ? kSameChip * model.log_sigma
                       : std::max(kLeastSigma, kOtherChip * model.log_sigma);
  t.source = model.source.starts_with(kTransferred)
                 ? model.source
                 : fmt::format("{}{}: {}", kTransferred, from, model.source);
  return t;
}

/// The format a key is about: "gemm.fp8", "attention_forward.bf16".
std::optional<Format> format_of(const std::string& key) {
  const auto dot = key.rfind('.');
  return dot == std::string::npos ? std::nullopt
                                  : format_named(std::string_view(key).substr(dot + 1));
}

/// Kinds that only have models of single formats get that of most samples for all others.
void add_kinds(FittedModels& models, const FittedModels& source) {
  std::map<std::string, std::pair<std::int64_t, std::string>> best;
  for (const auto& [key, model] : models) {
    const auto s = source.find(key);
    const bool of_width = key.find('.') != key.rfind('.');  // a kernel of its own, for no others
    if (format_of(key) && !of_width && s != source.end()) {
      auto& now = best[key.substr(0, key.rfind('.'))];
      now = std::max(now, std::pair{s->second.samples, key});
    }
  }
  for (const auto& [kind, of] : best) {
    if (!models.contains(kind)) {
      models[kind] = models.at(of.second);
    }
  }
}

template <typename T>
T completed(T to, FittedModels transferred_models) {
  for (auto& [key, model] : to.fitted) {
    if (model.samples > 0) {
      transferred_models[key] = model;
    }
  }
  to.fitted = std::move(transferred_models);
  return to;
}

}  // namespace

FittedModels transferred(const Device& from, const Device& to) {
  const bool same = same_chip(from, to);
  FittedModels models;
  for (const auto& [key, model] : from.fitted) {
    FittedModel t = stripped(model, from.name, same, same);
    if (const KernelForm* form = kernel_form_named(model.form)) {
      carry(t, form->constants(from), form->constants(to));
      if (same) {
        carry_power(t, from, to);
      }
    }
    models[key] = std::move(t);
  }
  add_kinds(models, from.fitted);
  std::erase_if(models, [&to](const auto& entry) {
    const auto format = format_of(entry.first);
    return format && !to.peak.contains(*format);
  });
  return models;
}

FittedModels transferred(const System& from, const System& to) {
  FittedModels models;
  for (const auto& [key, model] : from.fitted) {
    FittedModel t = stripped(model, from.name, same_links(from, to), false);
    if (const CollectiveForm* form = collective_form_named(model.form)) {
      form->of_links() ? carry_links(t, from, to)
                       : carry(t, form->constants(from), form->constants(to));
    }
    models[key] = std::move(t);
  }
  return models;
}

Device with_transferred(Device to, const Device& from) {
  FittedModels models = transferred(from, to);
  return completed(std::move(to), std::move(models));
}

System with_transferred(System to, const System& from) {
  FittedModels models = transferred(from, to);
  if (const auto host = from.device.fitted.find("host"); host != from.device.fitted.end()) {
    to.device.fitted.try_emplace(
        "host", stripped(host->second, from.name, same_chip(from.device, to.device), true));
  }
  return completed(std::move(to), std::move(models));
}

}  // namespace stepcast::models
