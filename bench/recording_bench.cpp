// Cost of recording: bench_recording [seconds per model].
//
// One rank really trains; each round runs three short blocks of steps in random order: recorded,
// not recorded, not recorded again. The overhead of a round is the ratio of its block medians, the
// overhead printed is the median over rounds, with a 95 % bootstrap interval over rounds. The
// second unrecorded block is the control: its "overhead" is zero but for the machine's noise, and
// is printed beside. Exits with 1 when the interval lies above 2 % as a whole.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>
#include <vector>

#include "core/config/config.h"
#include "profiler/host/host_recorder.h"
#include "runtime/cpu/executor.h"
#include "runtime/data/batch_source.h"
#include "runtime/futex.h"
#include "runtime/launch.h"
#include "workloads/build_graph.h"

namespace {

using namespace stepcast;

constexpr double kBar = 0.02;
constexpr std::int64_t kBlock = 4;  // steps

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const std::size_t n = v.size();
  return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

struct Estimate {
  double value = 0, low = 0, high = 0;
};

/// The median of independent rounds and its 95 % percentile-bootstrap interval.
Estimate estimate(const std::vector<double>& rounds) {
  std::mt19937_64 random(1);
  std::vector<double> medians, drawn(rounds.size());
  for (int i = 0; i < 4000; ++i) {
    for (double& d : drawn) {
      d = rounds[random() % rounds.size()];
    }
    medians.push_back(median(drawn));
  }
  std::sort(medians.begin(), medians.end());
  return {median(rounds), medians[100], medians[3899]};
}

/// One rank with its data; a recorder listens only to the steps it is told about.
class Trained {
 public:
  Trained(const ExecutionGraph& graph, Observer& recorder)
      : source_(runtime::make_batch_source(graph.inputs, graph.mesh, 0, 0)),
        executor_(graph, 0, std::vector<runtime::Collectives*>(graph.communicators.size()),
                  options(), &recorder) {}

  /// Median seconds of a block of steps.
  double block(bool recorded) {
    std::vector<double> seconds;
    for (std::int64_t i = 0; i < kBlock; ++i) {
      source_->draw(step_, batch_);
      const std::int64_t begin = runtime::steady_ns();
      executor_.run_step(step_, batch_, recorded ? observed_ : -1);
      seconds.push_back(static_cast<double>(runtime::steady_ns() - begin) * 1e-9);
      ++step_;
      observed_ += recorded ? 1 : 0;
    }
    return median(seconds);
  }

 private:
  static runtime::cpu::ExecutorOptions options() {
    runtime::cpu::ExecutorOptions o;
    o.core = runtime::nth_core(0);
    o.epoch_ns = runtime::steady_ns();
    return o;
  }

  std::unique_ptr<runtime::BatchSource> source_;
  runtime::cpu::Executor executor_;
  runtime::HostBatch batch_;
  std::int64_t step_ = 0;
  std::int32_t observed_ = 0;
};

/// Whether the bar may hold: false only when the whole interval lies above it.
bool measure(const std::string& name, const std::vector<std::string>& overrides, double seconds) {
  const std::string root = STEPCAST_SOURCE_DIR;
  const Job job = config::load_job(config::file_source(root + "/docs/examples/" + name + ".json"),
                                   overrides, {root});
  const ExecutionGraph graph = workloads::build_graph(job);

  // How many rounds fit, from a few unrecorded steps.
  profiler::HostRecorder none(0, graph.program_of(0), 0);
  Trained pilot(graph, none);
  pilot.block(false);
  const double step = pilot.block(false);
  const auto rounds = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(seconds / (3 * static_cast<double>(kBlock) * step)), 20, 2000);

  profiler::HostRecorder recorder(0, graph.program_of(0),
                                  static_cast<std::int32_t>(rounds * kBlock));
  Trained trained(graph, recorder);
  trained.block(false);
  std::mt19937_64 random(2);
  std::vector<double> overheads, controls, plain;
  for (std::int64_t round = 0; round < rounds; ++round) {
    std::array<int, 3> order{0, 1, 2};
    std::shuffle(order.begin(), order.end(), random);
    std::array<double, 3> t{};
    for (const int which : order) {
      t[static_cast<std::size_t>(which)] = trained.block(which == 0);
    }
    overheads.push_back(t[0] / t[1] - 1);
    controls.push_back(t[2] / t[1] - 1);
    plain.push_back(t[1]);
  }
  const traces::RankTrace trace = recorder.finish();
  const Estimate overhead = estimate(overheads);
  const Estimate control = estimate(controls);
  const char* verdict = overhead.high < kBar  ? "under 2 %"
                        : overhead.low > kBar ? "ABOVE 2 %"
                                              : "undecided, the machine is too noisy";
  fmt::print(
      "{:<12} {:8.3f} ms per step, {} records in {} recorded steps, {} dropped\n"
      "  recording  {:+6.2f} %  [{:+.2f}, {:+.2f}]  {}\n"
      "  control    {:+6.2f} %  [{:+.2f}, {:+.2f}]\n",
      name, median(plain) * 1e3, trace.ops.size() + trace.host.size(), rounds * kBlock,
      trace.dropped, overhead.value * 100, overhead.low * 100, overhead.high * 100, verdict,
      control.value * 100, control.low * 100, control.high * 100);
  return overhead.low <= kBar && trace.dropped == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 20;
  fmt::print("overhead of recording on one rank's step, 95 % intervals over interleaved rounds\n");
  const std::vector<std::string> one{"system=dgx-h100", "devices=1", "formats.compute=fp32"};
  std::vector<std::string> dlrm = one;
  dlrm.push_back("batch.global=256");  // short steps: the hardest case for a recorder
  std::vector<std::string> transformer = one;
  transformer.push_back("parallel.tensor=1");
  transformer.push_back("batch.sequence=64");
  const bool first = measure("dlrm", dlrm, seconds);
  const bool second = measure("transformer", transformer, seconds);
  return first && second ? 0 : 1;
}
