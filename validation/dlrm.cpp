#include "validation/dlrm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "core/config/paces.h"
#include "core/config/published_names.h"
#include "core/device_names.h"
#include "core/error.h"
#include "core/input/csv.h"
#include "core/statistics.h"
#include "studies/predict/predict.h"
#include "validation/published/published.h"
#include "workloads/embedding_plan/plan_hugectr.h"

namespace stepcast::validation {
namespace {

constexpr double kTrainingSamples = 4'195'197'692;  ///< Criteo, 23 days
constexpr double kWider = 1.1;                      ///< from one bin of ids to the next
constexpr double kEdge = 1e-3;                      ///< of a reuse count, either side of it

/// Rows of MLPerf's systems or runs; or of NVIDIA's DeepLearningExamples and
/// others who run them.
void read_file(const std::filesystem::path& file, std::vector<DlrmStepTime>& rows) {
  const bool examples = file.filename() == "dlrm_recent.csv";
  CsvTable table(file,
                 examples ? "data/recent/dlrm_recent.csv" : "data/dlrm/mlperf_step_times.csv");
  const bool per_run = table.has("run");
  while (table.next()) {
    DlrmStepTime& row = rows.emplace_back();
    row.place = table.place();
    row.gpu = table.text("gpu");
    row.round = table.text(examples ? "source" : "round");
    row.system = table.text(examples ? "id" : "system");
    if (examples) {
      row.benchmark = fmt::format("{} {}", table.text("model"), table.text("size"));
      row.gpu =
          row.gpu.substr(row.gpu.find("x ") == std::string::npos ? 0 : row.gpu.find("x ") + 2);
      row.precision = table.text("precision");
      row.framework = "torchrec";
      if (row.round.find("TensorFlow") != std::string::npos) {
        row.unusable = "framework: found TensorFlow, expected one on PyTorch";
      } else if (row.round.find("FlagPerf") != std::string::npos) {
        row.unusable = "size: found no threshold of categories, which sets the tables";
      }
    } else {
      row.organisation = table.text("org");
      row.benchmark = table.text("benchmark");
    }
    const auto positive = [&](std::string_view column) {
      return positive_or_say(column, table.text(column), row.unusable);
    };
    const auto count = [&](std::string_view column) {
      return static_cast<std::int64_t>(positive(column));
    };
    row.gpus = count("gpus");
    row.nodes = examples ? 1 : count("nodes");
    row.batch = count("global_batch");
    row.seconds = examples ? positive("step_time_s")
                           : positive(per_run ? "median_step_ms" : "step_ms_median") * 1e-3;
    if (per_run) {
      const std::string run = table.text("run");
      std::from_chars(run.data(), run.data() + run.size(), row.run);
    } else if (!examples && row.seconds > 0) {
      row.spread = (positive("step_ms_max_run") - positive("step_ms_min_run")) * 1e-3 / row.seconds;
    }
  }
}

struct Benchmark {
  std::string_view name, workload, optimizer;
  bool multi_hot = false;
};
constexpr std::array kBenchmarks{Benchmark{"dlrm", "mlperf-dlrm-v1", "sgd"},
                                 Benchmark{"dlrm_dcnv2", "mlperf-dlrm-v2", "adagrad", true},
                                 Benchmark{"DLRM small", "criteo-terabyte-15", "sgd"},
                                 Benchmark{"DLRM large", "criteo-terabyte-3", "sgd"}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kGenerations{
    {{"v100", "V100"},
     {"b300", "Blackwell"},
     {"a100", "A100"},
     {"h100", "H100"},
     {"h200", "H200"},
     {"b200", "Blackwell"},
     {"gb", "Blackwell"}}};

std::string parts_of(const studies::StepPrediction& p) {
  constexpr std::size_t kLongest = 5;
  std::string text =
      fmt::format("compute {:.2f} ms, exposed communication {:.2f} ms; longest kinds",
                  p.split.compute.base() * 1e3, p.split.exposed_communication.base() * 1e3);
  for (std::size_t i = 0; i < std::min(kLongest, p.by_kind.size()); ++i) {
    text += fmt::format("{} {} {:.2f} ms", i > 0 ? "," : "", p.by_kind[i].name,
                        p.by_kind[i].time.base() * 1e3);
  }
  return text;
}

/// The row each round's scalar comes from: of the authors of the framework, a
/// median, the first.
std::map<std::string, const DlrmStepTime*> reference_rows(const std::vector<DlrmStepTime>& rows) {
  std::map<std::string, const DlrmStepTime*> chosen;
  const auto rank = [](const DlrmStepTime* r) {
    return r == nullptr ? 0 : (r->run < 0 ? 2 : 1) + (r->organisation == "NVIDIA" ? 4 : 0);
  };
  for (const DlrmStepTime& row : rows) {
    if (const DlrmStepTime*& now = chosen[row.round];
        row.unusable.empty() && rank(&row) > rank(now)) {
      now = &row;
    }
  }
  return chosen;
}

/// A usable row under every regime; 0 where a regime says nothing of it.
struct Scored {
  const DlrmStepTime* row = nullptr;
  const DlrmStepTime* reference = nullptr;  ///< of its round
  double facts = 0, models = 0;
  double work = 0;           ///< samples per byte/s of device memory
  double scale = 0;          ///< what the round's reference took, over what the models say of it
  double of_round = 0;       ///< the models' times that scale, of a round of one GPU
  double of_others = 0;      ///< times the scalar of the other generations
  double naive_others = 0;   ///< by the work alone
  double printed = 0;        ///< at the efficiency that the other generations show
  double constant_rate = 0;  ///< at the samples/s of the reference
  std::string parts{};       ///< where the step predicted from the models goes
  PublishedPrediction published{};
  /// True for rows of the system that gives the scalar.
  [[nodiscard]] bool is_reference() const {
    return row->round == reference->round && row->organisation == reference->organisation &&
           row->system == reference->system;
  }
  [[nodiscard]] bool is_median() const { return row->run < 0; }
  /// A row of a round of one GPU has the scalar of its round.
  [[nodiscard]] bool crosses_generations() const {
    return row->benchmark == "dlrm_dcnv2" && of_round == 0;
  }
};
using Rows = std::vector<Scored>;
const PublishedRow kNoRow;

/// A row's prediction, with and without what was calibrated.
Scored predicted(const DlrmStepTime& row, const config::Library& library,
                 const config::Origins& origins) {
  Job job = job_of(row, library);
  const studies::StepPrediction with_models = studies::predict(job);
  job.calibration.kind = Calibration::Kind::kNone;
  Scored s;
  s.facts = studies::predict(job).hardware.base();
  s.models = with_models.hardware.base();
  s.work = static_cast<double>(row.batch) / static_cast<double>(row.gpus) /
           job.system.device.bandwidth.base();
  s.parts = parts_of(with_models);
  s.published.row = &kNoRow;
  s.published.framework = row.framework;
  s.published.device = job.system.device.name;
  s.published.family = name_of(EfficiencyFamily::kRecommender);
  s.published.generation = origins.generation_of(s.published.device);
  s.published.curve = {s.models};
  s.published.capacity = 1;
  s.published.in_range = with_models.all_in_range;
  return s;
}

/// For the rows of other generations: how much longer they take than `value`
/// says.
double scalar_of_others(const Rows& all, const std::string& generation, double Scored::*value) {
  std::vector<double> ratios;
  for (const Scored& s : all) {
    if (s.crosses_generations() && s.is_median() && s.row->generation() != generation) {
      ratios.push_back(s.row->seconds / (s.*value));
    }
  }
  return ratios.empty() ? 0 : middle_of(std::move(ratios));
}

/// The distinct values of the rows, in order.
template <class Value>
auto values_of(const Rows& all, Value value) {
  std::set<std::string> values;
  for (const Scored& s : all) {
    values.insert(value(s));
  }
  return values;
}
std::set<std::string> frameworks_of(const Rows& all) {
  return values_of(all, [](const Scored& s) { return s.row->framework; });
}

/// The medians of a framework.
Rows medians_of(const std::string& framework, const Rows& all) {
  return where(all,
               [&](const Scored& s) { return s.is_median() && s.row->framework == framework; });
}
Predictions published(const Rows& rows) {
  Predictions all;
  for (const Scored& s : rows) {
    all.push_back(&s.published);
  }
  return all;
}

/// Rounds whose rows are all of one generation: one row can stand for the
/// round.
std::set<std::string> rounds_of_one_gpu(const Rows& all) {
  std::set<std::string> rounds = values_of(all, [](const Scored& s) { return s.row->round; });
  std::erase_if(rounds, [&](const std::string& round) {
    const Rows of = where(all, [&](const Scored& s) { return s.row->round == round; });
    return values_of(of, [](const Scored& s) { return s.row->generation(); }).size() > 1;
  });
  return rounds;
}

/// Every usable row with its predictions; `rejected[i]` says why `rows[i]` is
/// none.
Rows scored_rows(const std::vector<DlrmStepTime>& rows, const config::Library& library,
                 std::vector<std::string>& rejected) {
  const auto references = reference_rows(rows);
  const config::Origins origins = config::load_origins(library);
  std::map<std::string, Scored> known;  // rows of one system differ only in what was measured
  const auto of_system = [&](const DlrmStepTime& row) -> const Scored& {
    const std::string key =
        fmt::format("{}|{}|{}|{}|{}", row.benchmark, row.gpu, row.gpus, row.batch, row.precision);
    const auto at = known.find(key);
    return at != known.end() ? at->second
                             : known.emplace(key, predicted(row, library, origins)).first->second;
  };
  Rows all;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const DlrmStepTime& row = rows[i];
    if (!row.unusable.empty()) {
      rejected[i] = fmt::format("{}: {}", row.place, row.unusable);
      continue;
    }
    try {
      const DlrmStepTime& reference = *references.at(row.round);
      Scored s = of_system(row);
      s.row = &row;
      s.reference = &reference;
      s.scale = reference.seconds / of_system(reference).models;
      s.constant_rate =
          static_cast<double>(row.batch) / static_cast<double>(reference.batch) * reference.seconds;
      s.published.source = row.round + " " + row.organisation;
      s.published.maker = row.organisation;
      s.published.measured = row.seconds;
      all.push_back(std::move(s));
    } catch (const InputError& e) {
      rejected[i] = e.what();
    }
  }
  const auto one_gpu = rounds_of_one_gpu(all);
  for (Scored& s : all) {
    s.of_round = one_gpu.contains(s.row->round) ? s.models * s.scale : 0;
  }
  for (Scored& s : all) {
    if (s.crosses_generations()) {
      const std::string generation = s.row->generation();
      s.of_others = s.models * scalar_of_others(all, generation, &Scored::models);
      s.naive_others = s.work * scalar_of_others(all, generation, &Scored::work);
    }
  }
  return all;
}

/// Adds the group of the rows that are wanted, held to a bar where there is
/// one.
template <typename Wanted>
void add(Suite& suite, const std::string& name, const Rows& all, double Scored::*value,
         Wanted wanted, const Bar* bar = nullptr, const char* baseline = "constant samples/s",
         double Scored::*naive = &Scored::constant_rate) {
  std::vector<Row> rows;
  for (const Scored& s : where(all, wanted)) {
    rows.push_back({.id = s.row->id(),
                    .measured = s.row->seconds,
                    .predicted = s.*value,
                    .naive = s.*naive,
                    .in_range = s.published.in_range,
                    .noise = s.row->spread});
  }
  suite.groups.push_back(group_of(name, rows, baseline));
  if (bar != nullptr) {
    suite.groups.back().hold_to(*bar);
  }
}

/// Each generation predicted with the scalar of the others, and all of them.
void add_generations(const Rows& all, Suite& suite) {
  constexpr Bar kBar{.median = 0.08, .worst = 0.20, .bias = 0.04};
  const Rows scored = where(all, [](const Scored& s) { return s.is_median() && s.of_others > 0; });
  const auto add_those = [&](const std::string& name, auto wanted, const Bar* bar) {
    add(suite, name, scored, &Scored::of_others, wanted, bar, "samples per byte/s of memory",
        &Scored::naive_others);
  };
  add_those(
      "generations left out", [](const Scored&) { return true; }, &kBar);
  for (const auto& generation :
       values_of(scored, [](const Scored& s) { return s.row->generation(); })) {
    add_those(
        "left out: " + generation,
        [&](const Scored& s) { return s.row->generation() == generation; }, nullptr);
    suite.notes.push_back(fmt::format("scalar of all generations but {}: x{:.4g}", generation,
                                      scalar_of_others(all, generation, &Scored::models)));
  }
}

/// Each generation with the efficiency of the others, as `predict` would print
/// it.
void add_printed(const Rows& all, Suite& suite) {
  constexpr Bar kBar{.median = 0.10, .worst = 0.25, .bias = 0.05};
  for (const std::string& framework : frameworks_of(all)) {
    Rows of = medians_of(framework, all);
    const auto generations = values_of(of, [](const Scored& s) { return s.published.generation; });
    if (generations.size() < 2) {
      continue;  // no other generation
    }
    const Scores scores = scaled(published(of), {.leave_out = LeaveOut::kGeneration});
    for (std::size_t i = 0; i < of.size(); ++i) {
      of[i].printed = scores[i].seconds;
    }
    const std::string name = fmt::format("{}, generations left out", framework);
    add(
        suite, name, of, &Scored::printed, [](const Scored&) { return true; },
        framework == "hugectr" ? &kBar : nullptr, "no efficiency", &Scored::models);
    for (const std::string& generation : generations) {
      add(
          suite, fmt::format("{} without {}", framework, generation), of, &Scored::printed,
          [&](const Scored& s) { return s.published.generation == generation; }, nullptr,
          "no efficiency", &Scored::models);
    }
  }
}

void add_rounds(const Rows& all, std::size_t rejected, Suite& suite) {
  constexpr Bar kBar{.mean = 0.10};
  const auto median_row = [](const Scored& s) { return s.is_median(); };
  const auto held_out = [](const Scored& s) { return s.of_round > 0 && !s.is_reference(); };
  const bool runs_only = std::none_of(all.begin(), all.end(), median_row);
  const auto gate = [&](const Scored& s) { return held_out(s) && (runs_only || s.is_median()); };
  add(suite, "one scalar per round", all, &Scored::of_round, gate, &kBar);
  suite.groups.back().skipped = rejected;
  for (const std::string& round : rounds_of_one_gpu(all)) {
    add(suite, "one scalar, " + round, all, &Scored::of_round,
        [&](const Scored& s) { return gate(s) && s.row->round == round; });
  }
  if (!runs_only) {
    add(suite, "models without a scalar", all, &Scored::models, median_row);
    add(suite, "hardware facts only", all, &Scored::facts, median_row);
    add(suite, "one scalar, run by run", all, &Scored::of_round,
        [&](const Scored& s) { return held_out(s) && !s.is_median(); });
  }
}

Row shown_row(const Scored& s, DlrmRegime regime) {
  const double scaled = s.of_round > 0 ? s.of_round : s.of_others;
  Row shown{s.row->id(), s.row->seconds};
  shown.predicted = regime == DlrmRegime::kFacts    ? s.facts
                    : regime == DlrmRegime::kModels ? s.models
                                                    : scaled;
  if (regime == DlrmRegime::kOneRow && s.of_round > 0 && s.is_reference()) {
    shown.skipped = fmt::format("{} the scalar of {}, x{:.4g}",
                                s.row == s.reference ? "gives" : "of the system that gives",
                                s.row->round, s.scale);
  } else if (regime == DlrmRegime::kOneRow && scaled == 0) {
    shown.skipped = "no row of another generation or round gives a scalar";
  }
  return shown;
}

}  // namespace

std::string DlrmStepTime::id() const {
  const std::string name =
      fmt::format("{} {} {} x{} batch {}", round, organisation, system, gpus, batch);
  return run < 0 ? name : fmt::format("{} run {}", name, run);
}

std::string DlrmStepTime::generation() const {
  const auto device = device_named(gpu);
  for (const auto& [begins, name] : kGenerations) {
    if (device && device->device.starts_with(begins)) {
      return std::string(name);
    }
  }
  return gpu;
}

std::vector<DlrmStepTime> read_dlrm_step_times(const std::filesystem::path& path) {
  std::vector<DlrmStepTime> rows;
  if (!std::filesystem::is_directory(path)) {
    read_file(path, rows);
  } else {
    for (const std::filesystem::path& folder : {path, path / "dlrm", path / "recent"}) {
      for (const char* name :
           {"mlperf_step_times.csv", "mlperf_step_times_v4.1_v5.0.csv", "mlperf_dlrm_v6.0.csv",
            "mlperf_step_times_per_run.csv", "dlrm_recent.csv"}) {
        if (std::filesystem::exists(folder / name)) {
          read_file(folder / name, rows);
        }
      }
    }
  }
  if (rows.empty()) {
    throw InputError(path.string(), "has no rows; expected those of data/dlrm");
  }
  return rows;
}

Access multi_hot_access(const Access& one_hot, double ids_per_bag, double samples) {
  if (ids_per_bag <= 1) {
    return one_hot;
  }
  const auto rows = static_cast<double>(one_hot.rows());
  std::vector<ReuseBin> bins;
  double left = rows;
  double before = 0;
  for (double first = 0; first < rows;) {
    const double last = std::min(rows, std::max(first + 1, std::floor(first * kWider)));
    const double share = one_hot.cdf(last).value;
    const double held = std::min(left, (last - first) * ids_per_bag);
    if (held >= 1) {
      bins.push_back({.unique_rows = held});
    }
    bins.back().accesses += (share - before) * samples * ids_per_bag;
    left -= held;
    before = share;
    first = last;
  }
  for (ReuseBin& bin : bins) {
    const double reuse = bin.accesses / bin.unique_rows;
    bin.reuse_low = reuse * (1 - kEdge);
    bin.reuse_high = reuse * (1 + kEdge);
  }
  std::sort(bins.begin(), bins.end(),
            [](const ReuseBin& a, const ReuseBin& b) { return a.reuse_low < b.reuse_low; });
  return Access::histogram(one_hot.rows(), std::move(bins), samples * ids_per_bag);
}

Job job_of(const DlrmStepTime& row, const config::Library& library) {
  const auto benchmark = std::find_if(kBenchmarks.begin(), kBenchmarks.end(),
                                      [&](const Benchmark& b) { return b.name == row.benchmark; });
  if (benchmark == kBenchmarks.end()) {
    throw InputError(row.place, fmt::format("benchmark: found '{}', expected dlrm or dlrm_dcnv2",
                                            row.benchmark));
  }
  const auto device = device_named(row.gpu);
  if (!device || device->system.empty()) {
    throw InputError(row.place, fmt::format("gpu: '{}' names no system of the zoo", row.gpu));
  }
  const std::string source = fmt::format("MLPerf Training DLRM {} {}", row.round, row.organisation);
  const config::PublishedNames names = config::load_published_names(library);
  std::vector<std::string> overrides{fmt::format("workload={}", benchmark->workload),
                                     fmt::format("system={}", device->system),
                                     fmt::format("devices={}", row.gpus),
                                     fmt::format("batch.global={}", row.batch),
                                     "stack=" + row.framework,
                                     fmt::format("optimizer={}", benchmark->optimizer)};
  for (const config::PublishedSource& s : names.sources) {
    if (source.starts_with(s.begins)) {
      const std::vector<std::string> set = s.settings.of(1, 1, 1);
      overrides.insert(overrides.end(), set.begin(), set.end());
      break;
    }
  }
  if (!row.precision.empty()) {
    const bool narrow = row.precision == "amp";
    overrides.push_back(fmt::format("formats.compute={}", narrow ? "fp16" : row.precision));
    for (const char* exchange : {"all_to_all_forward", "all_to_all_backward"}) {
      overrides.push_back(fmt::format("formats.{}={}", exchange, narrow ? "fp16" : "fp32"));
    }
  }
  Job job = config::load_job(config::text_source("", "stack " + row.framework), overrides, library);
  if (benchmark->multi_hot) {
    for (EmbeddingTable& table : std::get<LayeredWorkload>(job.workload.model).tables) {
      table.access = std::make_shared<const Access>(
          multi_hot_access(*table.access, table.pooling, kTrainingSamples));
    }
  }
  if (row.framework == "hugectr") {
    job.embedding_plan = workloads::hugectr_plan(job, workloads::hugectr_rule(job));
  } else {  // whole tables, as its examples place them
    job.embedding_choice = "table_wise";
  }
  return job;
}

std::map<std::string, EfficiencyTable> fit_dlrm_efficiencies(const std::vector<DlrmStepTime>& rows,
                                                             const config::Library& library) {
  std::vector<std::string> rejected(rows.size());
  const Rows scored = scored_rows(rows, library, rejected);
  std::map<std::string, EfficiencyTable> tables;
  for (const std::string& framework : frameworks_of(scored)) {
    tables.emplace(framework, fit_efficiencies(published(medians_of(framework, scored))));
  }
  return tables;
}

Suite validate_dlrm(const std::vector<DlrmStepTime>& rows, const config::Library& library,
                    DlrmRegime regime) {
  Suite suite{.name = "dlrm"};
  std::vector<std::string> rejected(rows.size());
  const Rows scored = scored_rows(rows, library, rejected);
  auto next = scored.begin();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rejected[i].empty()) {
      suite.rows.push_back({rows[i].id(), rows[i].seconds, 0, rejected[i]});
      continue;
    }
    const Scored& s = *next++;
    suite.rows.push_back(shown_row(s, regime));
    if (s.row == s.reference) {
      const std::string of = fmt::format("{} {}", s.row->organisation, s.row->system);
      suite.notes.push_back(
          s.of_round > 0 ? fmt::format("scalar of {} from {}: x{:.4g}", s.row->round, of, s.scale)
                         : s.row->round + " " + of);
      suite.notes.push_back(
          fmt::format("  without a scalar {:.2f} ms: {}", s.models * 1e3, s.parts));
    }
  }
  add_generations(scored, suite);
  add_printed(scored, suite);
  add_rounds(scored, rows.size() - scored.size(), suite);
  std::erase_if(suite.groups, [](const Group& g) { return g.errors.n == 0; });
  std::vector<std::string> bounds;
  for (const Group& g : suite.groups) {
    if (!g.bound.empty()) {
      bounds.push_back(g.name + ": " + g.bound);
    }
  }
  suite.bound = fmt::format("{}", fmt::join(bounds, "; "));
  suite.pass = !suite.groups.empty() && std::all_of(suite.groups.begin(), suite.groups.end(),
                                                    [](const Group& g) { return g.pass; });
  return suite;
}

}  // namespace stepcast::validation
