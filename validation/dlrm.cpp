#include "validation/dlrm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
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
#include "validation/published/efficiencies.h"
#include "workloads/embedding_plan/plan_hugectr.h"

namespace stepcast::validation {
namespace {

constexpr Bar kRoundsBar{.mean = 0.10};
constexpr Bar kGenerationsBar{.median = 0.08, .worst = 0.20, .bias = 0.04};
constexpr Bar kPrintedBar{.median = 0.10, .worst = 0.25, .bias = 0.05};
constexpr double kTrainingSamples = 4'195'197'692;  ///< Criteo, 23 days
constexpr double kWider = 1.1;                      ///< from one bin of ids to the next
constexpr double kEdge = 1e-3;                      ///< of a reuse count, either side of it

void read_file(const std::filesystem::path& file, std::vector<DlrmStepTime>& rows) {
  CsvTable table(file, "data/dlrm/mlperf_step_times.csv");
  const bool per_run = table.has("run");
  while (table.next()) {
    DlrmStepTime row;
    row.place = table.place();
    row.round = table.text("round");
    row.organisation = table.text("org");
    row.system = table.text("system");
    row.benchmark = table.text("benchmark");
    row.gpu = table.text("gpu");
    const auto positive = [&](std::string_view column) {
      return positive_or_say(column, table.text(column), row.unusable);
    };
    const auto count = [&](std::string_view column) {
      return static_cast<std::int64_t>(positive(column));
    };
    row.gpus = count("gpus");
    row.nodes = count("nodes");
    row.batch = count("global_batch");
    row.seconds = positive(per_run ? "median_step_ms" : "step_ms_median") * 1e-3;
    if (per_run) {
      const std::string run = table.text("run");
      std::from_chars(run.data(), run.data() + run.size(), row.run);
    } else if (row.seconds > 0) {
      row.spread = (positive("step_ms_max_run") - positive("step_ms_min_run")) * 1e-3 / row.seconds;
    }
    rows.push_back(std::move(row));
  }
}

/// A table of NVIDIA's DeepLearningExamples and others who run them.
void read_examples(const std::filesystem::path& file, std::vector<DlrmStepTime>& rows) {
  CsvTable table(file, "data/recent/dlrm_recent.csv");
  while (table.next()) {
    DlrmStepTime row;
    row.place = table.place();
    row.round = table.text("source");
    row.system = table.text("id");
    row.benchmark = fmt::format("{} {}", table.text("model"), table.text("size"));
    row.gpu = table.text("gpu");
    row.gpu = row.gpu.substr(row.gpu.find("x ") == std::string::npos ? 0 : row.gpu.find("x ") + 2);
    row.precision = table.text("precision");
    row.framework = "torchrec";
    if (row.round.find("TensorFlow") != std::string::npos) {
      row.unusable = "framework: found TensorFlow, expected one on PyTorch";
    } else if (row.round.find("FlagPerf") != std::string::npos) {
      row.unusable = "size: found no threshold of categories, which sets the tables";
    }
    row.gpus = static_cast<std::int64_t>(positive_or_say("gpus", table.text("gpus"), row.unusable));
    row.nodes = 1;
    row.batch = static_cast<std::int64_t>(
        positive_or_say("global_batch", table.text("global_batch"), row.unusable));
    row.seconds = positive_or_say("step_time_s", table.text("step_time_s"), row.unusable);
    rows.push_back(std::move(row));
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

struct Predicted {
  double facts = 0, models = 0;
  double bandwidth = 0;  ///< of a device's memory, bytes/s
  std::string device;
  bool in_range = false;
  std::string parts;  ///< where the step predicted from the models goes
};

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

Predicted predict(Job job) {
  const studies::StepPrediction with_models = studies::predict(job);
  job.calibration.kind = Calibration::Kind::kNone;
  return {studies::predict(job).hardware.base(), with_models.hardware.base(),
          job.system.device.bandwidth.base(),    job.system.device.name,
          with_models.all_in_range,       parts_of(with_models)};
}

/// The row each round's scalar comes from.
std::map<std::string, const DlrmStepTime*> reference_rows(const std::vector<DlrmStepTime>& rows) {
  std::map<std::string, const DlrmStepTime*> chosen;
  for (const DlrmStepTime& row : rows) {
    if (!row.unusable.empty()) {
      continue;
    }
    const DlrmStepTime*& now = chosen[row.round];
    const auto rank = [](const DlrmStepTime* r) {
      return r == nullptr ? 0 : (r->run < 0 ? 2 : 1) + (r->organisation == "NVIDIA" ? 4 : 0);
    };
    if (rank(&row) > rank(now)) {
      now = &row;
    }
  }
  return chosen;
}

/// A usable row under every regime.
struct Scored {
  const DlrmStepTime* row = nullptr;
  const DlrmStepTime* reference = nullptr;  ///< of its round
  Predicted predicted;
  double scale = 0;      ///< what the round's reference took, over what the models say of it
  double of_round = 0;   ///< the models' times that scale; 0 for a round of several GPUs
  double of_others = 0;  ///< times that of the other generations; 0 where there are none
  double naive_others = 0;
  /// True for rows of the system that gives the scalar.
  [[nodiscard]] bool is_reference() const {
    return row->round == reference->round && row->organisation == reference->organisation &&
           row->system == reference->system;
  }
  [[nodiscard]] bool is_median() const { return row->run < 0; }
  /// Samples per byte of device memory: what the naive predictor holds constant.
  [[nodiscard]] double work() const {
    return static_cast<double>(row->batch) / static_cast<double>(row->gpus) / predicted.bandwidth;
  }
};

using Rows = std::vector<Scored>;

/// A row of a round of one GPU has the scalar of its round.
bool crosses_generations(const Scored& s) {
  return s.row->benchmark == "dlrm_dcnv2" && s.of_round == 0;
}

/// For the rows of other generations: how much longer they take than `predicted` says.
template <typename Value>
double scalar_of_others(const Rows& all, const std::string& generation, Value predicted) {
  std::vector<double> ratios;
  for (const Scored& s : all) {
    if (crosses_generations(s) && s.is_median() && s.row->generation() != generation) {
      ratios.push_back(s.row->seconds / predicted(s));
    }
  }
  return ratios.empty() ? 0 : middle_of(std::move(ratios));
}

void scale_by_others(Rows& all) {
  for (Scored& s : all) {
    if (crosses_generations(s)) {
      const std::string generation = s.row->generation();
      s.of_others = s.predicted.models * scalar_of_others(all, generation, [](const Scored& other) {
                      return other.predicted.models;
                    });
      s.naive_others = s.work() * scalar_of_others(all, generation, [](const Scored& other) {
                         return other.work();
                       });
    }
  }
}

double at_constant_rate(const Scored& s) {
  return static_cast<double>(s.row->batch) / static_cast<double>(s.reference->batch) *
         s.reference->seconds;
}

struct Naive {
  const char* name = "constant samples/s";
  double (*of)(const Scored&) = at_constant_rate;
};

template <typename Wanted, typename Value>
Group group(const std::string& name, const Rows& all, Wanted wanted, Value value,
            Naive naive = {}) {
  std::vector<Row> rows;
  for (const Scored& s : where(all, wanted)) {
    rows.push_back({.id = s.row->id(),
                    .measured = s.row->seconds,
                    .predicted = value(s),
                    .naive = naive.of(s),
                    .in_range = s.predicted.in_range,
                    .noise = s.row->spread});
  }
  return group_of(name, rows, naive.name);
}

/// Each generation predicted with the scalar of the others, and all of them.
void add_generations(const Rows& all, Suite& suite) {
  const auto value = [](const Scored& s) { return s.of_others; };
  const Naive naive{"samples per byte/s of memory", [](const Scored& s) { return s.naive_others; }};
  const Rows scored = where(all, [](const Scored& s) { return s.is_median() && s.of_others > 0; });
  std::set<std::string> generations;
  for (const Scored& s : scored) {
    generations.insert(s.row->generation());
  }
  const auto any = [](const Scored&) { return true; };
  suite.groups.push_back(group("generations left out", scored, any, value, naive));
  suite.groups.back().hold_to(kGenerationsBar);
  for (const std::string& generation : generations) {
    suite.groups.push_back(group(
        "left out: " + generation, scored,
        [&](const Scored& s) { return s.row->generation() == generation; }, value, naive));
    suite.notes.push_back(fmt::format(
        "scalar of all generations but {}: x{:.4g}", generation,
        scalar_of_others(all, generation, [](const Scored& s) { return s.predicted.models; })));
  }
}

/// The rows as published predictions, of whose efficiencies a table is made.
class Shown {
 public:
  Shown(const Rows& all, const std::string& framework, const config::Library& library) {
    const config::Origins origins = config::load_origins(library);
    for (const Scored& s : all) {
      if (s.is_median() && s.row->framework == framework) {
        PublishedPrediction& p = predictions_.emplace_back();
        p.row = &none_;
        p.source = s.row->round + " " + s.row->organisation;
        p.maker = s.row->organisation;
        p.framework = framework;
        p.device = s.predicted.device;
        p.family = name_of(EfficiencyFamily::kRecommender);
        p.generation = origins.generation_of(p.device);
        p.measured = s.row->seconds;
        p.curve = {s.predicted.models};
        p.capacity = 1;
        rows_.push_back(&s);
      }
    }
  }
  [[nodiscard]] std::size_t size() const { return rows_.size(); }
  [[nodiscard]] const Scored& row(std::size_t i) const { return *rows_[i]; }
  [[nodiscard]] const PublishedPrediction& prediction(std::size_t i) const {
    return predictions_[i];
  }
  /// Efficiencies fitted to the rows of all generations but one.
  [[nodiscard]] EfficiencyTable without(const std::string& generation) const {
    return fit_efficiencies(where(pointers(predictions_), [&](const PublishedPrediction* p) {
      return p->generation != generation;
    }));
  }

 private:
  PublishedRow none_;
  std::vector<PublishedPrediction> predictions_;
  std::vector<const Scored*> rows_;
};

std::set<std::string> frameworks_of(const Rows& all) {
  std::set<std::string> names;
  for (const Scored& s : all) {
    names.insert(s.row->framework);
  }
  return names;
}

/// Each generation with the efficiency of the others, as `predict` would print it.
void add_printed(const Rows& all, const config::Library& library, Suite& suite) {
  for (const std::string& framework : frameworks_of(all)) {
    const Shown shown(all, framework, library);
    std::map<std::string, EfficiencyTable> without;
    std::map<std::string, std::vector<Row>> groups;
    for (std::size_t i = 0; i < shown.size(); ++i) {
      const PublishedPrediction& p = shown.prediction(i);
      auto [table, fresh] = without.try_emplace(p.generation);
      if (fresh) {
        table->second = shown.without(p.generation);
      }
      const EfficiencyGroup* known = nearest_efficiency(table->second, keys_of(p));
      if (known == nullptr) {
        continue;  // no other generation
      }
      const Scored& s = shown.row(i);
      const Row row{.id = s.row->id(),
                    .measured = p.measured,
                    .predicted = p.seconds(1) * known->factor,
                    .naive = p.seconds(1),
                    .in_range = s.predicted.in_range,
                    .noise = s.row->spread};
      groups[""].push_back(row);
      groups[", " + p.generation].push_back(row);
    }
    for (const auto& [of, rows] : groups) {
      suite.groups.push_back(group_of(fmt::format("as printed, {}, generations left out{}",
                                                  framework, of),
                                      rows, "no efficiency"));
      if (of.empty() && framework == "hugectr") {
        suite.groups.back().hold_to(kPrintedBar);
      }
    }
  }
}

/// Rounds whose rows are all of one generation: one row can stand for the round.
std::set<std::string> rounds_of_one_gpu(const Rows& all) {
  std::map<std::string, std::set<std::string>> gpus;
  for (const Scored& s : all) {
    gpus[s.row->round].insert(s.row->generation());
  }
  std::set<std::string> rounds;
  for (const auto& [round, named] : gpus) {
    if (named.size() == 1) {
      rounds.insert(round);
    }
  }
  return rounds;
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
  const auto read = [&rows](const std::filesystem::path& file) {
    file.filename() == "dlrm_recent.csv" ? read_examples(file, rows) : read_file(file, rows);
  };
  if (std::filesystem::is_directory(path)) {
    for (const std::filesystem::path& folder : {path, path / "dlrm", path / "recent"}) {
      for (const char* name :
           {"mlperf_step_times.csv", "mlperf_step_times_v4.1_v5.0.csv", "mlperf_dlrm_v6.0.csv",
            "mlperf_step_times_per_run.csv", "dlrm_recent.csv"}) {
        if (std::filesystem::exists(folder / name)) {
          read(folder / name);
        }
      }
    }
  } else {
    read(path);
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

namespace {

/// Every usable row with its predictions; `rejected[i]` says why `rows[i]` is none.
Rows scored_rows(const std::vector<DlrmStepTime>& rows, const config::Library& library,
                 std::vector<std::string>& rejected) {
  const auto references = reference_rows(rows);
  std::map<std::string, Predicted> known;  // rows of one system differ only in what was measured
  const auto predicted = [&](const DlrmStepTime& row) -> const Predicted& {
    const std::string key = fmt::format("{}|{}|{}|{}|{}", row.benchmark, row.gpu, row.gpus,
                                        row.batch, row.precision);
    const auto at = known.find(key);
    return at != known.end() ? at->second
                             : known.emplace(key, predict(job_of(row, library))).first->second;
  };
  Rows scored;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const DlrmStepTime& row = rows[i];
    if (!row.unusable.empty()) {
      rejected[i] = fmt::format("{}: {}", row.place, row.unusable);
      continue;
    }
    try {
      const DlrmStepTime* reference = references.at(row.round);
      scored.push_back(
          {&row, reference, predicted(row), reference->seconds / predicted(*reference).models});
    } catch (const InputError& e) {
      rejected[i] = e.what();
    }
  }
  const auto one_gpu = rounds_of_one_gpu(scored);
  for (Scored& s : scored) {
    s.of_round = one_gpu.contains(s.row->round) ? s.predicted.models * s.scale : 0;
  }
  scale_by_others(scored);
  return scored;
}

Row shown_row(const Scored& s, DlrmRegime regime) {
  const double scaled = s.of_round > 0 ? s.of_round : s.of_others;
  Row shown{s.row->id(), s.row->seconds};
  shown.predicted = regime == DlrmRegime::kFacts    ? s.predicted.facts
                    : regime == DlrmRegime::kModels ? s.predicted.models
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

void add_reference_notes(const Scored& s, std::vector<std::string>& notes) {
  notes.push_back(s.of_round > 0
                      ? fmt::format("scalar of {} from {} {}: x{:.4g}", s.row->round,
                                    s.row->organisation, s.row->system, s.scale)
                      : fmt::format("{} {} {}", s.row->round, s.row->organisation, s.row->system));
  notes.push_back(
      fmt::format("  without a scalar {:.2f} ms: {}", s.predicted.models * 1e3, s.predicted.parts));
}

void add_rounds(const Rows& scored, std::int64_t rejected, Suite& suite) {
  const auto facts = [](const Scored& s) { return s.predicted.facts; };
  const auto models = [](const Scored& s) { return s.predicted.models; };
  const auto scaled = [](const Scored& s) { return s.of_round; };
  const auto median_row = [](const Scored& s) { return s.is_median(); };
  const auto held_out = [](const Scored& s) { return s.of_round > 0 && !s.is_reference(); };
  const bool runs_only = std::none_of(scored.begin(), scored.end(), median_row);
  const auto gate = [&](const Scored& s) { return held_out(s) && (runs_only || s.is_median()); };
  suite.groups.push_back(group("one scalar per round", scored, gate, scaled));
  suite.groups.back().hold_to(kRoundsBar);
  suite.groups.back().skipped = rejected;
  for (const std::string& round : rounds_of_one_gpu(scored)) {
    suite.groups.push_back(group(
        "one scalar, " + round, scored,
        [&](const Scored& s) { return gate(s) && s.row->round == round; }, scaled));
  }
  if (!runs_only) {
    suite.groups.push_back(group("models without a scalar", scored, median_row, models));
    suite.groups.push_back(group("hardware facts only", scored, median_row, facts));
    suite.groups.push_back(group(
        "one scalar, run by run", scored,
        [&](const Scored& s) { return held_out(s) && !s.is_median(); }, scaled));
  }
}

}  // namespace

std::map<std::string, EfficiencyTable> fit_dlrm_efficiencies(const std::vector<DlrmStepTime>& rows,
                                                             const config::Library& library) {
  std::vector<std::string> rejected(rows.size());
  const Rows scored = scored_rows(rows, library, rejected);
  std::map<std::string, EfficiencyTable> tables;
  for (const std::string& framework : frameworks_of(scored)) {
    tables.emplace(framework, Shown(scored, framework, library).without(""));
  }
  return tables;
}

Suite validate_dlrm(const std::vector<DlrmStepTime>& rows, const config::Library& library,
                    DlrmRegime regime) {
  Suite suite{.name = "dlrm"};
  std::vector<std::string> rejected(rows.size());
  const Rows scored = scored_rows(rows, library, rejected);
  std::size_t next = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rejected[i].empty()) {
      suite.rows.push_back({rows[i].id(), rows[i].seconds, 0, rejected[i]});
      continue;
    }
    const Scored& s = scored[next++];
    suite.rows.push_back(shown_row(s, regime));
    if (s.row == s.reference) {
      add_reference_notes(s, suite.notes);
    }
  }
  add_generations(scored, suite);
  add_printed(scored, library, suite);
  add_rounds(scored, std::ssize(rows) - std::ssize(scored), suite);
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
