#include "cli/plan_parallel.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "cli/framework_export.h"
#include "cli/human.h"
#include "cli/launch_ranks.h"
#include "cli/output_files.h"
#include "cli/print_embedding_plans.h"
#include "cli/print_prediction.h"
#include "cli/progress.h"
#include "cli/text_table.h"
#include "core/config/config.h"
#include "core/config/quantity.h"
#include "core/error.h"
#include "core/job/pace.h"
#include "core/whole_file.h"
#include "studies/plan/plan_parallel.h"

namespace stepcast::cli {
namespace {

using planner::ParallelCandidate;
using planner::PlanPoint;
using studies::ParallelPlanReport;
using studies::RankedParallelPlan;

constexpr std::size_t kFrontRows = 12;
/// Predicted memory is off by about as much in published runs (docs/explanation/accuracy.md).
constexpr const char* kUsualHeadroom = "5%";

std::vector<std::string> point_header() {
  return {"devices", "tensor", "context",  "expert",    "pipeline",
          "data",    "micro",  "schedule", "recompute", "zero"};
}

std::vector<std::string> point_cells(const PlanPoint& p, const System& system) {
  return {fmt::format("{}", p.devices()),
          fmt::format("{}{}", p.tensor, p.sequence_parallel ? " + sp" : ""),
          fmt::format("{}", p.context),
          fmt::format("{}", p.expert),
          fmt::format("{}", p.pipeline),
          fmt::format("{}", p.data),
          fmt::format("{}", p.micro),
          planner::schedule_text(p),
          planner::recompute_text(p),
          planner::zero_text(p, system)};
}

/// Rows of plans; columns that say nothing in any of them ("1", "none", "-") are left out.
class PlanTable {
 public:
  explicit PlanTable(std::vector<std::string> header) : own_(header.size()) {
    const std::vector<std::string> points = point_header();
    header.insert(header.end(), points.begin(), points.end());
    rows_.push_back(std::move(header));
  }
  void row(std::vector<std::string> cells, const PlanPoint& point, const System& system) {
    const std::vector<std::string> more = point_cells(point, system);
    cells.insert(cells.end(), more.begin(), more.end());
    rows_.push_back(std::move(cells));
  }
  /// `devices`: whether plans differ in them.
  void print(bool devices, std::ostream& out) const {
    std::vector<std::size_t> shown;
    for (std::size_t c = 0; c < rows_.front().size(); ++c) {
      const bool says = std::any_of(rows_.begin() + 1, rows_.end(), [c](const auto& row) {
        return row[c] != "1" && row[c] != "none" && row[c] != "-";
      });
      if (c < own_ || (rows_.front()[c] == "devices" ? devices : says)) {
        shown.push_back(c);
      }
    }
    const auto cells = [&shown](const std::vector<std::string>& row) {
      std::vector<std::string> some;
      for (const std::size_t c : shown) {
        some.push_back(row[c]);
      }
      return some;
    };
    TextTable table(cells(rows_.front()));
    for (std::size_t i = 1; i < rows_.size(); ++i) {
      table.row(cells(rows_[i]));
    }
    table.print(out);
  }

 private:
  std::size_t own_;
  std::vector<std::vector<std::string>> rows_;
};

std::string order_text(const MeshOrder& order) {
  const std::string text = planner::order_text(order);
  return text.empty() ? "the job's own" : text;
}

/// Of a plan over the bound, where there is one.
std::optional<double> gap_of(const ParallelPlanReport& r, const RankedParallelPlan& p) {
  return r.lower_bound > 0 ? std::optional(p.prediction.iteration.base() / r.lower_bound - 1)
                           : std::nullopt;
}

std::vector<std::string> with_order(const ParallelPlanReport& r, std::vector<std::string> header) {
  if (r.order_searched) {
    header.emplace_back("order of ranks");
  }
  return header;
}

void print_front(const ParallelPlanReport& r, std::ostream& out) {
  // Of a long front as many rows as people read, evenly spaced.
  const std::size_t all = r.front.size();
  const std::size_t shown = std::min(all, kFrontRows);
  out << fmt::format(
      "\nno plan is faster, smaller and on fewer devices than these ({} of {}, in "
      "closed form and at the hardware's pace)\n",
      shown, all);
  PlanTable table(with_order(r, {"step", "memory"}));
  for (std::size_t i = 0; i < shown; ++i) {
    const ParallelCandidate& c = r.front[shown < 2 ? 0 : i * (all - 1) / (shown - 1)];
    std::vector<std::string> cells{human(Seconds(c.seconds)), human(Bytes(c.bytes))};
    if (r.order_searched) {
      cells.push_back(order_text(c.order));
    }
    table.row(std::move(cells), c.point, r.job.system);
  }
  table.print(true, out);
}

/// What became of every point of the space, and what the proof rests on.
void print_search(const ParallelPlanReport& r, std::ostream& out) {
  const planner::SearchCounts& c = r.counts;
  const auto n = [](std::int64_t v) { return count(static_cast<double>(v)); };
  out << fmt::format(
      "search: {} plans in {}; states alone exceed memory: {}; states and activations do: {}; "
      "slower by their bound: {}; timed: {}{}\n",
      n(c.space), human(Seconds(r.search_seconds)), n(c.weights_too_large), n(c.memory_too_large),
      n(c.bounded), n(c.evaluated),
      c.left_out > 0 ? fmt::format("; not reached before the time limit: {}", n(c.left_out)) : "");
  if (r.fewer_devices_seconds > 0) {
    out << fmt::format("fewer devices, for the front: {} more{}\n",
                       human(Seconds(r.fewer_devices_seconds)),
                       r.front_cut ? ", ended by the time limit" : "");
  }
  out << fmt::format("simulated: {} plans, with the search for others in reach {}\n", r.simulated,
                     human(Seconds(r.simulation_seconds)));
}

/// How sure the first plan is the fastest.
void print_bound(const ParallelPlanReport& r, std::ostream& out) {
  const auto gap = gap_of(r, r.plans.front());
  if (!gap) {
    out << "\nno lower bound: the time limit ended the search, so faster plans may be left\n";
    return;
  }
  out << fmt::format("\nlower bound {}: no plan is faster; gap {}", human(Seconds(r.lower_bound)),
                     percent(*gap));
  if (r.proven) {
    out << fmt::format("; plan 1 is proven the fastest, to {}\n", percent(studies::kLeastTimeError));
  } else {
    out << fmt::format(
        "; unproven: {} that {} not simulated may be faster than plan 1, though not faster than {}\n",
        r.unproven_more ? std::string("plans") : fmt::format("{} plans", r.unproven),
        r.unproven == 1 && !r.unproven_more ? "was" : "were", human(Seconds(r.others_at_least)));
  }
}

std::string title(const ParallelPlanReport& r, const std::string& usual_stack) {
  const auto pace = pace_of(r.plans.front().job);
  return fmt::format(
      "{} on {} x {}, global batch {}, sequence {}; steps {}{}", r.job.workload.name, r.job.devices,
      r.job.system.device.name, r.job.batch.global, r.job.batch.sequence,
      pace ? "as expected with " + pace->measured : "at the hardware's pace",
      usual_stack.empty() || r.fixed.stack
          ? ""
          : fmt::format(" (no stack is named: --set stack=NAME or --for NAME for another than {})",
                        usual_stack));
}

void print_text(const ParallelPlanReport& r, const std::string& usual_stack, bool details,
                std::ostream& out) {
  out << title(r, usual_stack) << "\n\n";
  const bool tokens = r.plans.front().prediction.tokens_per_second > 0;
  std::vector<std::string> header{"plan", "step", "MFU", "memory"};
  if (tokens) {
    header.insert(header.begin() + 2, "tokens/s each");
  }
  if (details) {
    header.emplace_back("closed form");
  }
  PlanTable table(with_order(r, std::move(header)));
  std::size_t rank = 0;
  for (const RankedParallelPlan& p : r.plans) {
    std::vector<std::string> cells{std::to_string(++rank), human(p.prediction.iteration)};
    if (tokens) {
      cells.push_back(
          grouped(p.prediction.tokens_per_second / static_cast<double>(p.point.devices())));
    }
    cells.push_back(percent(p.prediction.mfu));
    cells.push_back(human(Bytes(p.bytes)));
    if (details) {
      cells.push_back(human(Seconds(p.closed_form)));
    }
    if (r.order_searched) {
      cells.push_back(order_text(p.job.parallel.order));
    }
    table.row(std::move(cells), p.point, r.job.system);
  }
  table.print(false, out);
  print_bound(r, out);
  const std::string held = planner::fixed_text(r.fixed);
  out << fmt::format(
      "not searched: overlaps ({}){}{}{}\n", planner::overlaps_text(r.job.parallel.overlap),
      r.order_searched ? ""
                       : fmt::format(", order of ranks ({})", order_text(r.job.parallel.order)),
      r.fixed.stack ? fmt::format(", plans that {} cannot run", name_of(*r.fixed.stack)) : "",
      held.empty() ? "" : fmt::format("; held as the job says: {}", held));
  if (details) {
    print_search(r, out);
  }
  if (!r.front.empty()) {
    print_front(r, out);
  }
}

nlohmann::ordered_json point_json(const PlanPoint& p, const System& system) {
  nlohmann::ordered_json j{
      {"devices", p.devices()},
      {"tensor", p.tensor},
      {"sequence_parallel", p.sequence_parallel},
      {"context", p.context},
      {"expert", p.expert},
      {"pipeline", p.pipeline},
      {"data", p.data},
      {"micro", p.micro},
      {"virtual_stages", p.virtual_stages},
      {"schedule", name_of(p.schedule)},
      {"recompute", p.recompute == RecomputeKind::kFirstLayers
                        ? nlohmann::ordered_json{{"layers", p.recompute_layers}}
                        : nlohmann::ordered_json(planner::recompute_text(p))},
      {"zero", p.shard_level == 0 ? nlohmann::ordered_json(p.zero)
                                  : nlohmann::ordered_json{
                                        {"stage", p.zero},
                                        {"level", planner::level_name(p.shard_level, system)}}}};
  if (p.embedding_layers > 0 || p.head_layers > 0) {
    j["pipeline_split"] = {{"embedding", p.embedding_layers}, {"head", p.head_layers}};
  }
  return j;
}

/// CONTRACT section 5.
nlohmann::ordered_json plan_document(const ParallelPlanReport& r, const RankedParallelPlan& p) {
  nlohmann::ordered_json j;
  j["stepcast"] = 1;
  j["kind"] = "parallel";
  j["job"] = nlohmann::ordered_json::parse(config::job_to_json(p.job, -1));
  j["predicted_step_s"] = p.prediction.iteration.base();
  const auto gap = gap_of(r, p);
  j["lower_bound_s"] = gap ? nlohmann::ordered_json(r.lower_bound) : nullptr;
  j["gap"] = gap ? nlohmann::ordered_json(*gap) : nullptr;
  const nlohmann::ordered_json prediction = prediction_json(p.prediction);
  j["memory_bytes"] = prediction.at("memory_bytes");
  j["closed_form_s"] = p.closed_form;
  j["mfu"] = p.prediction.mfu;
  j["time_s"] = prediction.at("time_s");
  j["plan"] = point_json(p.point, r.job.system);
  j["plan"]["order"] = order_text(p.job.parallel.order);
  return j;
}

void print_json(const ParallelPlanReport& r, const std::string& usual_stack,
                const std::string& exported, std::ostream& out) {
  nlohmann::ordered_json j;
  j["stepcast"] = provenance_json();
  j["plans"] = nlohmann::ordered_json::array();
  for (const RankedParallelPlan& p : r.plans) {
    j["plans"].push_back(plan_document(r, p));
  }
  j["bound"] = {{"lower_bound_s", j["plans"][0]["lower_bound_s"]},
                {"gap", j["plans"][0]["gap"]},
                {"simulated", r.simulated},
                {"others_at_least_s", r.others_at_least},
                {"proven", r.proven},
                {"unproven", r.unproven},
                {"error", studies::kLeastTimeError}};
  j["held"] = planner::fixed_text(r.fixed);
  if (!usual_stack.empty()) {
    j["usual_stack"] = usual_stack;
  }
  j["search"] = {{"seconds", r.search_seconds},
                 {"fewer_devices_seconds", r.fewer_devices_seconds},
                 {"simulation_seconds", r.simulation_seconds},
                 {"evaluations", r.counts.evaluated},
                 {"space", r.counts.space},
                 {"weights_too_large", r.counts.weights_too_large},
                 {"memory_too_large", r.counts.memory_too_large},
                 {"bounded", r.counts.bounded},
                 {"left_out", r.counts.left_out},
                 {"cut", r.cut},
                 {"order_searched", r.order_searched},
                 {"for", r.fixed.stack ? nlohmann::ordered_json(name_of(*r.fixed.stack)) : nullptr},
                 {"front_cut", r.front_cut}};
  j["front"] = nlohmann::ordered_json::array();
  for (const ParallelCandidate& c : r.front) {
    nlohmann::ordered_json row{
        {"step_s", c.seconds}, {"memory_bytes", c.bytes}, {"order", order_text(c.order)}};
    row.update(point_json(c.point, r.job.system));
    j["front"].push_back(std::move(row));
  }
  if (!exported.empty()) {
    j["exported"] = exported;
  }
  out << j.dump(2) << '\n';
}

void print_csv(const ParallelPlanReport& r, std::ostream& out) {
  std::vector<std::string> header{"plan", "predicted_step_s", "closed_form_s", "lower_bound_s",
                                  "mfu",  "memory_bytes"};
  const std::vector<std::string> points = point_header();
  header.insert(header.end(), points.begin(), points.end());
  header.insert(header.end(), {"sequence_parallel", "embedding_layers", "head_layers"});
  out << csv_line(header);
  std::size_t rank = 0;
  for (const RankedParallelPlan& p : r.plans) {
    std::vector<std::string> cells{std::to_string(++rank),
                                   fmt::format("{:.9g}", p.prediction.iteration.base()),
                                   fmt::format("{:.9g}", p.closed_form),
                                   r.lower_bound > 0 ? fmt::format("{:.9g}", r.lower_bound) : "",
                                   fmt::format("{:.6g}", p.prediction.mfu),
                                   fmt::format("{:.0f}", p.bytes)};
    PlanPoint even = p.point;  // what the ends count as stands in columns of its own
    even.embedding_layers = even.head_layers = 0;
    const std::vector<std::string> more = point_cells(even, r.job.system);
    cells.insert(cells.end(), more.begin(), more.end());
    cells[7] = std::to_string(p.point.tensor);
    cells.emplace_back(p.point.sequence_parallel ? "true" : "false");
    cells.push_back(std::to_string(p.point.embedding_layers));
    cells.push_back(std::to_string(p.point.head_layers));
    out << csv_line(cells);
  }
}

int tell_nothing_fits(const ParallelPlanReport& r, OutputFormat format) {
  const std::string why =
      r.cut ? std::string("the time limit ended the search before a plan that fits was found")
            : fmt::format(
                  "no plan fits: the smallest needs {} of a device with {}{}; use more devices "
                  "or a smaller model",
                  human(Bytes(r.least_bytes)), human(r.job.system.device.memory),
                  Bytes(r.capacity) < r.job.system.device.memory
                      ? fmt::format(", of which plans may use {} (--memory-headroom)",
                                    human(Bytes(r.capacity)))
                      : "");
  return print_infeasible(why, format);
}

int search(PlanRequest request, const ParallelPlanCommand& options,
           const std::string& usual_stack, OutputFormat format, runtime::MpiSession* session) {
  std::optional<FrameworkExport> exported;
  if (!options.export_as.empty()) {
    exported = framework_export(options.export_as);
    request.fixed.stack = exported->stack;
    if (!exported->file.empty()) {
      expect_writable(exported->file);
    }
  }
  if (!options.stack.empty()) {
    const TrainingStack stack = framework_named(options.stack);
    if (exported && exported->stack != stack) {
      throw InputError("--for", fmt::format("found {}, but --export writes a plan for {}; name one "
                                            "framework, or leave --for out",
                                            options.stack, name_of(exported->stack)));
    }
    request.fixed.stack = stack;
  }
  studies::ParallelPlanOptions o;
  o.top = options.top;
  o.threads = options.threads > 0
                  ? options.threads
                  : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  o.front = options.front;
  o.fewer_devices = !options.same_devices;
  o.headroom = headroom_of(options.headroom.empty() ? kUsualHeadroom : options.headroom,
                           request.job.system.device.memory);
  if (options.time_limit > 0) {
    o.time_limit = options.time_limit;
  }
  o.clock = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  if (session != nullptr) {
    o.shard = session->rank();
    o.shards = session->size();
    o.gather = [session](const planner::ParallelSearchResult& own) {
      std::vector<planner::ParallelSearchResult> parts;
      for (const std::string& bytes : session->everyones(planner::packed(own))) {
        parts.push_back(planner::unpacked(bytes));
      }
      return parts;
    };
  }
  ParallelPlanReport report;
  {
    Progress progress("plan");
    o.on_progress = [&progress](double share) { progress.update(share, 1, "search"); };
    report = studies::plan_parallel(request, o);
  }
  if (o.shard != 0) {
    return report.least_bytes > 0 ? 1 : 0;
  }
  if (report.plans.empty()) {
    return tell_nothing_fits(report, format);
  }
  const std::string text =
      exported ? text_for(exported->stack, report.plans.front().job) : std::string();
  const bool written = exported && !exported->file.empty();
  const std::string shown = written ? std::string() : text;
  switch (format) {
    case OutputFormat::kText:
      print_text(report, usual_stack, options.details, std::cout);
      if (!shown.empty()) {
        std::cout << fmt::format("\nplan 1 for {}\n{}", name_of(exported->stack), shown);
      }
      break;
    case OutputFormat::kJson:
      print_json(report, usual_stack, shown, std::cout);
      break;
    case OutputFormat::kCsv:
      print_csv(report, std::cout);
      break;
  }
  if (!options.out.empty()) {
    write_output(options.out, plan_document(report, report.plans.front()).dump(2) + "\n");
  }
  if (written) {
    write_output(exported->file, text);
  }
  return 0;
}

}  // namespace

double headroom_of(const std::string& text, Bytes memory) {
  if (text.empty()) {
    return 0;
  }
  const auto refuse = [&text](const std::string& expected) -> double {
    throw InputError("--memory-headroom", fmt::format("found '{}', expected {}", text, expected));
  };
  if (text.back() != '%') {
    const Bytes free = config::parse_quantity<Bytes>(text, "--memory-headroom");
    return free < memory ? free.base()
                         : refuse(fmt::format("less than the {} of a device", human(memory)));
  }
  double share = 0;
  const char* end = text.data() + text.size() - 1;
  const auto [stop, error] = std::from_chars(text.data(), end, share);
  return error == std::errc() && stop == end && share >= 0 && share < 100
             ? memory.base() * share / 100
             : refuse("a share such as 5%, or an amount such as \"4 GiB\"");
}

int plan_parallel(const PlanRequest& request, const ParallelPlanCommand& options,
                  const std::string& usual_stack, OutputFormat format) {
  const auto session = join_ranks();
  if (session == nullptr) {
    return search(request, options, usual_stack, format, nullptr);
  }
  return as_one_rank(*session, [&] {
    const int code = search(request, options, usual_stack, format, session.get());
    (void)session->everyones("");  // the others sleep until rank 0 has simulated and printed
    return code;
  });
}

}  // namespace stepcast::cli
