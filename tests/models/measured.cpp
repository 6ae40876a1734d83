#include "tests/models/measured.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <sstream>

#include "models/cost_model.h"

namespace stepcast::models::test {

std::optional<std::vector<Record>> read_csv(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) {
    return std::nullopt;
  }
  const auto split = [](const std::string& line) {
    std::vector<std::string> fields;
    std::istringstream in(line);
    for (std::string field; std::getline(in, field, ',');) {
      fields.push_back(field);
    }
    return fields;
  };
  std::array<char, 4096> buffer{};
  std::vector<std::string> names;
  std::vector<Record> records;
  while (gzgets(file, buffer.data(), static_cast<int>(buffer.size())) != nullptr) {
    std::string line(buffer.data());
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) {
      line.pop_back();
    }
    const std::vector<std::string> fields = split(line);
    if (names.empty()) {
      names = fields;
      continue;
    }
    Record record;
    for (std::size_t i = 0; i < names.size() && i < fields.size(); ++i) {
      record[names[i]] = fields[i];
    }
    records.push_back(std::move(record));
  }
  gzclose(file);
  return records;
}

void MeasuredSet::add(Op op, Seconds time, std::int64_t configuration) {
  fill_work(op);
  program.ops.push_back(op);
  times.push_back(time);
  configurations.push_back(configuration);
}

std::vector<MeasuredOp> MeasuredSet::rows(std::size_t first, std::size_t stride) const {
  std::vector<MeasuredOp> out;
  for (std::size_t i = first; i < times.size(); i += stride) {
    out.push_back({&program, &program.ops[i], times[i], configurations[i]});
  }
  return out;
}

Device h100() {
  Device d;
  d.name = "h100-sxm-80gb";
  d.memory = GB(80);
  d.bandwidth = GBps(3350);
  d.l2 = MB(50);
  d.multiprocessors = 132;
  d.launch = microseconds(2);
  d.peak = {{Format::kFp32, teraflops(67)},
            {Format::kBf16, teraflops(989)},
            {Format::kFp8, teraflops(1979)}};
  return d;
}

Device a100() {
  Device d;
  d.name = "a100-sxm-80gb";
  d.memory = GB(80);
  d.bandwidth = GBps(2039);
  d.l2 = MB(40);
  d.multiprocessors = 108;
  d.launch = microseconds(2);
  d.peak = {{Format::kFp32, teraflops(19.5)}, {Format::kBf16, teraflops(312)}};
  return d;
}

FitError score(const Device& device, const FittedModels& fitted,
               const std::vector<MeasuredOp>& rows) {
  System system;
  system.device = device;
  system.device.fitted = fitted;
  const CostModel cost(system, {});
  std::vector<double> predicted;
  std::vector<double> measured;
  for (const MeasuredOp& row : rows) {
    predicted.push_back(cost.kernel(*row.program, *row.op).time.base());
    measured.push_back(row.time.base());
  }
  return error_of(predicted, measured);
}

void print_constants(const FittedModels& models) {
  for (const auto& [key, model] : models) {
    fmt::print("    {} ({}):", key, model.form);
    for (const auto& [name, value] : model.constants) {
      fmt::print(" {}={:.4g}", name, value);
    }
    fmt::print("\n");
  }
}

void print_error(const std::string& what, const FitError& e) {
  fmt::print("  {:<52} median {:5.1f}  mean {:5.1f}  p90 {:5.1f}  worst {:6.1f}  bias {:+5.1f} %\n",
             what, 100 * e.median, 100 * e.mean, 100 * e.p90, 100 * e.worst, 100 * e.bias);
}

}  // namespace stepcast::models::test
