#include "studies/validate_dlrm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "core/error.h"
#include "models/measured/names.h"
#include "studies/csv_table.h"
#include "studies/predict.h"
#include "workloads/embedding_plan_hugectr.h"

namespace stepcast::studies {
namespace {

constexpr double kBound = 0.10;
constexpr const char* kConstantRate = "constant samples/s";

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
    const auto count = [&](std::string_view column) {
      return static_cast<std::int64_t>(table.positive(column, row.unusable));
    };
    row.gpus = count("gpus");
    row.nodes = count("nodes");
    row.batch = count("global_batch");
    row.seconds =
        table.positive(per_run ? "median_step_ms" : "step_ms_median", row.unusable) * 1e-3;
    if (per_run) {
      const std::string run = table.text("run");
      std::from_chars(run.data(), run.data() + run.size(), row.run);
    } else if (row.seconds > 0) {
      row.spread = (table.positive("step_ms_max_run", row.unusable) -
                    table.positive("step_ms_min_run", row.unusable)) *
                   1e-3 / row.seconds;
    }
    rows.push_back(std::move(row));
  }
}

/// What is published of the stack of both rounds; the other submitters ran NVIDIA's container.
constexpr std::string_view kHugeCtr = R"({
  "parallel": {"dlrm_pipeline": "sparse_dist",
    "overlap": {"input_all_to_all": true, "output_all_to_all": true, "dense_all_reduce": true}},
  "formats": {"compute": "fp16", "gradient": "fp16", "embedding": "fp32",
    "all_to_all_forward": "fp16", "all_to_all_backward": "fp16"}})";

struct Benchmark {
  std::string_view name, workload, optimizer;
};
constexpr std::array kBenchmarks{
    Benchmark{"dlrm", "mlperf-dlrm-v1", "sgd"},
    Benchmark{"dlrm_dcnv2", "mlperf-dlrm-v2", "adagrad"},
};

struct Predicted {
  double facts = 0, models = 0;
  bool in_range = false;
  std::string parts;  ///< where the step predicted from the models goes
};

std::string parts_of(const StepPrediction& p) {
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

/// Rows of one system differ only in what was measured: each job is predicted once.
class Predictions {
 public:
  explicit Predictions(const config::Library& library) : library_(library) {}
  const Predicted& of(const DlrmStepTime& row) {
    const std::string key = fmt::format("{}|{}|{}|{}", row.benchmark, row.gpu, row.gpus, row.batch);
    if (const auto known = all_.find(key); known != all_.end()) {
      return known->second;
    }
    Job job = job_of(row, library_);
    const StepPrediction with_models = predict(job);
    job.calibration.kind = Calibration::Kind::kNone;
    const StepPrediction from_facts = predict(job);
    return all_
        .emplace(key, Predicted{from_facts.iteration.base(), with_models.iteration.base(),
                                with_models.in_calibrated_range, parts_of(with_models)})
        .first->second;
  }

 private:
  const config::Library& library_;
  std::map<std::string, Predicted> all_;
};

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

bool same_system(const DlrmStepTime& a, const DlrmStepTime& b) {
  return a.round == b.round && a.organisation == b.organisation && a.system == b.system;
}

/// A usable row under every regime.
struct Scored {
  const DlrmStepTime* row = nullptr;
  const DlrmStepTime* reference = nullptr;
  Predicted predicted;
  double scaled = 0;
  [[nodiscard]] bool is_reference() const { return same_system(*row, *reference); }
};

template <typename Wanted, typename Value>
ValidationGroup group(const std::string& name, const std::vector<Scored>& all, Wanted wanted,
                      Value value) {
  std::vector<ValidationRow> rows;
  double in_range = 0;
  double spread = 0;
  double naive = 0;
  for (const Scored& s : all) {
    if (wanted(s)) {
      rows.push_back({s.row->id(), s.row->seconds, value(s), {}});
      in_range += s.predicted.in_range ? 1 : 0;
      spread += s.row->spread;
      const double rate = static_cast<double>(s.row->batch) /
                          static_cast<double>(s.reference->batch) * s.reference->seconds;
      naive += std::abs(rate / s.row->seconds - 1);
    }
  }
  ValidationGroup g = group_of(name, rows);
  const double n = std::max<double>(1, static_cast<double>(rows.size()));
  g.in_range_share = in_range / n;
  g.baseline = kConstantRate;
  g.baseline_mean = naive / n;
  if (spread > 0) {
    g.repeat_noise = spread / n;
  }
  return g;
}

}  // namespace

std::string DlrmStepTime::id() const {
  const std::string name =
      fmt::format("{} {} {} x{} batch {}", round, organisation, system, gpus, batch);
  return run < 0 ? name : fmt::format("{} run {}", name, run);
}

std::vector<DlrmStepTime> read_dlrm_step_times(const std::filesystem::path& path) {
  std::vector<DlrmStepTime> rows;
  if (std::filesystem::is_directory(path)) {
    read_file(path / "mlperf_step_times.csv", rows);
    if (const auto runs = path / "mlperf_step_times_per_run.csv"; std::filesystem::exists(runs)) {
      read_file(runs, rows);
    }
  } else {
    read_file(path, rows);
  }
  if (rows.empty()) {
    throw InputError(path.string(), "has no rows; expected those of data/dlrm");
  }
  return rows;
}

Job job_of(const DlrmStepTime& row, const config::Library& library) {
  const auto benchmark = std::find_if(kBenchmarks.begin(), kBenchmarks.end(),
                                      [&](const Benchmark& b) { return b.name == row.benchmark; });
  if (benchmark == kBenchmarks.end()) {
    throw InputError(row.place, fmt::format("benchmark: found '{}', expected dlrm or dlrm_dcnv2",
                                            row.benchmark));
  }
  const auto device = models::device_named(row.gpu);
  if (!device || device->system.empty()) {
    throw InputError(row.place, fmt::format("gpu: '{}' stands for no system of the zoo", row.gpu));
  }
  Job job = config::load_job(
      config::text_source(std::string(kHugeCtr), "stack hugectr"),
      {fmt::format("workload={}", benchmark->workload), fmt::format("system={}", device->system),
       fmt::format("devices={}", row.gpus), fmt::format("batch.global={}", row.batch),
       fmt::format("optimizer={}", benchmark->optimizer)},
      library);
  job.embedding_plan = workloads::hugectr_plan(job);
  return job;
}

ValidationSuite validate_dlrm(const std::vector<DlrmStepTime>& rows, const config::Library& library,
                              DlrmRegime regime) {
  ValidationSuite suite;
  suite.name = "dlrm";
  suite.bound = "one scalar per round: mean <= 0.10";
  const auto references = reference_rows(rows);
  Predictions predictions(library);
  std::vector<Scored> scored;
  for (const DlrmStepTime& row : rows) {
    ValidationRow shown{row.id(), row.seconds, 0, {}};
    if (!row.unusable.empty()) {
      shown.skipped = fmt::format("{}: {}", row.place, row.unusable);
    } else {
      try {
        Scored s{&row, references.at(row.round), predictions.of(row), 0};
        const double scale = s.reference->seconds / predictions.of(*s.reference).models;
        s.scaled = s.predicted.models * scale;
        shown.predicted = regime == DlrmRegime::kFacts    ? s.predicted.facts
                          : regime == DlrmRegime::kModels ? s.predicted.models
                                                          : s.scaled;
        if (regime == DlrmRegime::kOneRow && s.is_reference()) {
          shown.skipped = fmt::format("{} the scalar of {}, x{:.4g}",
                                      &row == s.reference ? "gives" : "of the system that gives",
                                      row.round, scale);
        }
        if (&row == s.reference) {
          suite.notes.push_back(fmt::format("scalar of {} from {}: x{:.4g}", row.round,
                                            row.organisation + " " + row.system, scale));
          suite.notes.push_back(fmt::format("  without it {:.2f} ms: {}", s.predicted.models * 1e3,
                                            s.predicted.parts));
        }
        scored.push_back(std::move(s));
      } catch (const InputError& e) {
        shown.skipped = e.what();
      }
    }
    suite.rows.push_back(std::move(shown));
  }
  const auto facts = [](const Scored& s) { return s.predicted.facts; };
  const auto models = [](const Scored& s) { return s.predicted.models; };
  const auto scaled = [](const Scored& s) { return s.scaled; };
  const auto median = [](const Scored& s) { return s.row->run < 0; };
  const auto held_out = [](const Scored& s) { return !s.is_reference(); };
  const bool runs_only = std::none_of(scored.begin(), scored.end(), median);
  const auto gate = [&](const Scored& s) { return held_out(s) && (runs_only || median(s)); };
  suite.groups.push_back(group("one scalar per round", scored, gate, scaled));
  suite.groups.front().skipped = rows.size() - scored.size();
  suite.pass = suite.groups.front().errors.n > 0 && suite.groups.front().errors.mean <= kBound;
  for (const auto& [round, reference] : references) {
    suite.groups.push_back(group(
        "one scalar, " + round, scored,
        [&gate, &name = round](const Scored& s) { return gate(s) && s.row->round == name; },
        scaled));
  }
  if (!runs_only) {
    suite.groups.push_back(group("models without a scalar", scored, median, models));
    suite.groups.push_back(group("hardware facts only", scored, median, facts));
    suite.groups.push_back(group(
        "one scalar, run by run", scored,
        [&](const Scored& s) { return held_out(s) && !median(s); }, scaled));
  }
  std::erase_if(suite.groups, [](const ValidationGroup& g) { return g.errors.n == 0; });
  return suite;
}

}  // namespace stepcast::studies
