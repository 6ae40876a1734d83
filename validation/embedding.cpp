#include "validation/embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <set>

#include "core/graph/op_codes.h"
#include "models/cost_model.h"
#include "models/fit/fit.h"
#include "models/measured/op_text.h"
#include "studies/fit/error_statistics.h"
#include "validation/scored_group.h"

namespace stepcast::validation {
namespace {

using runtime::calibration::EmbeddingCase;
using runtime::calibration::EmbeddingSample;

constexpr double kMedianBar = 0.06;
constexpr double kShareOfBaseline = 0.5;
constexpr std::size_t kForward = 0;
constexpr std::size_t kBackward = 1;

std::string name_of(const EmbeddingCase& c) {
  return fmt::format("rows {} dim {} pooling {} batch {} zipf {:g} tables {} {}", c.rows, c.dim,
                     c.pooling, c.batch, c.zipf, c.tables, stepcast::name_of(c.optimizer));
}

/// The two ops of a case, with the law of its tables or the uniform one.
Program program_of(const EmbeddingCase& c, bool uniform) {
  Program p;
  EmbeddingGroup group;
  group.optimizer = c.optimizer;
  EmbeddingShard shard;
  shard.rows = shard.table_rows = c.rows;
  shard.dim = c.dim;
  shard.bags = static_cast<double>(c.batch);
  shard.lookups = static_cast<double>(c.batch * c.pooling);
  shard.has_state = c.optimizer != OptimizerKind::kSgd;
  shard.access = std::make_shared<const Access>(
      uniform || c.zipf <= 0 ? Access::uniform(c.rows) : Access::zipf(c.rows, c.zipf));
  for (std::int64_t t = 0; t < c.tables; ++t) {
    shard.table = static_cast<std::int32_t>(t);
    group.shards.push_back(shard);
  }
  p.embeddings.push_back(std::move(group));
  const auto lookups = static_cast<double>(c.lookups());
  const auto dim = static_cast<double>(c.dim);
  const double pooled = 4 * dim * static_cast<double>(c.batch * c.tables);
  for (const OpKind kind : {OpKind::kEmbeddingForward, OpKind::kEmbeddingBackward}) {
    Op op;
    op.kind = kind;
    op.attributes = EmbeddingAttributes{.group = 0, .order = 1};
    op.shape = {c.lookups(), c.batch * c.tables, c.dim * c.tables};
    op.flops = Flops(lookups * dim);
    op.bytes_read = Bytes(lookups * (4 * dim + 8));
    op.bytes_written = Bytes(kind == OpKind::kEmbeddingForward ? pooled : 4 * lookups * dim);
    p.ops.push_back(op);
  }
  return p;
}

/// Programs of all samples; they stay where they are, measured ops point into them.
struct Table {
  std::deque<Program> programs;
  std::vector<std::size_t> sample;  ///< of each program
  Table(std::span<const EmbeddingSample> samples, bool uniform) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (!samples[i].unstable) {
        programs.push_back(program_of(samples[i].shape, uniform));
        sample.push_back(i);
      }
    }
  }
  [[nodiscard]] models::MeasuredOp op(std::span<const EmbeddingSample> samples, std::size_t i,
                                      std::size_t pass) const {
    const EmbeddingSample& s = samples[sample[i]];
    return {&programs[i], &programs[i].ops[pass], pass == kForward ? s.forward : s.backward,
            static_cast<std::int64_t>(sample[i])};
  }
};

/// A core: its rates are what the fit finds, its facts only start the search.
Device core_device(const ValidateEmbeddingOptions& options) {
  Device d;
  d.name = options.device;
  d.bandwidth = GBps(10);
  d.l2 = MB(1);
  d.launch = microseconds(1);
  d.multiprocessors = 1;
  return d;
}

using Value = std::function<double(const EmbeddingCase&)>;

/// Predictions of every sample by fits that have not seen its value; [pass][row of the table].
std::array<std::vector<double>, 2> held_out(std::span<const EmbeddingSample> samples,
                                            const Table& table, const Value& value,
                                            const Device& device, std::size_t max_points,
                                            double& in_range_share) {
  std::array<std::vector<double>, 2> predicted;
  std::size_t in_range = 0;
  std::set<double> values;
  for (const std::size_t s : table.sample) {
    values.insert(value(samples[s].shape));
  }
  for (const std::size_t pass : {kForward, kBackward}) {
    predicted[pass].resize(table.sample.size());
    for (const double left_out : values) {
      std::vector<models::MeasuredOp> kept;
      std::vector<std::size_t> held;
      for (std::size_t i = 0; i < table.sample.size(); ++i) {
        if (value(samples[table.sample[i]].shape) == left_out) {
          held.push_back(i);
        } else {
          kept.push_back(table.op(samples, i, pass));
        }
      }
      models::FitOptions fit;
      fit.folds = 1;
      fit.max_points = max_points;
      System system;
      system.device = device;
      system.device.fitted = models::fit_kernels(device, kept, fit);
      const models::CostModel model(system, {});
      for (const std::size_t i : held) {
        const models::MeasuredOp op = table.op(samples, i, pass);
        const models::Prediction p = model.kernel(*op.program, *op.op);
        predicted[pass][i] = p.time.base();
        in_range += p.in_range ? 1 : 0;
      }
    }
  }
  in_range_share = static_cast<double>(in_range) /
                   static_cast<double>(std::max<std::size_t>(1, 2 * table.sample.size()));
  return predicted;
}

std::vector<ValidationRow> rows_of(std::span<const EmbeddingSample> samples, const Table& table,
                                   const std::array<std::vector<double>, 2>& predicted,
                                   std::span<const std::size_t> passes) {
  std::vector<ValidationRow> rows;
  for (const std::size_t pass : passes) {
    for (std::size_t i = 0; i < table.sample.size(); ++i) {
      const models::MeasuredOp op = table.op(samples, i, pass);
      rows.push_back({fmt::format("{} {}", pass == kForward ? "forward" : "backward",
                                  name_of(samples[table.sample[i]].shape)),
                      op.time.base(), predicted[pass][i], std::nullopt});
    }
  }
  return rows;
}

}  // namespace

ValidationSuite validate_embedding(std::span<const EmbeddingSample> samples,
                                   const ValidateEmbeddingOptions& options) {
  ValidationSuite suite;
  suite.name = "embedding on this machine";
  suite.bound = "median <= 0.06 and at most half of that without the distribution";
  suite.pass = true;
  const Device device = core_device(options);
  const Table lawful(samples, false);
  const Table uniform(samples, true);
  const std::size_t skipped = samples.size() - lawful.sample.size();
  double noise = 0;
  for (const std::size_t s : lawful.sample) {
    noise += samples[s].spread / static_cast<double>(lawful.sample.size());
  }
  const std::vector<std::pair<std::string, Value>> splits{
      {"unseen exponent", [](const EmbeddingCase& c) { return c.zipf; }},
      {"unseen dim", [](const EmbeddingCase& c) { return static_cast<double>(c.dim); }}};
  const std::vector<std::pair<std::string, std::vector<std::size_t>>> parts{
      {"", {kForward, kBackward}}, {", forward", {kForward}}, {", backward", {kBackward}}};
  for (const auto& [split, value] : splits) {
    double in_range = 0;
    double unused = 0;
    const auto whole = held_out(samples, lawful, value, device, options.max_points, in_range);
    const auto form = held_out(samples, lawful, value, device, 0, unused);
    const auto blind = held_out(samples, uniform, value, device, options.max_points, unused);
    for (const auto& [part, passes] : parts) {
      const auto rows = rows_of(samples, lawful, whole, passes);
      const auto without = group_of("", rows_of(samples, uniform, blind, passes));
      ValidationGroup g = group_of(split + part, rows);
      g.baseline = "the same model without the distribution";
      g.baseline_mean = without.errors.mean;
      g.in_range_share = in_range;  // of both passes
      g.repeat_noise = noise;
      g.skipped = skipped;
      if (part.empty()) {
        g.bound = "median <= 6 %, <= half without the distribution";
        g.pass = g.errors.median <= kMedianBar &&
                 g.errors.median <= kShareOfBaseline * without.errors.median;
        suite.pass = suite.pass && g.pass;
        suite.rows.insert(suite.rows.end(), rows.begin(), rows.end());
      }
      suite.groups.push_back(g);
      ValidationGroup blind_group = without;
      blind_group.name = split + part + ", without the distribution";
      suite.groups.push_back(std::move(blind_group));
      suite.groups.push_back(
          group_of(split + part + ", form only", rows_of(samples, lawful, form, passes)));
    }
  }
  for (const EmbeddingSample& s : samples) {
    if (s.unstable) {
      suite.rows.push_back(
          {name_of(s.shape), s.forward.base(), 0,
           fmt::format("void: {} repeats, quartiles {:.0f} % apart", s.repeats, 200 * s.spread)});
    }
  }
  std::array<std::vector<double>, 2> moved;
  for (const std::size_t s : lawful.sample) {
    for (const std::size_t pass : {kForward, kBackward}) {
      moved[pass].push_back(std::abs(samples[s].moved[pass] - 1));
    }
  }
  if (!lawful.sample.empty()) {
    suite.notes.push_back(fmt::format(
        "between the rounds of the sweep the median forward moved by {:.1f} %, the median backward "
        "by {:.1f} %",
        100 * median_of(moved[kForward]), 100 * median_of(moved[kBackward])));
  }
  suite.notes.push_back(
      fmt::format("{} cases measured, {} void; every prediction comes from fits without its "
                  "exponent or dim",
                  samples.size(), skipped));
  return suite;
}

FittedModels fit_embedding(std::span<const EmbeddingSample> samples, const Device& device,
                           const ValidateEmbeddingOptions& options) {
  const Table table(samples, false);
  std::vector<models::MeasuredOp> rows;
  for (std::size_t i = 0; i < table.sample.size(); ++i) {
    rows.push_back(table.op(samples, i, kForward));
    rows.push_back(table.op(samples, i, kBackward));
  }
  models::FitOptions fit;
  fit.max_points = options.max_points;
  fit.source = "sweep of the runtime's embedding kernels";
  return models::fit_kernels(device, rows, fit);
}

std::string embedding_rows(std::span<const EmbeddingSample> samples) {
  std::string text =
      "configuration,kind,name,s0,s1,s2,s3,s4,s5,flops,bytes,seconds,samples,format,flags,variant,"
      "ranks,ranks_per_machine,operands,embedding\n";
  const Table table(samples, false);
  for (std::size_t i = 0; i < table.sample.size(); ++i) {
    for (const std::size_t pass : {kForward, kBackward}) {
      const models::MeasuredOp m = table.op(samples, i, pass);
      const Op& op = *m.op;
      text += fmt::format("embedding-{},{},,{},{:.9g},{:.9g},{:.6g},{},fp32,0,0,1,1,{},{}\n",
                          table.sample[i], stepcast::name_of(op.kind),
                          fmt::join(codes_of(op).sizes, ","), op.flops.base(),
                          (op.bytes_read + op.bytes_written).base(), m.time.base(),
                          samples[table.sample[i]].repeats, models::operands_text(*m.program, op),
                          models::embedding_text(*m.program, op));
    }
  }
  return text;
}

}  // namespace stepcast::validation
