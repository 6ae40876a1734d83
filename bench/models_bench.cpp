// Cost of asking the models. The bars: 5 M op predictions per second on one core from a memo, and a
// fit over 29,000 measured products under 30 s on two cores.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "core/config/config.h"
#include "models/cost_model.h"
#include "models/fit/fit.h"
#include "models/kernels/kernel_memo.h"
#include "models/measured/measured_table.h"
#include "tests/measured_tables.h"

namespace {

using namespace stepcast;
using namespace stepcast::models;

System h100() { return config::load_system("dgx-h100", config::Library{STEPCAST_SOURCE_DIR}); }

/// Shapes of a search over layers and batches: `count` distinct products.
std::vector<Op> products(std::int64_t count) {
  std::vector<Op> ops;
  for (std::int64_t i = 0; i < count; ++i) {
    Op op;
    op.kind = OpKind::kGemm;
    op.format = Format::kBf16;
    op.shape = {1 + i % 64 * 64, 1024 + i / 64 * 128, 4096, 1, 0, 0};
    fill_work(op);
    ops.push_back(op);
  }
  return ops;
}

void from_memo(benchmark::State& state) {
  const CostModel cost(h100(), {});
  KernelMemo memo(cost);
  const Program program;
  const std::vector<Op> ops = products(state.range(0));
  for (const Op& op : ops) {
    benchmark::DoNotOptimize(memo.kernel(program, op));
  }
  std::int64_t asked = 0;
  for (auto _ : state) {
    for (const Op& op : ops) {
      benchmark::DoNotOptimize(memo.kernel(program, op));
    }
    asked += static_cast<std::int64_t>(ops.size());
  }
  state.SetItemsProcessed(asked);
  state.counters["shapes"] = static_cast<double>(memo.shapes());
  state.counters["predictions"] = static_cast<double>(asked);
}

void first_time(benchmark::State& state) {
  const CostModel cost(h100(), {});
  const Program program;
  const std::vector<Op> ops = products(1024);
  std::int64_t asked = 0;
  for (auto _ : state) {
    for (const Op& op : ops) {
      benchmark::DoNotOptimize(cost.kernel(program, op));
    }
    asked += static_cast<std::int64_t>(ops.size());
  }
  state.SetItemsProcessed(asked);
}

void fit_products(benchmark::State& state) {
  const std::filesystem::path file = stepcast::measurements::measured_tables(
      "kernels/gemm/gemm__h100_sxm__trtllm_1.3.0rc20.csv.gz");
  if (!std::filesystem::exists(file)) {
    state.SkipWithError("no converted products; ctest converts them");
    return;
  }
  const MeasuredTable table = read_measured(file);
  std::vector<std::uint32_t> rows;
  for (std::uint32_t i = 0; i < table.ops.size(); ++i) {
    if (table.op(table.ops[i]).format == Format::kBf16) {
      rows.push_back(i);
    }
  }
  FitOptions options;
  options.folds = 5;
  options.max_points = 400;
  const Device device = h100().device;
  for (auto _ : state) {
    benchmark::DoNotOptimize(fit_kernels(device, measured_ops(table, rows), options));
  }
  state.counters["rows"] = static_cast<double>(rows.size());
}

}  // namespace

BENCHMARK(from_memo)->Arg(64)->Arg(4096);
BENCHMARK(first_time);
BENCHMARK(fit_products)->Unit(benchmark::kSecond)->Iterations(1);
BENCHMARK_MAIN();
