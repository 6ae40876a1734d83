#include "studies/fit/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "models/collectives/collective_form.h"
#include "models/fit/fit.h"
#include "models/kernels/kernel_form.h"
#include "studies/fit/linear_baseline.h"
#include "studies/fit/shadowed_models.h"

namespace stepcast::studies {
namespace {

using models::MeasuredTable;

/// Facts that a model's rows have in common, gathered while rows are chosen.
struct Provenance {
  std::set<std::uint32_t> files, sources;
  std::set<std::string> frameworks;
  std::int64_t used = 0, skipped = 0;
};

std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& n : names) {
    text += (text.empty() ? "" : ", ") + n;
  }
  return text;
}

std::string source_of(const MeasuredTable& table, const Provenance& of, const std::string& date) {
  std::string sources;
  for (const std::uint32_t s : of.sources) {
    sources += (sources.empty() ? "" : ", ") + table.sources[s];
  }
  return fmt::format("stepcast fit, {}, {} rows of {}, {}", date, of.used, sources,
                     joined(of.frameworks));
}

/// Chooses one framework per place where rows were taken, or says that the user must.
class FrameworkChoice {
 public:
  FrameworkChoice(const MeasuredTable& table, std::string wanted)
      : table_(table), wanted_(std::move(wanted)) {}
  void see(const std::string& what, const MeasuredTable::Origin& o) {
    found_[what].insert(table_.testbed(o).framework);
  }
  /// False for a row of a framework that was not asked for. Errors: see fit_data.
  [[nodiscard]] bool keep(const std::string& what, const MeasuredTable::Origin& o) const {
    const std::set<std::string>& frameworks = found_.at(what);
    if (frameworks.size() == 1) {
      return true;
    }
    const auto chosen = [this](const std::string& framework) {
      return !wanted_.empty() && framework.rfind(wanted_, 0) == 0;
    };
    if (std::count_if(frameworks.begin(), frameworks.end(), chosen) != 1) {
      throw InputError("--stack",
                       fmt::format("{}{} was measured on {}; their kernels differ, so name one",
                                   wanted_.empty() ? "" : "found \"" + wanted_ + "\", but ", what,
                                   joined(frameworks)));
    }
    return chosen(table_.testbed(o).framework);
  }

 private:
  const MeasuredTable& table_;
  std::string wanted_;
  std::map<std::string, std::set<std::string>> found_;
};

std::string kind_and_format(const Op& op) {
  return fmt::format("{} {}", name_of(op.kind), name_of(op.format));
}

/// Errors of a model are followed by a remark in brackets on which rows they are of: kept.
void set_source(FittedModel& model, const std::string& placeholder, const std::string& source) {
  const bool marked = model.source.rfind(placeholder, 0) == 0;
  model.source = source + (marked ? model.source.substr(placeholder.size()) : "");
}

constexpr double kTakenOverSigma = 0.2;  ///< ln; of constants of another kind or format

class Fit {
 public:
  Fit(const MeasuredTable& table, const FitDataOptions& options)
      : table_(table), options_(options) {
    result_.system = options.base;
    fit_.folds = options.folds;
    fit_.max_points = options.max_points;
    fit_.max_rows = options.max_rows;
    fit_.source = "@";
    for (const MeasuredTable::Skipped& s : table.skipped) {
      const std::string& device = table.testbed(s.origin).device;
      if (device.empty() || device == options.base.device.name) {
        result_.skipped.push_back({table.place(s.origin), s.reason});
      }
    }
  }

  FitDataResult run() {
    kernels();
    if (options_.collectives) {
      collectives();
    }
    host();
    if (result_.kernels.empty() && result_.collectives.empty()) {
      reject();
    }
    for (const std::uint32_t f : used_files_) {
      result_.files.push_back(table_.files[f]);
    }
    return std::move(result_);
  }

 private:
  void kernels() {
    const Device& device = result_.system.device;
    FrameworkChoice frameworks(table_, options_.framework);
    std::vector<std::uint32_t> candidates;
    for (std::uint32_t i = 0; i < table_.ops.size(); ++i) {
      const MeasuredTable::OpRow& row = table_.ops[i];
      const models::Testbed& t = table_.testbed(row.origin);
      if (t.device != device.name) {
        ++result_.other_devices;
      } else if (!t.variant.empty()) {
        ++result_.stand_ins;
      } else {
        frameworks.see(kind_and_format(table_.op(row)), row.origin);
        candidates.push_back(i);
      }
    }
    std::vector<std::uint32_t> rows;
    std::map<std::string, Provenance> by_key;  // a row counts for every key that may serve it
    for (const std::uint32_t i : candidates) {
      const MeasuredTable::OpRow& row = table_.ops[i];
      const Op& op = table_.op(row);
      if (!frameworks.keep(kind_and_format(op), row.origin)) {
        ++result_.other_frameworks;
        continue;
      }
      const std::string impossible = models::impossible_on(device, op, row.time);
      if (!impossible.empty()) {
        result_.skipped.push_back({table_.place(row.origin), impossible});
      } else {
        rows.push_back(i);
      }
      for (const std::string& key : keys_of(op)) {
        note(by_key[key], row.origin, impossible.empty());
      }
    }
    FittedModels fitted = models::fit_kernels(device, models::measured_ops(table_, rows), fit_);
    for (const std::uint32_t i : rows) {
      forget_shadowing(result_.system.device.fitted, fitted, keys_of(table_.op(table_.ops[i])));
    }
    store(fitted, by_key, result_.system.device.fitted, result_.kernels);
    for (const char* kind : {"gemm", "attention_forward"}) {
      const std::string of_format = std::string(kind) + ".bf16";
      if (fitted.contains(of_format)) {
        take_over(kind, of_format);  // for formats without rows
      }
    }
    if (fitted.contains("attention_forward") || fitted.contains("attention_forward.bf16")) {
      take_over("attention_backward", "attention_forward");
    }
    if (fitted.contains("attention_forward.fp8")) {
      take_over("attention_backward.fp8", "attention_forward.fp8");
    }
    // Widths with kernels of their own, such as "attention_forward.160.bf16".
    constexpr std::string_view kForward = "attention_forward";
    for (const auto& entry : fitted) {
      const std::string& key = entry.first;
      if (key.starts_with(kForward) && std::count(key.begin(), key.end(), '.') == 2) {
        take_over("attention_backward" + key.substr(kForward.size()), key);
      }
    }
  }

  [[nodiscard]] std::vector<std::string> keys_of(const Op& op) const {
    return models::fitted_keys(op, result_.system.device.peak.contains(op.format));
  }

  /// Kinds not measured here take the constants of those that were; a share of forward's rate that
  /// the device states for backward stays.
  void take_over(const std::string& to, const std::string& from) {
    FittedModels& models = result_.system.device.fitted;
    FittedModel model = models.at(from);
    FittedModel& stored = models[to];
    if (stored.samples > 0) {
      return;
    }
    for (const auto& [name, value] : stored.constants) {
      if (name == "backward_efficiency") {
        model.constants[name] = value;
      }
    }
    std::erase_if(model.constants, [](const auto& c) { return c.first.starts_with("residual_"); });
    model.points.clear();
    model.range.clear();
    model.samples = 0;
    model.error = {};
    model.log_sigma = std::max(model.log_sigma, kTakenOverSigma);
    model.source = fmt::format("transferred from {}; not measured on this device", from);
    stored = std::move(model);
  }

  void collectives() {
    const System& system = result_.system;
    const auto candidates = models::find_collectives(table_, system);
    FrameworkChoice frameworks(table_, options_.framework);
    const auto place_of = [this](std::uint32_t i) {
      const MeasuredTable::CollectiveRow& row = table_.collectives[i];
      return fmt::format(
          "{} {}", name_of(row.kind),
          row.ranks == row.ranks_per_machine ? "inside one machine" : "across machines");
    };
    for (const std::uint32_t i : candidates) {
      frameworks.see(place_of(i), table_.collectives[i].origin);
    }
    const auto measured = models::measured_collectives(table_, system, candidates);
    std::vector<models::MeasuredCollective> rows;
    std::map<std::string, Provenance> by_key;
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      const MeasuredTable::CollectiveRow& row = table_.collectives[candidates[c]];
      if (!frameworks.keep(place_of(candidates[c]), row.origin)) {
        ++result_.other_frameworks;
        continue;
      }
      const std::string impossible = models::impossible_on(system, measured[c]);
      if (!impossible.empty()) {
        result_.skipped.push_back({table_.place(row.origin), impossible});
      } else {
        rows.push_back(measured[c]);
      }
      for (const std::string& key : models::collective_keys(row.kind, measured[c].format)) {
        note(by_key[key], row.origin, impossible.empty());
      }
    }
    const char* form = system.host.shares_core ? "collective.knee" : "collective.fabric";
    const FittedModels fitted = models::fit_collectives(system, rows, form, fit_);
    store(fitted, by_key, result_.system.fitted, result_.collectives);
  }

  void host() {
    const models::MeasuredHost samples = models::measured_host(table_, result_.system.device.name);
    Provenance of;
    for (const MeasuredTable::HostRow& row : table_.host) {
      if (table_.testbed(row.origin).device == result_.system.device.name) {
        note(of, row.origin, true);
      }
    }
    std::map<std::string, Provenance> by_key{{"host", of}};
    if (!samples.issue.empty()) {
      FittedModels fitted = models::fit_host(samples, fit_);
      FittedModel& host = fitted.at("host");
      if (samples.dispatch.empty()) {
        host.constants.erase("dispatch");
      }
      if (samples.step.empty()) {
        host.constants.erase("step");
      }
      store(fitted, by_key, result_.system.device.fitted, result_.kernels);
    }
    std::vector<StepSample> steps;
    Provenance of_steps;
    for (const MeasuredTable::StepRow& row : table_.steps) {
      if (table_.testbed(row.origin).device == result_.system.device.name) {
        steps.push_back({row.flops, row.bytes, row.time.base()});
        note(of_steps, row.origin, true);
      }
    }
    if (steps.size() >= models::kMinimumRows) {
      store({{"baseline", fit_linear_baseline(steps, "@")}}, {{"baseline", of_steps}},
            result_.system.device.fitted, result_.kernels);
    }
  }

  void note(Provenance& p, const MeasuredTable::Origin& o, bool used) {
    ++(used ? p.used : p.skipped);
    p.files.insert(o.file);
    p.sources.insert(o.source);
    p.frameworks.insert(table_.testbed(o).framework);
  }

  void store(const FittedModels& fitted, const std::map<std::string, Provenance>& by_key,
             FittedModels& into, std::vector<FittedLine>& lines) {
    for (const auto& [key, model] : fitted) {
      const auto found = by_key.find(key);
      const Provenance of = found == by_key.end() ? Provenance{} : found->second;
      FittedModel& stored = into[key] = model;
      set_source(stored, fit_.source, source_of(table_, of, options_.date));
      lines.push_back({key, joined(of.frameworks), model.samples, of.skipped, stored});
      used_files_.insert(of.files.begin(), of.files.end());
    }
  }

  [[noreturn]] void reject() const {
    std::set<std::string> devices;
    for (const models::Testbed& t : table_.testbeds) {
      devices.insert(t.device.empty() ? "(none named)" : t.device);
    }
    const std::string most =
        result_.skipped.empty()
            ? ""
            : fmt::format("; {} rows were skipped, the first {}: {}", result_.skipped.size(),
                          result_.skipped.front().place, result_.skipped.front().reason);
    throw InputError(
        "--device",
        fmt::format(
            "fewer than {} rows of one kind were measured on {}; the files hold rows of: {}{}",
            models::kMinimumRows, result_.system.device.name, joined(devices), most));
  }

  const MeasuredTable& table_;
  const FitDataOptions& options_;
  models::FitOptions fit_;
  FitDataResult result_;
  std::set<std::uint32_t> used_files_;
};

}  // namespace

FitDataResult fit_data(const models::MeasuredTable& table, const FitDataOptions& options) {
  return Fit(table, options).run();
}

}  // namespace stepcast::studies
