#include "studies/predict/sweep.h"

#include <fmt/ranges.h>
#include <algorithm>

#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "cli/command.h"
#include "cli/human.h"
#include "cli/launch_ranks.h"
#include "cli/output_files.h"
#include "cli/print_prediction.h"
#include "cli/progress.h"
#include "cli/text_table.h"
#include "cli/whole_run.h"
#include "core/config/usual_stack.h"
#include "core/error.h"

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

class CsvRows {
 public:
  CsvRows(const std::vector<SweepAxis>& axes, const SweepCommand& options, std::ostream& out)
      : swept_(swept(axes)), pareto_(!options.pareto.empty()), run_(options.run.asked()), out_(out) {
    std::vector<std::string> header;
    for (const std::size_t a : swept_) {
      header.push_back(axes[a].key);
    }
    for (const char* name : {"status", "iteration_time_s", "samples_per_s", "tokens_per_s", "mfu",
                             "memory_bytes", "fits", "in_calibrated_range"}) {
      header.emplace_back(name);
    }
    if (run_) {
      header.insert(header.end(), {"days", "device_hours", "cost"});
    }
    if (pareto_) {
      header.emplace_back("pareto");
    }
    header.emplace_back("reason");
    out_ << csv_line(header);
  }
  void print(const SweepPoint& p) const {
    const auto flag = [](bool b) { return std::string(b ? "true" : "false"); };
    std::vector<std::string> cells;
    for (const std::size_t a : swept_) {
      cells.push_back(p.values[a]);
    }
    cells.emplace_back(name_of(p.status));
    if (p.predicted()) {
      cells.push_back(fmt::format("{:.9g}", p.iteration.base()));
      cells.push_back(fmt::format("{:.9g}", p.samples_per_second));
      cells.push_back(fmt::format("{:.9g}", p.tokens_per_second));
      cells.push_back(fmt::format("{:.6g}", p.mfu));
      cells.push_back(fmt::format("{:.0f}", p.memory.base()));
      cells.push_back(flag(p.status == SweepStatus::kOk));
      cells.push_back(flag(p.in_calibrated_range));
      for (const double of_run : {p.days, p.device_hours, p.cost}) {
        if (run_) {
          cells.push_back(fmt::format("{:.9g}", of_run));
        }
      }
    } else {
      cells.resize(cells.size() + (run_ ? 10 : 7));
    }
    if (pareto_) {
      cells.push_back(flag(p.pareto));
    }
    cells.push_back(p.reason);
    out_ << csv_line(cells) << std::flush;
  }

 private:
  std::vector<std::size_t> swept_;
  bool pareto_, run_;
  std::ostream& out_;
};

void print_text(const std::vector<SweepAxis>& axes, const std::vector<SweepPoint>& points,
                const SweepCommand& options, std::ostream& out) {
  std::vector<std::string> header;
  const std::vector<std::size_t> columns = swept(axes);
  for (const std::size_t a : columns) {
    header.push_back(axes[a].key);
  }
  const bool tokens = std::any_of(points.begin(), points.end(),
                                  [](const SweepPoint& p) { return p.tokens_per_second > 0; });
  const bool run = options.run.asked();
  const bool priced = run && options.run.price > 0;
  for (const auto& [name, shown] :
       {std::pair{"step", true}, {"samples/s", true}, {"tokens/s", tokens}, {"MFU", true},
        {"days", run}, {"device-hours", run}, {"cost", priced}, {"memory", true},
        {"in range", !run}}) {
    if (shown) {
      header.emplace_back(name);
    }
  }
  const std::size_t results = header.size() - columns.size();
  if (!options.pareto.empty()) {
    header.emplace_back("front");
  }
  header.emplace_back("reason");
  TextTable table(header);
  table.left(header.size() - 1);
  for (const SweepPoint& p : points) {
    std::vector<std::string> cells;
    for (const std::size_t a : columns) {
      cells.push_back(p.values[a]);
    }
    if (p.predicted()) {
      cells.push_back(human(p.iteration));
      cells.push_back(grouped(p.samples_per_second));
      if (tokens) {
        cells.push_back(grouped(p.tokens_per_second));
      }
      cells.push_back(percent(p.mfu));
      if (run) {
        cells.push_back(grouped(p.days));
        cells.push_back(grouped(p.device_hours));
      }
      if (priced) {
        cells.push_back(grouped(p.cost));
      }
      cells.push_back(human(p.memory));
      if (!run) {
        cells.emplace_back(p.in_calibrated_range ? "yes" : "no");
      }
    } else {
      cells.insert(cells.end(), results, "-");
    }
    if (!options.pareto.empty()) {
      cells.emplace_back(p.pareto ? "*" : "");
    }
    // Of what does not fit the memory prediction says so itself.
    const std::string status(name_of(p.status));
    cells.push_back(p.reason.empty() || p.reason.starts_with(status)
                        ? p.reason
                        : fmt::format("{}: {}", status, p.reason));
    table.row(cells);
  }
  std::vector<std::string> fixed;
  for (const SweepAxis& axis : axes) {
    if (axis.values.size() == 1) {
      fixed.push_back(axis.key + "=" + axis.values.front());
    }
  }
  if (!options.job.job.empty() && options.job.job != "-") {
    fixed.insert(fixed.begin(), options.job.job);
  }
  if (!fixed.empty()) {
    out << fmt::format("{}\n\n", fmt::join(fixed, " "));
  }
  table.print(out);
  const auto count = [&points](SweepStatus s) {
    return std::count_if(points.begin(), points.end(),
                         [s](const SweepPoint& p) { return p.status == s; });
  };
  out << fmt::format("\n{} point{}: {} fit, {} do not fit, {} invalid", points.size(),
                     points.size() == 1 ? "" : "s", count(SweepStatus::kOk),
                     count(SweepStatus::kDoesNotFit), count(SweepStatus::kInvalid));
  if (count(SweepStatus::kFailed) > 0) {
    out << fmt::format(", {} failed", count(SweepStatus::kFailed));
  }
  // Samples of different lengths are not alike: then tokens are what is compared.
  const bool by_tokens =
      tokens && std::any_of(axes.begin(), axes.end(), [](const SweepAxis& axis) {
        return axis.values.size() > 1 &&
               (axis.key == "batch.sequence" || axis.key == "batch" || axis.key == "workload");
      });
  const auto rate = [by_tokens](const SweepPoint& p) {
    return by_tokens ? p.tokens_per_second : p.samples_per_second;
  };
  const auto best =
      std::min_element(points.begin(), points.end(), [&](const SweepPoint& a, const SweepPoint& b) {
        const bool fits_a = a.status == SweepStatus::kOk;
        const bool fits_b = b.status == SweepStatus::kOk;
        return fits_a != fits_b ? fits_a : fits_a && rate(a) > rate(b);
      });
  if (best->status == SweepStatus::kOk && points.size() > 1) {
    std::vector<std::string> settings;
    for (const std::size_t a : columns) {
      settings.push_back(axes[a].key + "=" + best->values[a]);
    }
    out << fmt::format("\nmost {}: {} ({})", by_tokens ? "tokens/s" : "samples/s",
                       fmt::join(settings, " "), grouped(rate(*best)));
  }
  const auto searched = std::count_if(points.begin(), points.end(),
                                      [](const SweepPoint& p) { return p.plan_searched; });
  if (searched > 0) {
    out << fmt::format(
        "\n{} point{} placed the embedding tables by a quick search (embedding.plan=search)",
        searched, searched == 1 ? "" : "s");
  }
  const auto by_rule = std::count_if(points.begin(), points.end(),
                                     [](const SweepPoint& p) { return p.planned_by_rule; });
  if (by_rule > 0) {
    out << fmt::format(
        "\n{} point{} placed the embedding tables by a rule: embedding.plan=search or `stepcast "
        "plan` finds faster ones",
        by_rule, by_rule == 1 ? "" : "s");
  }
  if (!options.pareto.empty()) {
    out << fmt::format("\n* no other point that fits is better in {}",
                       fmt::join(options.pareto, ", "));
  }
  out << '\n';
}

nlohmann::ordered_json json_value(const std::string& text) {
  nlohmann::ordered_json value = nlohmann::ordered_json::parse(text, nullptr, false);
  return value.is_discarded() ? nlohmann::ordered_json(text) : value;
}

void print_json(const std::vector<SweepAxis>& axes, const std::vector<SweepPoint>& points,
                const SweepCommand& options, std::ostream& out) {
  nlohmann::ordered_json j;
  j["stepcast"] = provenance_json();
  j["fixed"] = nlohmann::ordered_json::object();
  for (const SweepAxis& axis : axes) {
    if (axis.values.size() == 1) {
      j["fixed"][axis.key] = json_value(axis.values.front());
    }
  }
  if (!options.pareto.empty()) {
    j["pareto"] = options.pareto;
  }
  j["points"] = nlohmann::ordered_json::array();
  for (const SweepPoint& p : points) {
    nlohmann::ordered_json row;
    row["set"] = nlohmann::ordered_json::object();
    for (const std::size_t a : swept(axes)) {
      row["set"][axes[a].key] = json_value(p.values[a]);
    }
    row["status"] = name_of(p.status);
    if (p.predicted()) {
      row["iteration_time_s"] = p.iteration.base();
      row["samples_per_s"] = p.samples_per_second;
      row["tokens_per_s"] = p.tokens_per_second;
      row["mfu"] = p.mfu;
      row["memory_bytes"] = p.memory.base();
      row["fits"] = p.status == SweepStatus::kOk;
      row["in_calibrated_range"] = p.in_calibrated_range;
      if (options.run.asked()) {
        row["run"] = {{"days", p.days}, {"device_hours", p.device_hours}};
        if (p.cost > 0) {
          row["run"]["cost"] = p.cost;
        }
      }
      if (p.planned_by_rule) {
        row["embedding_plan_by_rule"] = true;
      }
      if (p.plan_searched) {
        row["embedding_plan_searched"] = true;
      }
    }
    if (!options.pareto.empty()) {
      row["pareto"] = p.pareto;
    }
    if (!p.reason.empty()) {
      row["reason"] = p.reason;
    }
    j["points"].push_back(std::move(row));
  }
  out << j.dump(2) << '\n';
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
    fmt::print(stderr, "stepcast: {} of {} points failed; see their reason\n", failed,
               points.size());
    return 70;
  }
  if (invalid == points.size()) {
    fmt::print(stderr, "stepcast: no point of the sweep is a valid job: {}\n",
               points.front().reason);
    return 2;
  }
  return 0;
}

int sweep(const SweepCommand& options, const Context& context, runtime::MpiSession* session) {
  const std::vector<SweepAxis> axes = studies::sweep_axes(options.job.overrides);
  const std::size_t size = studies::sweep_size(axes);
  std::vector<SweepPoint> none;
  studies::mark_pareto(none, axes, options.pareto);  // a wrong column is told before the work
  const config::Source source = job_source(options.job);
  const config::Library library{context.library};
  std::mutex usual;  // guards the next
  std::set<std::string> usual_stacks;
  const auto make_job = [&](const std::vector<std::string>& overrides) {
    config::JobOnStack on = config::load_job_on_usual_stack(source, overrides, library);
    if (!on.usual_stack.empty()) {
      const std::lock_guard lock(usual);
      usual_stacks.insert(on.usual_stack);
    }
    return std::move(on.job);
  };

  const bool tells = session == nullptr || session->rank() == 0;
  const bool stream = tells && options.out.empty() && options.job.format == OutputFormat::kCsv &&
                      options.pareto.empty();
  std::optional<CsvRows> rows;
  if (stream) {
    rows.emplace(axes, options, std::cout);
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
    if (session != nullptr) {
      work.shard = session->rank();
      work.shards = session->size();
      work.gather = [session](const std::string& own) { return session->everyones(own); };
    }
    if (stream) {
      work.on_point = [&](const SweepPoint& p) { rows->print(p); };
    }
    points = studies::sweep(axes, make_job, work);
  }
  if (!tells) {
    return 0;
  }
  studies::mark_pareto(points, axes, options.pareto);
  std::ostringstream text;
  std::ostream& out = options.out.empty() ? std::cout : text;
  if (options.job.format == OutputFormat::kText) {
    print_text(axes, points, options, out);
    if (!usual_stacks.empty()) {
      out << fmt::format(
          "\nno stack is named: steps are those expected with {}; --set stack=NAME for another "
          "(`stepcast list stacks`)\n",
          fmt::join(usual_stacks, ", "));
    }
  } else if (options.job.format == OutputFormat::kJson) {
    print_json(axes, points, options, out);
  } else if (!stream) {
    const CsvRows all(axes, options, out);
    for (const SweepPoint& p : points) {
      all.print(p);
    }
  }
  if (!options.out.empty()) {
    write_output(options.out, text.str());
  }
  doubt_length(options.run);
  return exit_code(points);
}

/// Alone, or as one of the ranks a launcher started: then they share the points.
int sweep_shared(const SweepCommand& options, const Context& context) {
  const auto session = join_ranks();
  if (session == nullptr) {
    return sweep(options, context, nullptr);
  }
  return as_one_rank(*session, [&] {
    const int code = sweep(options, context, session.get());
    (void)session->everyones("");  // the others sleep until rank 0 has printed
    return code;
  });
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
      ->add_option("--pareto", options->pareto,
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
      ->check(CLI::Range(1, 1024));
  command->callback([options, &context] { context.exit_code = sweep_shared(*options, context); });
}

}  // namespace stepcast::cli
