#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "core/error.h"
#include "models/collectives/collective_curves.h"
#include "models/collectives/collective_form.h"
#include "models/fit/fit.h"
#include "models/fit/least_squares.h"
#include "models/fit/points.h"
#include "models/residual.h"

namespace stepcast::models {
namespace {

using CollectiveRows = std::vector<const MeasuredCollective*>;

std::vector<double> times_of(const CollectiveRows& rows) {
  std::vector<double> times;
  for (const MeasuredCollective* row : rows) {
    times.push_back(row->time.base());
  }
  return times;
}

/// Right after the communicator's last use: what the residual points refer to.
double warm_time(const CollectiveForm& form, const System& system, const MeasuredCollective& row,
                 std::span<const double> c) {
  return form.predict(row.kind, row.bytes, row.group, system, c).time.base();
}

double form_time(const CollectiveForm& form, const System& system, const MeasuredCollective& row,
                 std::span<const double> c) {
  return warm_time(form, system, row, c) + form.after_rest(row.bytes, row.idle_time, c).base();
}

/// ln of what a row says about the form's warm time: measured, less what the rest before it cost.
double log_ratio_of(const CollectiveForm& form, const System& system, const MeasuredCollective& row,
                    std::span<const double> c) {
  const double measured = row.time.base();
  const double rest = form.after_rest(row.bytes, row.idle_time, c).base();
  return std::log(std::max(measured - rest, measured / 5) / warm_time(form, system, row, c));
}

std::vector<double> constants_in(const CollectiveForm& form, const System& system,
                                 const FittedModel& model) {
  std::vector<double> c;
  for (const Constant& k : form.constants(system)) {
    c.push_back(model.constants.at(std::string(k.name)));
  }
  return c;
}

/// The key of a place: rows of one group within a factor of 1.35 in bytes are one point.
std::tuple<double, double> group_of(const CollectivePlace& p) {
  return {p.log_size, p.log_members};
}

struct PlacedRatio {
  CollectivePlace place;
  double log_ratio = 0;
};

/// Repeats and near sizes of one group become one point, their median: a curve through every single
/// measurement would follow its noise.
std::vector<PlacedRatio> merged(std::vector<PlacedRatio> ratios) {
  const auto order = [](const PlacedRatio& r) {
    return std::tuple(r.place.log_size, r.place.log_members, r.place.log_bytes, r.log_ratio);
  };
  std::sort(ratios.begin(), ratios.end(),
            [&](const PlacedRatio& a, const PlacedRatio& b) { return order(a) < order(b); });
  std::vector<PlacedRatio> out;
  for (std::size_t first = 0; first < ratios.size();) {
    std::size_t last = first;
    std::vector<double> sizes;
    std::vector<double> values;
    while (last < ratios.size() && group_of(ratios[last].place) == group_of(ratios[first].place) &&
           ratios[last].place.log_bytes - ratios[first].place.log_bytes < 0.3) {
      sizes.push_back(ratios[last].place.log_bytes);
      values.push_back(ratios[last].log_ratio);
      ++last;
    }
    PlacedRatio point = ratios[first];
    point.place.log_bytes = quantile(sizes, 0.5);
    point.log_ratio = quantile(values, 0.5);
    out.push_back(point);
    first = last;
  }
  return out;
}

/// Coordinates in which the residual is smoothed: chunk (that of protocols), group size, and
/// whether the group leaves its unit (far apart: they do not borrow from each other).
std::vector<double> smoothing_coordinates(const CollectivePlace& p) {
  constexpr double kApart = 20;
  return {p.log_bytes - p.log_size, p.log_size,
          p.log_size - p.log_members > 1e-6 ? kApart + p.log_members : 0};
}

/// Residual points of the fitted form: merged, smoothed by the surface that best predicts left-out
/// points (none when that does not beat the form alone), and made non-decreasing in time per group
/// (pool adjacent violators; Ayer et al., Ann. Math. Stat. 26(4), 1955).
std::vector<FittedModel::Point> residual_points(
    std::vector<PlacedRatio> ratios, std::size_t limit,
    const std::function<double(const PlacedRatio&)>& form) {
  ratios = merged(std::move(ratios));
  FittedModel smoother;
  std::vector<FittedModel::Point> raw;
  for (const PlacedRatio& r : ratios) {
    raw.push_back({smoothing_coordinates(r.place), r.log_ratio});
  }
  add_residual_surface(smoother, thin_points(std::move(raw), limit));
  if (smoother.points.empty()) {
    return {};
  }
  const ResidualSurface surface(smoother);
  struct Block {
    double log_time;
    std::size_t count;
  };
  std::vector<FittedModel::Point> points;
  for (std::size_t first = 0; first < ratios.size();) {
    std::vector<Block> blocks;
    std::size_t last = first;
    for (; last < ratios.size() && group_of(ratios[last].place) == group_of(ratios[first].place);
         ++last) {
      blocks.push_back(
          {form(ratios[last]) + surface.at(smoothing_coordinates(ratios[last].place)), 1});
      while (blocks.size() > 1 && blocks[blocks.size() - 2].log_time > blocks.back().log_time) {
        const Block top = blocks.back();
        blocks.pop_back();
        Block& into = blocks.back();
        const auto n = static_cast<double>(into.count);
        const auto m = static_cast<double>(top.count);
        into = {(n * into.log_time + m * top.log_time) / (n + m), into.count + top.count};
      }
    }
    std::size_t at = first;
    for (const Block& block : blocks) {
      for (std::size_t i = 0; i < block.count; ++i, ++at) {
        const CollectivePlace& p = ratios[at].place;
        points.push_back(
            {{p.log_bytes, p.log_size, p.log_members}, block.log_time - form(ratios[at])});
      }
    }
    first = last;
  }
  return thin_points(std::move(points), limit);
}

/// `like`: where the search of the constants starts; null: where the form says.
FittedModel fit_form(const CollectiveForm& form, const System& system, const CollectiveRows& rows,
                     const FitOptions& options, const FittedModel* like) {
  FittedModel model =
      search_constants(form.name(), form.constants(system), like, times_of(rows), options.pull,
                       [&](std::size_t row, std::span<const double> c) {
                         return form_time(form, system, *rows[row], c);
                       });
  if (options.max_points > 0) {
    const std::vector<double> c = constants_in(form, system, model);
    std::vector<PlacedRatio> ratios;
    std::map<std::tuple<double, double>, const MeasuredCollective*> groups;
    for (const MeasuredCollective* row : rows) {
      const CollectivePlace place = place_of(row->bytes, row->group);
      groups.emplace(group_of(place), row);
      ratios.push_back({place, log_ratio_of(form, system, *row, c)});
    }
    model.points =
        residual_points(std::move(ratios), options.max_points, [&](const PlacedRatio& r) {
          MeasuredCollective at = *groups.at(group_of(r.place));
          at.bytes = std::exp(r.place.log_bytes);
          return std::log(warm_time(form, system, at, c));
        });
  }
  return model;
}

double predict_row(const CollectiveForm& form, const System& system, const FittedModel& model,
                   const CollectiveCurves& curves, const MeasuredCollective& row) {
  const std::vector<double> c = constants_in(form, system, model);
  const double base = warm_time(form, system, row, c);
  const double corrected =
      base * std::exp(curves.at(place_of(row.bytes, row.group), [&](double log_bytes) {
        MeasuredCollective other = row;
        other.bytes = std::exp(log_bytes);
        return std::log(warm_time(form, system, other, c));
      }));
  return std::max(corrected, form.limit(row.kind, row.bytes, row.group, system).base()) +
         form.after_rest(row.bytes, row.idle_time, c).base();
}

void score(FittedModel& model, const CollectiveForm& form, const System& system,
           const CollectiveRows& rows, const FitOptions& options, const FittedModel* like) {
  // Held out by size: a repeat of a fitted size would only show the repeat noise.
  std::vector<std::int64_t> sizes;
  for (const MeasuredCollective* row : rows) {
    const CollectivePlace place = place_of(row->bytes, row->group);
    sizes.push_back(std::llround(place.log_bytes * 1e3) * 64 + row->group.size % 64);
  }
  const bool hold_out = options.folds >= 2 && rows.size() >= 2 * kMinimumRows;
  const FittedModel whole = model;
  set_error(model, times_of(rows), sizes, hold_out ? options.folds : 0, kMinimumRows,
            [&](const std::vector<std::size_t>& kept, const std::vector<std::size_t>& held) {
              const FittedModel of_kept =
                  kept.size() == rows.size()
                      ? whole
                      : fit_form(form, system, rows_at(rows, kept), options, like);
              const CollectiveCurves curves(of_kept);
              std::vector<double> times;
              for (const std::size_t i : held) {
                times.push_back(predict_row(form, system, of_kept, curves, *rows[i]));
              }
              return times;
            });
  model.samples = static_cast<std::int64_t>(rows.size());
  model.source =
      options.source + (hold_out ? " (errors on held-out sizes)" : " (errors on the fitted rows)");
}

using RowsByFormat = std::map<OpKind, std::map<Format, CollectiveRows>>;

/// CollectiveRows of one kind and format become the generic model of the kind (no suffix): fp32
/// where measured, else the float format with most rows, since a network moves bytes whatever they
/// mean.
Format generic_format(const std::map<Format, CollectiveRows>& formats) {
  const auto integer = [](Format f) {
    return f == Format::kInt8 || f == Format::kInt32 || f == Format::kInt64;
  };
  const auto rank = [&](const std::pair<const Format, CollectiveRows>& entry) {
    return std::tuple(entry.first == Format::kFp32, !integer(entry.first), entry.second.size());
  };
  return std::max_element(formats.begin(), formats.end(),
                          [&](const auto& a, const auto& b) { return rank(a) < rank(b); })
      ->first;
}

/// Do the rows tell what a rest costs? Where they do not, it costs nothing.
bool rest_known(const CollectiveRows& rows) {
  return std::any_of(rows.begin(), rows.end(),
                     [](const MeasuredCollective* row) { return row->idle_time > Seconds{}; });
}

void without_rest(FittedModel& model) {
  if (model.constants.contains("cold")) {
    model.constants["cold"] = model.constants["cold_byte"] = 0;
  }
}

/// Fit and held-out error; where rows know how long their communicator rested, that has to earn its
/// place: without it the fit must be worse on held-out rows.
FittedModel fit_best(const CollectiveForm& form, const System& system, const CollectiveRows& rows,
                     const FitOptions& options, const FittedModel* like) {
  FittedModel model = fit_form(form, system, rows, options, like);
  score(model, form, system, rows, options, like);
  if (!rest_known(rows) || !model.constants.contains("cold")) {
    without_rest(model);
    return model;
  }
  std::vector<MeasuredCollective> copies;
  for (const MeasuredCollective* row : rows) {
    copies.push_back(*row);
    copies.back().idle_time = Seconds(-1);
  }
  CollectiveRows blind_rows;
  for (const MeasuredCollective& row : copies) {
    blind_rows.push_back(&row);
  }
  FittedModel blind = fit_form(form, system, blind_rows, options, like);
  score(blind, form, system, blind_rows, options, like);
  if (model.error.mean < blind.error.mean) {
    return model;
  }
  without_rest(blind);
  return blind;
}

void add_ranges(FittedModel& model, const CollectiveRows& rows) {
  const auto widen = [&](const std::string& name, double value) {
    const auto [it, fresh] = model.range.try_emplace(name, value, value);
    it->second = {std::min(it->second.first, value), std::max(it->second.second, value)};
  };
  for (const MeasuredCollective* row : rows) {
    const CollectivePlace place = place_of(row->bytes, row->group);
    widen("log_bytes", place.log_bytes);
    widen("log_size", place.log_size);
    widen("log_members", place.log_members);
  }
}

/// Constants for kinds without rows, from those of all kinds: never in range, and as uncertain as
/// one set of constants is for the kinds that have rows.
FittedModel fit_together(const CollectiveForm& form, const System& system,
                         const RowsByFormat& by_kind, const FitOptions& options) {
  CollectiveRows all;
  for (const auto& [kind, formats] : by_kind) {
    const CollectiveRows& rows = formats.at(generic_format(formats));
    all.insert(all.end(), rows.begin(), rows.end());
  }
  FitOptions plain = options;
  plain.max_points = 0;
  FittedModel model = fit_form(form, system, all, plain, nullptr);
  if (!rest_known(all)) {
    without_rest(model);
  }
  const std::vector<double> c = constants_in(form, system, model);
  std::vector<double> logs;
  for (const MeasuredCollective* row : all) {
    logs.push_back(std::log(row->time.base() / form_time(form, system, *row, c)));
  }
  model.log_sigma = robust_sigma(logs);
  model.source = options.source + " (all kinds together, for kinds without rows)";
  return model;
}

}  // namespace

FittedModels fit_collectives(const System& system, std::span<const MeasuredCollective> measured,
                             std::string_view form_name, const FitOptions& options) {
  const CollectiveForm* form = collective_form_named(form_name);
  STEPCAST_CHECK(form != nullptr, "no collective form named '{}'", form_name);
  RowsByFormat by_kind;
  for (const MeasuredCollective& row : measured) {
    if (row.group.size > 1 && row.time > Seconds{}) {
      by_kind[row.kind][row.format].push_back(&row);
    }
  }
  FittedModels models;
  std::optional<FittedModel> together;
  if (!by_kind.empty() && (form->serves_other_kinds() || options.pooled)) {
    together = fit_together(*form, system, by_kind, options);
  }
  const FittedModel* like = options.pooled && together ? &*together : nullptr;
  for (const auto& [kind, formats] : by_kind) {
    const Format generic = generic_format(formats);
    for (const auto& [format, rows] : formats) {
      if (rows.size() < kMinimumRows && kind != OpKind::kBarrier) {
        continue;
      }
      const Format key = format == generic ? Format::kFp32 : format;
      FittedModel& model = models[collective_keys(kind, key).front()] =
          fit_best(*form, system, rows, options, like);
      add_ranges(model, rows);
    }
  }
  if (together && measured.size() >= kMinimumRows) {
    models.try_emplace("collective", std::move(*together));
  }
  return models;
}

}  // namespace stepcast::models
