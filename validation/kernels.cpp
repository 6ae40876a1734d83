#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/error.h"
#include "models/cost_model.h"
#include "models/fit/fit.h"
#include "models/fit/points.h"
#include "models/kernels/kernel_form.h"
#include "models/kernels/transfer.h"
#include "validation/models.h"

namespace stepcast::validation {
namespace {

using models::CostModel;
using models::MeasuredTable;
using Indices = std::vector<std::uint32_t>;

constexpr std::array<std::pair<std::string_view, Holdout>, 5> kHoldouts{
    {{"pairs", Holdout::kPairs},
     {"sizes", Holdout::kSizes},
     {"ranks", Holdout::kRanks},
     {"device", Holdout::kDevice},
     {"rows", Holdout::kRows}}};

constexpr const char* kWindow = " window ";

std::string shape_text(const Op& op) {
  std::string text;
  std::size_t last = op.shape.size();
  while (last > 1 && op.shape[last - 1] == 0) {
    --last;
  }
  for (std::size_t i = 0; i < last; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : "x", op.shape[i]);
  }
  return text;
}

/// The extent that tells small from large calls of one kernel.
std::int64_t extent_of(const Op& op) {
  return class_of(op.kind) == OpClass::kAttention ? op.shape[3] : op.shape[0];
}

class KernelValidation {
 public:
  KernelValidation(const MeasuredTable& table, const ModelFacts& facts,
                   const ValidateModelsOptions& options)
      : table_(table), facts_(facts), options_(options) {}

  Suite run() {
    result_.name = "kernels";
    for (const auto& [key, rows] : groups()) {
      ScoredGroup group;
      group.key = key;
      const auto device = facts_.devices.find(key.device);
      if (device == facts_.devices.end()) {
        skip_all(group, rows, "no device of this name; give --device or add its facts");
      } else if (options_.holdout == Holdout::kDevice) {
        transfer(group, possible(group, rows, device->second), device->second);
      } else {
        hold_out(group, possible(group, rows, device->second), device->second);
      }
      for (ScoredGroup& part : by_window(std::move(group))) {
        add_group(std::move(part), options_, result_);
      }
    }
    close_suite(options_, result_);
    return std::move(result_);
  }

 private:
  /// Rows of attention over a window stand apart: they are fitted together with the others, but
  /// most of their time is elsewhere.
  [[nodiscard]] static std::vector<ScoredGroup> by_window(ScoredGroup group) {
    std::vector<ScoredGroup> parts(2);
    for (Row& row : group.rows) {
      parts[row.id.find(kWindow) == std::string::npos ? 0 : 1].rows.push_back(std::move(row));
    }
    for (ScoredGroup& part : parts) {
      part.key = group.key;
      part.note = group.note;
    }
    parts[1].note = " / over a window" + parts[1].note;
    std::erase_if(parts, [](const ScoredGroup& part) { return part.rows.empty(); });
    return parts;
  }

  [[nodiscard]] GroupKey key_of(const MeasuredTable::OpRow& row) const {
    const Op& op = table_.op(row);
    const models::Testbed& t = table_.testbed(row.origin);
    return {op.kind,   op.format, models::fitted_keys(op).front(), t.device, t.framework,
            t.variant, false};
  }

  std::map<GroupKey, Indices> groups() {
    std::map<GroupKey, Indices> groups;
    for (std::uint32_t i = 0; i < table_.ops.size(); ++i) {
      const MeasuredTable::OpRow& row = table_.ops[i];
      if (options_.thin <= 1 || std::max<std::int64_t>(row.configuration, 0) % options_.thin == 0) {
        all_[key_of(row)].push_back(i);
      }
    }
    for (const auto& [key, rows] : all_) {
      if ((options_.device.empty() || options_.device == key.device) &&
          key.framework.rfind(options_.framework, 0) == 0) {
        groups.emplace(key, rows);
      }
    }
    return groups;
  }

  [[nodiscard]] std::string id_of(std::uint32_t i) const {
    const MeasuredTable::OpRow& row = table_.ops[i];
    const Op& op = table_.op(row);
    const std::int32_t window = op.as<AttentionAttributes>().window;
    const std::string detail = window > 0 ? fmt::format("{}{}", kWindow, window) : "";
    return fmt::format("{} {}{} @ {}", name_of(op.kind), shape_text(op), detail,
                       table_.place(row.origin));
  }

  void skip_all(ScoredGroup& group, const Indices& rows, const std::string& reason) const {
    for (const std::uint32_t i : rows) {
      group.skip(id_of(i), table_.ops[i].time.base(), reason);
    }
  }

  [[nodiscard]] Indices possible(ScoredGroup& group, const Indices& rows,
                                 const Device& device) const {
    Indices kept;
    for (const std::uint32_t i : rows) {
      const MeasuredTable::OpRow& row = table_.ops[i];
      const std::string reason = models::impossible_on(device, table_.op(row), row.time);
      if (reason.empty()) {
        kept.push_back(i);
      } else {
        group.skip(id_of(i), row.time.base(), reason);
      }
    }
    return kept;
  }

  [[nodiscard]] models::FitOptions fit_options(std::size_t points) const {
    models::FitOptions fit;
    fit.folds = 1;
    fit.max_rows = options_.max_rows;
    fit.max_points = points;
    return fit;
  }

  [[nodiscard]] static System system_with(const Device& device, FittedModels fitted) {
    System system;
    system.device = device;
    system.device.fitted = std::move(fitted);
    return system;
  }

  /// Fold of each row. Few configurations, or few rows, are left out one by one; rows of a single
  /// configuration like rows at random.
  [[nodiscard]] std::vector<std::int64_t> folds(const Indices& rows) const {
    std::vector<std::int64_t> configurations;
    std::set<std::int64_t> distinct;
    for (const std::uint32_t i : rows) {
      const MeasuredTable::OpRow& row = table_.ops[i];
      configurations.push_back(options_.holdout == Holdout::kSizes   ? extent_of(table_.op(row))
                               : options_.holdout == Holdout::kPairs ? row.configuration
                                                                     : -1);
      distinct.insert(configurations.back());
    }
    constexpr std::size_t kFew = 12;
    if (rows.size() <= kFew) {  // one by one: every row that can be kept is needed
      std::iota(configurations.begin(), configurations.end(), std::int64_t{0});
      return configurations;
    }
    if (distinct.size() == 1) {
      configurations.assign(rows.size(), -1);
    } else if (distinct.size() <= kFew) {
      for (std::int64_t& c : configurations) {
        c = std::distance(distinct.begin(), distinct.find(c));
      }
      return configurations;
    }
    return models::folds_of(configurations, std::max<std::int64_t>(2, options_.folds));
  }

  void hold_out(ScoredGroup& group, const Indices& rows, const Device& device) {
    const std::vector<std::int64_t> fold = folds(rows);
    const std::set<std::int64_t> all(fold.begin(), fold.end());
    const CostModel naive(system_with(device, {}), {});
    for (const std::int64_t held : all) {
      Indices kept;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        if (fold[r] != held) {
          kept.push_back(rows[r]);
        }
      }
      const CostModel cost(
          system_with(device, models::fit_kernels(
                                  device, models::measured_ops(table_, kept),
                                  fit_options(options_.form_only ? 0 : options_.max_points))),
          {});
      for (std::size_t r = 0; r < rows.size(); ++r) {
        if (fold[r] == held) {
          score(group, rows[r], cost, naive, 1, kept.size() >= models::kMinimumRows);
        }
      }
    }
  }

  void score(ScoredGroup& group, std::uint32_t i, const CostModel& cost, const CostModel& naive,
             double factor, bool fitted) const {
    const MeasuredTable::OpRow& row = table_.ops[i];
    if (!fitted) {
      group.skip(id_of(i), row.time.base(),
                 fmt::format("fewer than {} rows are left to fit", models::kMinimumRows));
      return;
    }
    double predicted = 0;
    double plain = 0;
    bool in_range = true;
    for (const Op& op : table_.ops_of(row)) {
      const models::OpFacts facts(*table_.program, op);
      const models::Prediction p = cost.kernel(facts);
      predicted += p.time.base();
      plain += naive.kernel(facts).time.base();
      in_range = in_range && p.in_range;
    }
    const double apart = row.apart.base();  // as measured: in the time of the whole row
    group.rows.push_back({.id = id_of(i),
                          .measured = row.time.base() + apart,
                          .predicted = predicted * factor + apart,
                          .naive = plain + apart,
                          .in_range = in_range});
  }

  /// The device with rows of this kind whose memory bandwidth is nearest.
  [[nodiscard]] const GroupKey* source_of(const GroupKey& target) const {
    const GroupKey* nearest = nullptr;
    double least = 0;
    for (const auto& [key, rows] : all_) {
      const auto device = facts_.devices.find(key.device);
      if (key.model != target.model || key.variant != target.variant ||
          key.device == target.device || device == facts_.devices.end()) {
        continue;
      }
      const double distance =
          std::abs(std::log(device->second.bandwidth / facts_.devices.at(target.device).bandwidth));
      if (nearest == nullptr || distance < least) {
        nearest = &key;
        least = distance;
      }
    }
    return nearest;
  }

  void transfer(ScoredGroup& group, const Indices& rows, const Device& device) {
    const GroupKey* source = source_of(group.key);
    if (source == nullptr) {
      skip_all(group, rows, "no other device has rows of this kind");
      return;
    }
    group.note = fmt::format(" / constants of {}", source->device);
    const Device& from = facts_.devices.at(source->device);
    ScoredGroup ignored;
    const Indices fitted_rows = possible(ignored, all_.at(*source), from);
    Device measured = from;
    measured.fitted =
        models::fit_kernels(from, models::measured_ops(table_, fitted_rows), fit_options(0));
    const CostModel cost(system_with(device, models::transferred(measured, device)), {});
    const CostModel naive(system_with(device, {}), {});
    std::vector<std::int64_t> configurations;
    for (const std::uint32_t i : rows) {
      configurations.push_back(table_.ops[i].configuration);
    }
    const std::vector<std::int64_t> fold = models::folds_of(configurations, 16);
    std::vector<double> logs;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (fold[r] == 0) {
        const MeasuredTable::OpRow& row = table_.ops[rows[r]];
        double predicted = 0;
        for (const Op& op : table_.ops_of(row)) {
          predicted += cost.kernel(*table_.program, op).time.base();
        }
        logs.push_back(std::log(row.time.base() / predicted));
      }
    }
    const double scalar = logs.empty() ? 1 : std::exp(median_of(logs));
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (fold[r] != 0 || rows.size() < 16) {
        score(group, rows[r], cost, naive, scalar, true);
      }
    }
  }

  const MeasuredTable& table_;
  const ModelFacts& facts_;
  const ValidateModelsOptions& options_;
  std::map<GroupKey, Indices> all_;
  Suite result_;
};

}  // namespace

std::optional<Holdout> holdout_named(std::string_view name) {
  for (const auto& [written, h] : kHoldouts) {
    if (written == name) {
      return h;
    }
  }
  return std::nullopt;
}

std::string_view name_of(Holdout h) { return kHoldouts.at(static_cast<std::size_t>(h)).first; }

Suite validate_kernels(const models::MeasuredTable& table, const ModelFacts& facts,
                       const ValidateModelsOptions& options) {
  if (options.holdout == Holdout::kRanks) {
    throw InputError("--holdout",
                     "ranks applies to collectives; for kernels use pairs, sizes, device or rows");
  }
  return KernelValidation(table, facts, options).run();
}

}  // namespace stepcast::validation
