#include "studies/predict/explain.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "cli/command.h"
#include "cli/print/data_table.h"
#include "cli/print/human.h"
#include "cli/print/replan.h"
#include "cli/print/report.h"
#include "cli/support/console.h"
#include "cli/support/recordings.h"
#include "core/config/default_framework.h"
#include "core/error.h"
#include "core/json_text.h"
#include "simulator/reports/framework_memory.h"
#include "simulator/reports/memory_ledger.h"
#include "studies/plan/searched_plan.h"
#include "studies/predict/chosen_plan.h"
#include "studies/predict/memory_fix.h"
#include "workloads/build_graph.h"

namespace stepcast::cli {
namespace {

struct ExplainCommand {
  std::string a, b, mark;
  std::vector<std::string> second;  ///< words of the other side
  std::vector<std::string> overrides;
  std::vector<std::string> with;
  OutputFormat format = OutputFormat::kText;
};

/// One side: a job to predict, or a recorded run.
struct Side {
  std::optional<Job> job;
  std::string default_framework;      ///< config::JobOnFramework
  std::vector<std::string> settings;  ///< of the plan that was chosen
  std::optional<traces::MeasuredRun> run;
};

/// Input that a side names, read once: a recording, an embedding plan, or else a job.
struct Input {
  JobOptions options;
  bool recorded = false;
  config::Source source;
  std::optional<EmbeddingPlan> plan;
};

Input read_input(JobOptions options) {
  Input input{std::move(options), false, {}, std::nullopt};
  input.recorded = is_recording(input.options.job);
  if (input.recorded) {
    return input;
  }
  input.source = job_source(input.options);
  expect_shallow_json(input.source.text, input.source.label);
  const auto j = nlohmann::ordered_json::parse(input.source.text, nullptr, false, true);
  if (j.is_object() && j.contains("kind") && j["kind"] == "embedding" && j.contains("tables")) {
    input.plan = config::read_plan(input.source);
  }
  return input;
}

/// The job an embedding plan file is the plan of.
config::Source job_of_plan(const EmbeddingPlan& plan, const std::string& file) {
  const nlohmann::ordered_json job{{"workload", plan.workload},
                                   {"system", plan.system},
                                   {"devices", plan.devices},
                                   {"embedding", {{"plan", file}}}};
  return config::text_source(job.dump(), file);
}

/// An embedding plan only names its workload and system.
void check_names(const config::Source& job, const std::vector<std::string>& overrides,
                 const config::Library& library) {
  const auto j = nlohmann::ordered_json::parse(job.text);
  for (const char* key : {"workload", "system"}) {
    if (std::any_of(overrides.begin(), overrides.end(), [key](const std::string& set) {
          return set.starts_with(std::string(key) + "=");
        })) {
      continue;
    }
    const std::string name = j.at(key);
    try {
      if (std::string_view(key) == "workload") {
        (void)config::load_workload(name, library);
      } else {
        (void)config::load_system(name, library);
      }
    } catch (const InputError&) {
      throw InputError(
          job.label, fmt::format("is a plan for the {0} \"{1}\", which is not built in; say where "
                                 "it is with --set {0}=FILE, or name its job: explain JOB --with "
                                 "embedding.plan={2}",
                                 key, name, job.label));
    }
  }
}

/// Text of an object under "name"; empty if it says none.
std::string name_in(const nlohmann::json& object) {
  const bool named = object.is_object() && object.contains("name") && object["name"].is_string();
  return named ? object["name"].get<std::string>() : "";
}

/// The name of what a side trains; empty where its recording does not say.
std::string model_of(const Side& side) {
  if (side.job) {
    return side.job->workload.name;
  }
  const auto job = nlohmann::json::parse(side.run->job, nullptr, false);
  return name_in(job.is_object() && job.contains("workload") ? job["workload"] : nlohmann::json());
}

/// Side of a job, as `predict` takes it.
Side side_of(const config::Source& source, const std::vector<std::string>& overrides,
             const Context& context) {
  studies::ChosenJob on = studies::choose_plan(source, overrides, {context.library});
  Side side;
  side.job = std::move(on.job);
  side.default_framework = std::move(on.default_framework);
  side.settings = std::move(on.choice.settings);
  return side;
}

/// The job that an embedding plan is for, where that is the job on the other side.
std::optional<Job> job_comparison(const Input& input, const Side* other, const Input* other_input,
                                  const Context& context) {
  if (other == nullptr || !other->job || other_input->plan) {
    return std::nullopt;
  }
  const EmbeddingPlan& plan = *input.plan;
  if (plan.workload != other->job->workload.name || plan.system != other->job->system.name ||
      plan.devices != other->job->devices) {
    return std::nullopt;
  }
  std::vector<std::string> overrides = other_input->options.overrides;
  overrides.push_back(plan_override(input.options.job));
  return studies::with_searched_plan(
      config::load_job(other_input->source, overrides, {context.library}));
}

/// `other`: the side that is open already, of `other_input`; null for the first.
Side open_side(const Input& input, const std::string& mark, const Context& context,
               const Side* other = nullptr, const Input* other_input = nullptr) {
  const JobOptions& options = input.options;
  Side side;
  if (input.recorded) {
    if (!options.overrides.empty()) {
      throw InputError("--set",
                       options.job + " is a recording and cannot be changed; give its job instead");
    }
    side.run = read_run(options.job, mark);
    for (const std::string& w : side.run->warnings) {
      fmt::print(notes(), "stepcast: {}: {}\n", options.job, w);
    }
    return side;
  }
  if (!input.plan) {
    return side_of(input.source, options.overrides, context);
  }
  side.job = job_comparison(input, other, other_input, context);
  if (!side.job) {
    const config::Source job = job_of_plan(*input.plan, input.source.label);
    check_names(job, options.overrides, {context.library});
    return side_of(job, options.overrides, context);
  }
  return side;
}

std::int64_t ranks_of(const Side& side) {
  return side.run ? std::ssize(side.run->steps.front().ranks) : side.job->devices;
}

std::string shortened(const std::string& json) {
  constexpr std::size_t kLimit = 40;
  const auto value = nlohmann::json::parse(json, nullptr, false);
  std::string text = json;
  if (value.is_string()) {
    text = value.get<std::string>();
  } else if (value.is_object() && value.value("kind", "") == "embedding") {
    text = fmt::format("a plan of {} tables", value.value("tables", nlohmann::json()).size());
  } else if (const std::string name = name_in(value); !name.empty()) {
    text = name;
  }
  return text.size() > kLimit ? text.substr(0, kLimit - 3) + "..." : text;
}

/// Keys that a user says of a plan come first, what follows from them later.
std::string text_of(std::vector<config::Difference> changes) {
  const std::vector<std::string> of_plans = config::plan_keys();
  std::stable_partition(changes.begin(), changes.end(), [&](const config::Difference& d) {
    return d.key == "devices" ||
           std::find(of_plans.begin(), of_plans.end(), d.key) != of_plans.end();
  });
  std::string text;
  for (const config::Difference& d : changes) {
    text += fmt::format("{}{}: {} -> {}", text.empty() ? "" : ", ", d.key, shortened(d.before),
                        shortened(d.after));
  }
  return text;
}

/// Differences below a nanosecond are rounding.
Seconds without_noise(Seconds difference) {
  return std::abs(difference.base()) < 1e-9 ? Seconds{} : difference;
}

std::string headline(const studies::Explanation& e) {
  const double change = e.b.expected / e.a.expected - 1;
  return std::abs(change) < 5e-4 ? std::string("A and B take the same time")
                                 : fmt::format("Why B is {} {}", percent(std::abs(change)),
                                               change > 0 ? "slower" : "faster");
}

/// The steps, and kernels alone where they differ: the tables after it divide those.
DataTable sides_table(const studies::Explanation& e) {
  const bool paced = e.a.expected != e.a.step || e.b.expected != e.b.step;
  const std::vector<DataTable::Column> columns{
      {"side", "", true},
      {"kernels_only_s", "kernels only", false, paced ? 0 : kInJson | kInCsv},
      {"step_s", "step"},
      {"rank"}};
  DataTable t("summary", headline(e), columns);
  const auto row = [&](const std::string& title, Seconds step, Seconds expected, Cell rank) {
    t.row({cell(title), cell(step), cell(expected), std::move(rank)});
  };
  for (const auto& [name, side] : {std::pair{"A: ", &e.a}, std::pair{"B: ", &e.b}}) {
    row(name + side->label, side->step, side->expected, cell(std::int64_t{side->rank}));
  }
  const std::string change = percent_signed(e.b.step / e.a.step - 1);
  const std::string expected = percent_signed(e.b.expected / e.a.expected - 1);
  row(fmt::format("B - A ({}{})", change, expected == change ? "" : ", step " + expected),
      e.b.step - e.a.step, e.b.expected - e.a.expected, empty_cell());
  if (e.a.step == e.b.step && e.changes.empty()) {
    t.note("No difference.");
  }
  return t;
}

/// Whether a change is but of what a framework does: such rows are one for people.
bool of_framework(const studies::ChangeRow& row) {
  return std::all_of(row.changes.begin(), row.changes.end(), [](const config::Difference& d) {
    return d.key.starts_with("system.framework_traits") || d.key.starts_with("system.fitted.stack");
  });
}

DataTable changes_table(const studies::Explanation& e, const std::string& frameworks) {
  DataTable t(
      "changes", "Cumulative effect of each change",
      {{"change", "", true}, {"step_s", "step"}, {"delta_s", "delta"}, {"of_step_a", "of A"}});
  Seconds delta;
  for (std::size_t i = 0; i < e.changes.size(); ++i) {
    const studies::ChangeRow& c = e.changes[i];
    delta += c.delta;
    const bool joins = of_framework(c) && !frameworks.empty();
    if (joins && i + 1 < e.changes.size() && of_framework(e.changes[i + 1])) {
      continue;
    }
    t.row({cell(joins ? "framework: " + frameworks : text_of(c.changes)), cell(c.step),
           cell(without_noise(delta)), share(without_noise(delta) / e.a.step)});
    delta = Seconds{};
  }
  return t;
}

DataTable parts_table(const studies::Explanation& e, Visibility shown) {
  using Row = studies::AccountRow;
  constexpr std::array<std::pair<const char*, Seconds Row::*>, 5> kParts{
      {{"compute", &Row::compute},
       {"exposed communication", &Row::exposed_communication},
       {"bubble", &Row::bubble},
       {"host", &Row::host},
       {"other", &Row::other}}};
  DataTable t(
      "parts", "Parts of the step, critical ranks",
      {{"part", "", true}, {"a_s", "A"}, {"b_s", "B"}, {"delta_s", "delta"}, {"of_step_a", "of A"}},
      shown);
  for (const auto& [name, part] : kParts) {
    const auto sum = [part = part](const studies::StepAccount& account) {
      Seconds total;
      for (const Row& row : account.rows) {
        total += row.*part;
      }
      return total;
    };
    const Seconds a = sum(e.a);
    const Seconds b = sum(e.b);
    t.row({cell(std::string_view(name)), cell(a), cell(b), cell(without_noise(b - a)),
           share(without_noise(b - a) / e.a.step)});
  }
  return t;
}

/// For people the ops that differ, for programs all.
DataTable rows_table(const studies::Explanation& e, Visibility shown) {
  DataTable t("rows",
              e.by_name ? "Op by op" : "By op kind: few ops have the same name on both sides",
              {{e.by_name ? "op" : "op_kind", e.by_name ? "op" : "op kind", true},
               {"executions_a", "count A"},
               {"executions_b", "count B"},
               {"a_s", "A"},
               {"b_s", "B"},
               {"delta_s", "delta"},
               {"of_step_a", "of A"}},
              shown);
  for (const studies::WaterfallRow& r : e.rows) {
    const bool op = !r.kind.empty();
    const Seconds delta = without_noise(r.delta());
    if (shown == kInText && delta == Seconds{}) {
      continue;
    }
    t.row({op ? short_name(r.name) : cell(r.name), op ? cell(r.executions_a) : empty_cell(),
           op ? cell(r.executions_b) : empty_cell(), cell(r.a), cell(r.b), cell(delta),
           share(delta / e.a.step)});
  }
  t.limit(16);
  t.note("Each op is charged only for time on the critical path, so the rows add up to B - A.");
  return t;
}

std::vector<DataTable> tables_of(const studies::Explanation& e, const std::string& frameworks) {
  std::vector<DataTable> tables{sides_table(e)};
  if (!e.changes.empty()) {
    tables.push_back(changes_table(e, frameworks));
  }
  const bool differs = e.a.step != e.b.step || !e.changes.empty();
  tables.push_back(parts_table(e, differs ? 0 : kInJson | kInCsv));
  tables.push_back(rows_table(e, kInJson | kInCsv));
  if (DataTable differing = rows_table(e, kInText); !differing.empty()) {
    tables.push_back(std::move(differing));
  }
  return tables;
}

/// Both sides have a plan for the same tables on the same devices, so that rows could move.
bool same_tables(const Side& a, const Side& b) {
  if (!a.job || !b.job || !a.job->embedding_plan || !b.job->embedding_plan ||
      a.job->devices != b.job->devices || a.job->system.name != b.job->system.name) {
    return false;
  }
  const auto& x = a.job->workload.layered()->tables;
  const auto& y = b.job->workload.layered()->tables;
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](const EmbeddingTable& p, const EmbeddingTable& q) {
                      return p.name == q.name && p.rows == q.rows && p.dim == q.dim;
                    });
}

/// Which frameworks were taken because a job names none; empty where none was.
std::string frameworks_text(const Side& a, const Side& b) {
  if (!a.default_framework.empty() && a.default_framework == b.default_framework) {
    return fmt::format("Framework is implied: {}; --set framework=NAME for another.",
                       a.default_framework);
  }
  std::vector<std::string> taken;
  for (const auto& [name, side] : {std::pair{"A", &a}, std::pair{"B", &b}}) {
    if (!side->default_framework.empty()) {
      taken.push_back(fmt::format("{} runs on {}", name, side->default_framework));
    }
  }
  return taken.empty()
             ? ""
             : fmt::format("Frameworks are implied: {}; --set framework=NAME for another.",
                           fmt::join(taken, ", "));
}

/// Why the job does not fit; "" where it does.
std::string lack_of_memory(const Job& job) {
  const Device& device = job.system.device;
  const auto ledger = simulator::fullest_ledger(workloads::build_graph(job), device);
  return simulator::fit_of(ledger.total(), device) == simulator::Fit::kNo
             ? studies::memory_reason(ledger, device)
             : "";
}

int explain(const ExplainCommand& options, const Context& context) {
  if (options.a.empty() && options.overrides.empty()) {
    throw InputError("diff",
                     "expected two models, jobs, plans or traces, or --set workload=... and "
                     "what differs after --");
  }
  if (options.b.empty() && options.with.empty()) {
    throw InputError("diff",
                     "expected a second model, job, plan or trace, or options that change "
                     "the first after --: -- --tp 2");
  }
  const Input of_a = read_input({options.a, options.overrides});
  Input of_b = read_input({options.b.empty() ? options.a : options.b, options.overrides});
  // A plan given with a job is opened after it: it may be a plan of that very job.
  const bool b_first = of_a.plan && !of_b.plan;
  const Input& input_of_first = b_first ? of_b : of_a;
  if (!options.mark.empty() && !of_a.recorded && !of_b.recorded) {
    throw InputError("--mark", "neither side is a recorded run");
  }
  const Side first = open_side(input_of_first, options.mark, context);
  if (options.b.empty()) {  // B is A with changes, its plan with it
    std::vector<std::string>& set = of_b.options.overrides;
    set = options.overrides;
    set.insert(set.end(), first.settings.begin(), first.settings.end());
    set.insert(set.end(), options.with.begin(), options.with.end());
  }
  const Side other =
      open_side(b_first ? of_a : of_b, options.mark, context, &first, &input_of_first);
  const Side& a = b_first ? other : first;
  const Side& b = b_first ? first : other;
  if (a.run || b.run) {
    const std::string x = model_of(a);
    const std::string y = model_of(b);
    if (!x.empty() && !y.empty() && x != y) {
      fmt::print(notes(),
                 "stepcast: warning: A trains {}, B trains {}: compare only their totals\n", x, y);
    }
    if (ranks_of(a) != ranks_of(b)) {
      fmt::print(notes(),
                 "stepcast: warning: A has {} ranks, B {}; waits for ranks that are not in a "
                 "recording count as communication\n",
                 ranks_of(a), ranks_of(b));
    }
  }
  const auto change = [&](const Job& base, const std::vector<config::Difference>& changes) {
    std::vector<std::string> overrides{"parallel.data=auto"};
    for (const config::Difference& d : changes) {
      overrides.push_back(d.key + "=" + d.after);
    }
    return config::load_job(config::text_source(config::job_to_json(base), "A"), overrides,
                            {context.library});
  };
  const auto account = [](const Side& s) {
    return s.job ? studies::account_of(*s.job) : studies::account_of(*s.run);
  };
  std::vector<DataTable> placement;
  if (same_tables(a, b)) {
    add_difference(studies::plan_difference(*a.job, *a.job->embedding_plan, *b.job->embedding_plan),
                   placement);
  }
  studies::Explanation e = a.job && b.job ? studies::explain(*a.job, *b.job, change)
                                          : studies::explain(account(a), account(b));
  e.a.label = options.a.empty() ? "the job of --set" : options.a;
  e.b.label =
      options.b.empty() ? "with " + fmt::format("{}", fmt::join(options.with, " ")) : options.b;
  for (const auto& [side, account_of_side] : {std::pair{&a, &e.a}, std::pair{&b, &e.b}}) {
    account_of_side->label += side->run ? ", mean over the recorded steps" : "";
  }
  const std::string between =
      a.default_framework == b.default_framework
          ? std::string()
          : fmt::format("{} -> {} (implied)", a.default_framework, b.default_framework);
  std::vector<DataTable> tables = tables_of(e, between);
  if (const std::string frameworks = frameworks_text(a, b); !frameworks.empty()) {
    tables.front().note(frameworks);
  }
  for (const auto& [name, side] : {std::pair{"A", &a}, std::pair{"B", &b}}) {
    if (!side->settings.empty()) {
      tables.front().note(
          fmt::format("{} says no plan; chosen: {}", name, typed_settings(side->settings)));
    }
    if (const std::string lacks = side->job ? lack_of_memory(*side->job) : ""; !lacks.empty()) {
      tables.front().note(fmt::format("{}: {}", name, lacks));
    }
  }
  if (a.job && b.job && efficiency_of(*a.job).has_value() != efficiency_of(*b.job).has_value()) {
    tables.front().note(
        "Only one side has the measured efficiency of a framework: compare kernels only, or name "
        "the framework of the other.");
  }
  tables.insert(tables.end(), placement.begin(), placement.end());
  print_tables(tables, options.format, answer());
  return 0;
}

/// The other side: a job as any command takes one, or options alone, which change A.
void read_second(ExplainCommand& options) {
  CLI::App words{"", "diff"};
  JobOptions second;
  words.add_option("b", second.job);
  add_setting_options(words, second.overrides);
  try {
    words.parse(std::vector<std::string>(options.second.rbegin(), options.second.rend()));
  } catch (const CLI::ParseError& e) {
    throw InputError(
        "", fmt::format("after --: {}; `stepcast diff --help` says what is expected", e.what()));
  }
  options.b = second.job;
  options.with.insert(options.with.end(), second.overrides.begin(), second.overrides.end());
}

}  // namespace

void add_explain(CLI::App& app, Context& context) {
  auto options = std::make_shared<ExplainCommand>();
  CLI::App* command =
      app.add_subcommand("diff", "Why one job, plan or trace is slower than another");
  command->alias("explain");
  command->add_option("a", options->a,
                      "Model, job, plan or recorded run (`stepcast help predict`)");
  command->add_option("b", options->second,
                      "The other one; or, after --, options that change A: -- --tp 2 --zero 1");
  command->add_option("--with", options->with, "key=value set in B only; repeatable")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE")
      ->group("Job");
  command->add_option("--mark", options->mark,
                      "Traces of others: the name of the ranges that are steps");
  add_setting_options(*command, options->overrides);
  add_format_option(*command, options->format);
  command->callback([options, &context] {
    read_second(*options);
    context.exit_code = explain(*options, context);
  });
}

}  // namespace stepcast::cli
