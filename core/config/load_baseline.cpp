#include <fmt/format.h>

#include "core/config/baseline.h"
#include "core/config/internal/loaders.h"
#include "core/graph/op.h"

namespace stepcast::config {
namespace {

constexpr double kLargestTimeSeconds = 1e9;
constexpr double kLargestNumber = 1e18;

std::vector<double> numbers_from(const Value& v, std::size_t count) {
  std::vector<double> numbers;
  for (const Value& item : v.items("a list of seconds, one per run", 1)) {
    numbers.push_back(item.number(0, kLargestTimeSeconds));
  }
  if (numbers.size() != count) {
    v.reject(fmt::format("found {} values; expected one per run, {}", numbers.size(), count));
  }
  return numbers;
}

BaselineTimes times_from(const Value& v, std::size_t runs) {
  return {numbers_from(v.at("median_s", "medians by run"), runs),
          numbers_from(v.at("standard_error_s", "standard errors by run"), runs)};
}

BaselineTimes total_from(const Value& root, std::string_view key, std::size_t runs) {
  const Value v = root.at(key, "an object with median_s and standard_error_s");
  v.keys({"median_s", "standard_error_s"});
  return times_from(v, runs);
}

BaselineRange range_from(const Value& v) {
  const auto ends = v.items("[least, most] over all steps", 2);
  if (ends.size() != 2) {
    v.fail("[least, most] over all steps");
  }
  const BaselineRange range{ends[0].number(0, kLargestNumber), ends[1].number(0, kLargestNumber)};
  if (range.high < range.low) {
    v.fail("[least, most] in this order");
  }
  return range;
}

BaselineOp op_from(const Value& v, std::size_t runs) {
  v.keys({"name", "kind", "kernel", "phase", "small", "launches", "bytes", "median_s",
          "standard_error_s"});
  BaselineOp op;
  op.name = v.at("name", "the op's name").text("the op's name");
  const Value kind = v.at("kind", "an op kind"), phase = v.at("phase", "a phase");
  const auto k = op_kind_named(kind.text("an op kind, such as \"gemm\""));
  const auto p = phase_named(phase.text("a phase, such as \"forward\""));
  if (!k) {
    kind.fail("an op kind, such as \"gemm\"");
  }
  if (!p) {
    phase.fail("a phase, such as \"forward\"");
  }
  op.kind = *k;
  op.phase = *p;
  op.kernel = kernel_kind_of(op.kind);
  if (const auto kernel = v.find("kernel")) {
    const auto said = kernel_kind_named(kernel->text("a kernel kind, such as \"norm\""));
    if (!said) {
      kernel->fail("a kernel kind, such as \"norm\"");
    }
    op.kernel = *said;
  }
  op.small = v.at("small", "true or false").boolean();
  op.launches = range_from(v.at("launches", "[least, most]"));
  op.bytes = range_from(v.at("bytes", "[least, most]"));
  op.time = times_from(v, runs);
  return op;
}

OrderedJson times_json(const BaselineTimes& times) {
  return {{"median_s", times.median}, {"standard_error_s", times.standard_error}};
}

}  // namespace

Baseline read_baseline(const Source& source) {
  const Document document = parse_document(source);
  const Value v = Value::root_of(document);
  v.keys({"stepcast", "kind", "version", "ranks", "steps", "blocks", "ops", "step", "host",
          "exposed_communication", "small_ops", "step_mean", "step_p95"});
  (void)v.at("stepcast", "the format, 1").integer(1, 1);
  const Value kind = v.at("kind", "\"baseline\"");
  if (!kind.is("baseline")) {
    kind.fail("\"baseline\", as `stepcast replay --update-baseline` writes it");
  }
  Baseline b;
  b.version = v.at("version", "the tool's version").text("the tool's version");
  b.ranks = v.at("ranks", "number of ranks").integer(1, 1 << 24);
  for (const Value& s : v.at("steps", "steps by run").items("steps by run", 1)) {
    b.steps.push_back(s.integer(1, std::int64_t{1} << 40));
  }
  b.blocks = v.at("blocks", "true or false").boolean();
  for (const Value& op : v.at("ops", "a list of ops").items("a list of ops")) {
    b.ops.push_back(op_from(op, b.steps.size()));
  }
  b.step = total_from(v, "step", b.steps.size());
  b.host = total_from(v, "host", b.steps.size());
  b.exposed = total_from(v, "exposed_communication", b.steps.size());
  b.small_ops = total_from(v, "small_ops", b.steps.size());
  if (v.find("step_mean")) {
    b.step_mean = total_from(v, "step_mean", b.steps.size());
    b.step_p95 = total_from(v, "step_p95", b.steps.size());
  }
  return b;
}

std::string baseline_to_json(const Baseline& b) {
  OrderedJson j = {
      {"stepcast", 1},    {"kind", "baseline"}, {"version", b.version},       {"ranks", b.ranks},
      {"steps", b.steps}, {"blocks", b.blocks}, {"ops", OrderedJson::array()}};
  for (const BaselineOp& op : b.ops) {
    OrderedJson row = {{"name", op.name},
                       {"kind", name_of(op.kind)},
                       {"kernel", name_of(op.kernel)},
                       {"phase", name_of(op.phase)},
                       {"small", op.small},
                       {"launches", {op.launches.low, op.launches.high}},
                       {"bytes", {op.bytes.low, op.bytes.high}}};
    row.update(times_json(op.time));
    j["ops"].push_back(std::move(row));
  }
  j["step"] = times_json(b.step);
  j["host"] = times_json(b.host);
  j["exposed_communication"] = times_json(b.exposed);
  j["small_ops"] = times_json(b.small_ops);
  if (!b.step_mean.median.empty()) {
    j["step_mean"] = times_json(b.step_mean);
    j["step_p95"] = times_json(b.step_p95);
  }
  return pretty(j, 2);
}

}  // namespace stepcast::config
