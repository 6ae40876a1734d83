#include "studies/predict/explain.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <array>
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
#include "studies/plan/searched_plan.h"

namespace stepcast::cli {
namespace {

struct ExplainCommand {
  std::string a, b;
  std::vector<std::string> second;  ///< words of the other side
  std::vector<std::string> overrides;
  std::vector<std::string> with;
  OutputFormat format = OutputFormat::kText;
};

/// One side: a job to predict, or a recorded run.
struct Side {
  std::optional<Job> job;
  std::string default_framework;  ///< config::JobOnStack
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
  config::JobOnFramework on =
      config::load_job_on_default_framework(source, overrides, {context.library});
  Side side;
  side.job = studies::with_searched_plan(std::move(on.job));
  side.default_framework = std::move(on.default_framework);
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
Side open_side(const Input& input, const Context& context, const Side* other = nullptr,
               const Input* other_input = nullptr) {
  const JobOptions& options = input.options;
  Side side;
  if (input.recorded) {
    if (!options.overrides.empty()) {
      throw InputError("--set",
                       options.job + " is a recording and cannot be changed; give its job instead");
    }
    side.run = read_run(options.job);
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

std::string text_of(const std::vector<config::Difference>& changes) {
  std::string text;
  for (const config::Difference& d : changes) {
    text += fmt::format("{}{}: {} -> {}", text.empty() ? "" : ", ", d.key, shortened(d.before),
                        shortened(d.after));
  }
  return text;
}

/// The steps, and what to expect of them where the efficiency of such runs is known: the tables
/// after it divide the steps at the ideal rate.
DataTable sides_table(const studies::Explanation& e) {
  const bool paced = e.a.expected != e.a.step || e.b.expected != e.b.step;
  std::vector<DataTable::Column> columns{{"side", "", true},
                                         {"step_s", paced ? "hardware's pace" : "step"}};
  if (paced) {
    columns.push_back({"expected_s", "expected"});
  }
  columns.push_back({"rank"});
  DataTable t("summary", "where the difference comes from", std::move(columns));
  const auto row = [&](const std::string& title, Seconds step, Seconds expected, Cell rank) {
    std::vector<Cell> cells{cell(title), cell(step)};
    if (paced) {
      cells.push_back(cell(expected));
    }
    cells.push_back(std::move(rank));
    t.row(std::move(cells));
  };
  for (const auto& [name, side] : {std::pair{"A: ", &e.a}, std::pair{"B: ", &e.b}}) {
    row(name + side->label, side->step, side->expected, cell(std::int64_t{side->rank}));
  }
  const std::string change = percent_signed(e.b.step / e.a.step - 1);
  const std::string expected = percent_signed(e.b.expected / e.a.expected - 1);
  row(fmt::format("B - A ({}{})", change, expected == change ? "" : ", expected " + expected),
      e.b.step - e.a.step, e.b.expected - e.a.expected, empty_cell());
  if (e.a.step == e.b.step && e.changes.empty()) {
    t.note("No difference.");
  }
  return t;
}

DataTable changes_table(const studies::Explanation& e) {
  DataTable t(
      "changes", "change by change, each on top of those above",
      {{"change", "", true}, {"step_s", "step"}, {"delta_s", "delta"}, {"of_step_a", "of A"}});
  for (const studies::ChangeRow& c : e.changes) {
    t.row({cell(text_of(c.changes)), cell(c.step), cell(c.delta), share(c.delta / e.a.step)});
  }
  return t;
}

DataTable parts_table(const studies::Explanation& e) {
  using Row = studies::AccountRow;
  constexpr std::array<std::pair<const char*, Seconds Row::*>, 5> kParts{
      {{"compute", &Row::compute},
       {"exposed communication", &Row::exposed_communication},
       {"bubble", &Row::bubble},
       {"host", &Row::host},
       {"other", &Row::other}}};
  DataTable t("parts", "part of the step (critical ranks)",
              {{"part", "", true},
               {"a_s", "A"},
               {"b_s", "B"},
               {"delta_s", "delta"},
               {"of_step_a", "of A"}});
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
    t.row({cell(std::string_view(name)), cell(a), cell(b), cell(b - a), share((b - a) / e.a.step)});
  }
  return t;
}

DataTable rows_table(const studies::Explanation& e) {
  DataTable t("rows", e.by_name ? "op by op" : "by op kind: few op names occur on both sides",
              {{e.by_name ? "op" : "op_kind", e.by_name ? "op" : "op kind", true},
               {"executions_a", "count A"},
               {"executions_b", "count B"},
               {"a_s", "A"},
               {"b_s", "B"},
               {"delta_s", "delta"},
               {"of_step_a", "of A"}});
  for (const studies::WaterfallRow& r : e.rows) {
    const bool op = !r.kind.empty();
    t.row({op ? short_name(r.name) : cell(r.name), op ? cell(r.executions_a) : empty_cell(),
           op ? cell(r.executions_b) : empty_cell(), cell(r.a), cell(r.b), cell(r.delta()),
           share(r.delta() / e.a.step)});
  }
  t.limit(16);
  t.note(
      "An op counts where it is what its rank computes, transfers or waits in; the rows sum to "
      "the difference.");
  return t;
}

std::vector<DataTable> tables_of(const studies::Explanation& e) {
  std::vector<DataTable> tables{sides_table(e)};
  if (!e.changes.empty()) {
    tables.push_back(changes_table(e));
  }
  tables.push_back(parts_table(e));
  tables.push_back(rows_table(e));
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
  std::vector<std::string> taken;
  for (const auto& [name, side] : {std::pair{"A", &a}, std::pair{"B", &b}}) {
    if (!side->default_framework.empty()) {
      taken.push_back(fmt::format("{} as {} runs it", name, side->default_framework));
    }
  }
  return taken.empty() ? ""
                       : fmt::format("no stack is named: {}; --set stack=NAME for another",
                                     fmt::join(taken, ", "));
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
  std::vector<std::string> second = options.overrides;
  second.insert(second.end(), options.with.begin(), options.with.end());
  const Input of_a = read_input({options.a, options.overrides});
  const Input of_b = read_input({options.b.empty() ? options.a : options.b, second});
  // A plan given with a job is opened after it: it may be a plan of that very job.
  const bool b_first = of_a.plan && !of_b.plan;
  const Input& input_of_first = b_first ? of_b : of_a;
  const Side first = open_side(input_of_first, context);
  const Side other = open_side(b_first ? of_a : of_b, context, &first, &input_of_first);
  const Side& a = b_first ? other : first;
  const Side& b = b_first ? first : other;
  if (a.run || b.run) {
    const std::string x = model_of(a);
    const std::string y = model_of(b);
    if (!x.empty() && !y.empty() && x != y) {
      fmt::print(
          notes(),
          "stepcast: warning: A is a step of {} and B one of {}: only their totals compare\n", x,
          y);
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
  std::vector<DataTable> tables = tables_of(e);
  if (const std::string frameworks = frameworks_text(a, b); !frameworks.empty()) {
    tables.front().note(frameworks);
  }
  if (a.job && b.job && efficiency_of(*a.job).has_value() != efficiency_of(*b.job).has_value()) {
    tables.front().note(
        "only one side runs on a framework whose efficiency is known: compare the simulated steps, "
        "or name the stack of the other");
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
  CLI::App* command = app.add_subcommand(
      "diff", "Where the difference between two jobs, plans or recorded runs comes from");
  command->alias("explain");
  command->add_option("a", options->a,
                      "Model, job, plan or recorded run (`stepcast help predict`)");
  command->add_option("b", options->second,
                      "The other one; or, after --, options that change A: -- --tp 2 --zero 1");
  command->add_option("--with", options->with, "key=value set in B only; repeatable")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE")
      ->group("Job");
  add_setting_options(*command, options->overrides);
  add_format_option(*command, options->format);
  command->callback([options, &context] {
    read_second(*options);
    context.exit_code = explain(*options, context);
  });
}

}  // namespace stepcast::cli
