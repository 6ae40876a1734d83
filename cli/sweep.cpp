#include "studies/predict/sweep.h"

#include <fmt/ostream.h>
#include <fmt/ranges.h>
#include <algorithm>

#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "cli/command.h"
#include "cli/print/human.h"
#include "cli/print/print_prediction.h"
#include "cli/print/report.h"
#include "cli/support/checks.h"
#include "cli/support/console.h"
#include "cli/support/output_files.h"
#include "cli/support/progress.h"
#include "cli/support/whole_run.h"
#include "core/error.h"
#include "studies/predict/chosen_plan.h"

namespace stepcast::cli {
namespace {

using studies::SweepAxis;
using studies::SweepPoint;
using studies::SweepStatus;

struct SweepCommand {
  JobOptions job;
  std::vector<std::string> pareto;
  std::string out;
  int threads = 0;
  WholeRunOptions run;
};

/// The keys that take several values, by index; the others are the same everywhere.
std::vector<std::size_t> swept(const std::vector<SweepAxis>& axes) {
  std::vector<std::size_t> indices;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (axes[a].values.size() > 1) {
      indices.push_back(a);
    }
  }
  return indices;
}

Json json_value(const std::string& text) {
  Json value = Json::parse(text, nullptr, false);
  return value.is_discarded() ? Json(text) : value;
}

/// A cell of points that are predicted; the others have none.
template <class Value>
auto predicted(Value value) {
  return [value](const SweepPoint& p) {
    return p.predicted() ? cell(std::invoke(value, p)) : absent_cell("-");
  };
}

bool has_tokens(const std::vector<SweepPoint>& points) {
  return std::any_of(points.begin(), points.end(),
                     [](const SweepPoint& p) { return p.tokens_per_second > 0; });
}

/// A row of every format.
Columns<SweepPoint> columns_of(const std::vector<SweepAxis>& axes, const SweepCommand& options,
                               bool tokens) {
  using P = SweepPoint;
  const bool run = options.run.asked();
  const auto shown = [](bool shows, Visibility look) { return shows ? look : kNowhere; };
  const auto flag = [](bool P::*of) {  // JSON names it where it is set
    return [of](const P& p) { return p.predicted() && p.*of ? code(true) : absent_cell(); };
  };
  const auto interval = [](Seconds P::*of) {
    return [of](const P& p) { return (p.*of).base() > 0 ? cell(p.*of) : absent_cell(); };
  };
  Columns<P> columns{{"set", "", [](auto&) { return code(Json::object()); }, kInJson}};
  for (const std::size_t a : swept(axes)) {
    const std::string& key = axes[a].key;
    columns.emplace_back(
        "set/" + key, key,
        [a](const P& p) {
          return Cell{p.values[a], json_value(p.values[a])};
        },
        kInText | kInJson);
    columns.emplace_back(
        key, "", [a](const P& p) { return code(p.values[a]); }, kInCsv);
  }
  const auto add = [&](std::initializer_list<ColumnOf<P>> more) {
    columns.insert(columns.end(), more);
  };
  const auto add_run = [&](Visibility look) {
    add({{"run/days", "days", predicted([](auto& p) { return rate(p.days); }), shown(run, look)},
         {"run/device_hours", "device-hours",
          predicted([](auto& p) { return rate(p.device_hours); }), shown(run, look)}});
  };
  add({{"status", "", [](auto& p) { return code(name_of(p.status)); }, kInJson | kInCsv},
       {"iteration_time_s", "step", predicted(&P::iteration)},
       {"", "90 % interval", predicted([](auto& p) {
          return p.p5 > Seconds{} ? cell(interval_text({p.p5, p.p95})) : empty_cell("-");
        }),
        kInText | kIfVarying | kMinor},
       {"interval_s/p5", "", interval(&P::p5), kInJson},
       {"interval_s/p95", "", interval(&P::p95), kInJson},
       {"samples_per_s", "samples/s", predicted([](auto& p) { return rate(p.samples_per_second); }),
        kMinor},
       {"tokens_per_s", "tokens/s", predicted([](auto& p) { return rate(p.tokens_per_second); }),
        shown(tokens, kInText) | kInJson | kInCsv},
       {"mfu", "MFU", predicted([](auto& p) { return share(p.mfu); })}});
  add_run(kInText);
  add({{"cost", "", predicted([](auto& p) { return rate(p.cost); }),
        shown(run && options.run.price > 0, kInText)},
       {"memory_bytes", "memory", predicted(&P::memory)},
       {"fits", "", predicted([](auto& p) { return p.status == SweepStatus::kOk; }),
        kInJson | kInCsv},
       {"in_calibrated_range", "", predicted(&P::in_calibrated_range), kInJson | kInCsv}});
  add_run(kInJson | kInCsv);
  add({{"run/cost", "", [](auto& p) { return p.cost > 0 ? code(p.cost) : absent_cell(); },
        shown(run, kInJson)},
       {"cost", "", predicted(&P::cost), shown(run, kInCsv)},
       {"chosen", "chosen plan",
        [](auto& p) {
          return Cell{p.chosen.empty() ? "-" : fmt::format("{}", fmt::join(p.chosen, " ")),
                      p.chosen.empty() ? Json(Json::value_t::discarded) : Json(p.chosen)};
        },
        kInText | kIfVarying | kInJson},
       {"embedding_plan_by_rule", "", flag(&P::planned_by_rule), kInJson},
       {"embedding_plan_searched", "", flag(&P::plan_searched), kInJson},
       {"pareto", "front",
        [](auto& p) {
          return Cell{p.pareto ? "*" : "", p.pareto};
        },
        shown(!options.pareto.empty(), kInText | kInJson | kInCsv)},
       {"reason", "",
        [](auto& p) {
          // The prediction of what does not fit the memory says so itself.
          const std::string status(name_of(p.status));
          const bool said = p.reason.empty() || p.reason.starts_with(status);
          return Cell{p.status == SweepStatus::kDoesNotFit ? "out of memory"
                      : said                               ? p.reason
                             : fmt::format("{}: {}", status, p.reason),
                      p.reason.empty() ? Json(Json::value_t::discarded) : Json(p.reason)};
        },
        kLeft}});
  return columns;
}

/// The file of the job and the keys that have one value.
std::string fixed_text(const std::vector<SweepAxis>& axes, const SweepCommand& options) {
  std::vector<std::string> fixed;
  if (!options.job.job.empty() && options.job.job != "-") {
    fixed.push_back(options.job.job);
  }
  for (const SweepAxis& axis : axes) {
    if (axis.values.size() == 1) {
      fixed.push_back(axis.key + "=" + axis.values.front());
    }
  }
  return fmt::format("{}", fmt::join(fixed, " "));
}

std::string counts_text(const std::vector<SweepPoint>& points) {
  const auto count = [&points](SweepStatus s) {
    return std::count_if(points.begin(), points.end(),
                         [s](const SweepPoint& p) { return p.status == s; });
  };
  const auto failed = count(SweepStatus::kFailed);
  return fmt::format("{}: {} fit, {} out of memory, {} invalid{}",
                     counted(static_cast<std::int64_t>(points.size()), "point"),
                     count(SweepStatus::kOk), count(SweepStatus::kDoesNotFit),
                     count(SweepStatus::kInvalid),
                     failed > 0 ? fmt::format(", {} failed", failed) : "");
}

/// The point of most samples or tokens a second; empty where none fits or there is one only.
std::string best_text(const std::vector<SweepAxis>& axes, const std::vector<SweepPoint>& points) {
  // Samples of different lengths are not alike: then tokens are what is compared.
  const bool by_tokens =
      has_tokens(points) && std::any_of(axes.begin(), axes.end(), [](const SweepAxis& axis) {
        return axis.values.size() > 1 &&
               (axis.key == "batch.sequence" || axis.key == "batch" || axis.key == "workload");
      });
  const auto rate_of = [by_tokens](const SweepPoint& p) {
    return by_tokens ? p.tokens_per_second : p.samples_per_second;
  };
  const auto best =
      std::min_element(points.begin(), points.end(), [&](const SweepPoint& a, const SweepPoint& b) {
        const bool fits_a = a.status == SweepStatus::kOk;
        const bool fits_b = b.status == SweepStatus::kOk;
        return fits_a != fits_b ? fits_a : fits_a && rate_of(a) > rate_of(b);
      });
  if (best->status != SweepStatus::kOk || points.size() < 2) {
    return "";
  }
  std::vector<std::string> settings;
  for (const std::size_t a : swept(axes)) {
    settings.push_back(axes[a].key + "=" + best->values[a]);
  }
  return fmt::format("most {}: {} ({})", by_tokens ? "tokens/s" : "samples/s",
                     fmt::join(settings, " "), grouped(rate_of(*best)));
}

/// How the points came by their embedding plans.
void add_plan_lines(const std::vector<SweepPoint>& points, Report& report) {
  for (const auto& [of, how] :
       {std::pair(&SweepPoint::plan_searched, "a quick search (embedding.plan=search)"),
        std::pair(&SweepPoint::planned_by_rule,
                  "the built-in heuristic: embedding.plan=search or `stepcast plan` finds faster "
                  "ones")}) {
    const auto n = std::count_if(points.begin(), points.end(),
                                 [of = of](const SweepPoint& p) { return p.*of; });
    if (n > 0) {
      report.line(fmt::format("{} sharded the embedding tables by {}", counted(n, "point"), how));
    }
  }
}

Report report_of(const std::vector<SweepAxis>& axes, const std::vector<SweepPoint>& points,
                 const SweepCommand& options, const std::set<std::string>& default_frameworks,
                 const std::set<std::string>& rejected) {
  Report report(options.job.format);
  Json fixed = Json::object();
  for (const SweepAxis& axis : axes) {
    if (axis.values.size() == 1) {
      fixed[axis.key] = json_value(axis.values.front());
    }
  }
  report.fact("fixed", fixed);
  if (!options.pareto.empty()) {
    report.fact("pareto", options.pareto);
  }
  if (const std::string text = fixed_text(axes, options); !text.empty()) {
    report.line(text + '\n');
  }
  report.add(table_of("points", "", columns_of(axes, options, has_tokens(points)), points));
  report.line('\n' + counts_text(points));
  if (const std::string best = best_text(axes, points); !best.empty()) {
    report.line(best);
  }
  add_plan_lines(points, report);
  if (const auto n = std::count_if(points.begin(), points.end(),
                                   [](const SweepPoint& p) { return !p.chosen.empty(); });
      n > 0) {
    report.line(fmt::format("{} chose a plan: no key of it is given", counted(n, "point")));
  }
  if (!options.pareto.empty()) {
    report.line(fmt::format("* Pareto front of {}", fmt::join(options.pareto, ", ")));
  }
  if (!default_frameworks.empty()) {
    report.line(fmt::format("\nframework: {} (implied; --set framework=NAME for another)",
                            fmt::join(default_frameworks, ", ")));
  }
  for (const std::string& reason : rejected) {
    report.line(fmt::format(
        "\nNo framework is implied, as {}. These steps are kernels alone, faster than real runs; "
        "--set framework=NAME names one.",
        reason));
  }
  return report;
}

/// 2 when not a single point is a job, 70 when a prediction broke: the rows say why.
int exit_code(const std::vector<SweepPoint>& points) {
  std::size_t invalid = 0;
  std::size_t failed = 0;
  for (const SweepPoint& p : points) {
    invalid += p.status == SweepStatus::kInvalid ? 1 : 0;
    failed += p.status == SweepStatus::kFailed ? 1 : 0;
  }
  if (failed > 0) {
    fmt::print(notes(), "stepcast: {} of {} points failed; see their reason\n", failed,
               points.size());
    return 70;
  }
  if (invalid == points.size()) {
    fmt::print(notes(), "stepcast: no point of the sweep is a valid job: {}\n",
               points.front().reason);
    return 2;
  }
  return 0;
}

int sweep(const SweepCommand& options, const Context& context) {
  const std::vector<SweepAxis> axes = studies::sweep_axes(options.job.overrides);
  const std::size_t size = studies::sweep_size(axes);
  std::vector<SweepPoint> none;
  studies::mark_pareto(none, axes, options.pareto);  // a wrong column is told before the work
  const config::Source source = job_source(options.job);
  const config::Library library{context.library};
  std::mutex usual;  // guards the next
  std::set<std::string> default_frameworks, rejected;
  const auto make_job = [&](const std::vector<std::string>& overrides) {
    studies::ChosenJob on = studies::choose_plan(source, overrides, library);
    const std::lock_guard lock(usual);
    if (!on.default_framework.empty()) {
      default_frameworks.insert(on.default_framework);
    }
    if (!on.rejected.empty()) {
      rejected.insert(on.rejected);
    }
    return studies::SweptJob{std::move(on.job), std::move(on.choice.settings)};
  };

  const bool stream =
      options.out.empty() && options.job.format == OutputFormat::kCsv && options.pareto.empty();
  const Columns<SweepPoint> columns = columns_of(axes, options, false);
  if (stream) {
    table_of("points", "", columns, std::vector<SweepPoint>{}).print_csv(answer());
  }
  std::vector<SweepPoint> points;
  {
    Progress progress("sweep");
    studies::SweepOptions work;
    work.length = options.run.length;
    work.terms = options.run.terms();
    work.threads = options.threads > 0
                       ? options.threads
                       : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    work.on_progress = [&](std::size_t done) {
      progress.update(static_cast<double>(done), static_cast<double>(size),
                      fmt::format("{} of {} points", done, size));
    };
    if (stream) {
      work.on_point = [&](const SweepPoint& p) {
        table_of("points", "", columns, std::vector{p}).print_csv(answer(), false);
        answer() << std::flush;
      };
    }
    points = studies::sweep(axes, make_job, work);
  }
  studies::mark_pareto(points, axes, options.pareto);
  if (!stream) {
    std::ostringstream text;
    report_of(axes, points, options, default_frameworks, rejected)
        .print(options.out.empty() ? answer() : static_cast<std::ostream&>(text));
    if (!options.out.empty()) {
      write_output(options.out, text.str());
    }
  }
  doubt_length(options.run);
  return exit_code(points);
}

}  // namespace

void add_sweep(CLI::App& app, Context& context) {
  auto options = std::make_shared<SweepCommand>();
  CLI::App* command =
      app.add_subcommand("sweep", "Predict the cross product of several values per key");
  add_job_options(*command, options->job);
  command->get_option("--set")->description(
      "key=value,value,...: every combination is one row; commas inside [], {} and \"\" belong to "
      "the value; repeatable");
  command
      ->add_option(
          "--pareto", options->pareto,
          "Columns x,y,...: mark the points that no other beats in all of them "
          "(iteration_time_s, samples_per_s, tokens_per_s, mfu, memory_bytes, days, cost, or a "
          "swept key)")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--out", options->out,
                   "Write the rows to this file, in --format, instead of printing them")
      ->check(output_file());
  add_whole_run_options(*command, options->run);
  command->add_option("--jobs", options->threads, "Threads; all cores by default")
      ->check(whole_number(1, 1024));
  command->callback([options, &context] { context.exit_code = sweep(*options, context); });
}

}  // namespace stepcast::cli
