#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>

#include "core/error.h"
#include "core/statistics.h"
#include "runtime/calibration/cuda/arena.h"
#include "runtime/calibration/cuda/case_body.h"
#include "runtime/calibration/device_sweep.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/device_memory.h"
#include "runtime/cuda/kernels/elementwise.h"

namespace stepcast::runtime::calibration {
namespace {

using cuda::check;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Stream {
  cudaStream_t stream = nullptr;
  Stream() { check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { cuda::let_go(cudaStreamDestroy(stream)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void wait() const { check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }
};

struct Event {
  cudaEvent_t event = nullptr;
  Event() { check(cudaEventCreate(&event), "cudaEventCreate"); }
  ~Event() { cuda::let_go(cudaEventDestroy(event)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
};

/// Times runs of a body on the device, between events.
class Timer {
 public:
  static constexpr std::int64_t kMost = 50;
  static constexpr std::int64_t kLeast = 7;

  /// `flushed`: bytes written before every cold run, more than any cache holds, and then read, so
  /// that no cold run writes them back. Before a warm one some are copied from the host, so that
  /// the device is busy while the host launches what is timed: else small work would take as long
  /// as its launches.
  Timer(const Stream& stream, std::size_t flushed)
      : stream_(stream),
        flushed_(flushed),
        written_(cuda::Buffer::Kind::kDevice, "flush buffer"),
        copied_(cuda::Buffer::Kind::kPinned, "flush buffer"),
        sums_(cuda::Buffer::Kind::kDevice, "flush buffer"),
        partial_(cuda::Buffer::Kind::kDevice, "flush buffer") {
    written_.reserve(flushed_);
    copied_.reserve(std::min(kCopied, flushed_ / 16));
    read_ = {written_.data(), Format::kFp32,
             static_cast<std::int64_t>(flushed_ / sizeof(float)) / kReadColumns, kReadColumns};
    sums_.reserve(kReadColumns * sizeof(float));
    partial_.reserve(cuda::kernels::column_sums_workspace(read_.rows, read_.columns));
    empty_ = Seconds{};
    const std::vector<double> nothing = run([](std::int64_t, cudaStream_t) {}, false, 0.01);
    empty_ = Seconds(quantile_of(nothing, 0.5));
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /// From one event to the next with nothing between them.
  [[nodiscard]] Seconds empty() const { return empty_; }

  /// Sorted times in seconds, without that of two events alone: three warm-ups, then 7 to 50 runs,
  /// about `target` seconds of them.
  std::vector<double> run(const CaseBody& body, bool cold, double target) {
    for (std::int64_t i = 0; i < 3; ++i) {
      body(i, stream_.stream);
    }
    stream_.wait();
    const auto begin = Clock::now();
    body(0, stream_.stream);
    stream_.wait();
    const double one = std::max(since(begin), 1e-6);
    const std::int64_t n =
        std::clamp<std::int64_t>(static_cast<std::int64_t>(target / one), kLeast, kMost);
    for (std::int64_t i = 0; i < n; ++i) {
      if (cold) {
        check(cudaMemsetAsync(written_.data(), static_cast<int>(i), flushed_, stream_.stream),
              "cudaMemsetAsync");
        cuda::kernels::add_column_sums(read_, {sums_.data(), Format::kFp32},
                                       {partial_.data(), partial_.bytes()}, stream_.stream);
      } else {
        check(cudaMemcpyAsync(written_.data(), copied_.data(), copied_.bytes(),
                              cudaMemcpyHostToDevice, stream_.stream),
              "cudaMemcpyAsync");
        // An event behind a copy may be the copy engine's, and the change of engines be timed, too.
        cuda::kernels::fill({sums_.data(), Format::kFp32, 1, 1}, 0, stream_.stream);
      }
      check(cudaEventRecord(begins_[static_cast<std::size_t>(i)].event, stream_.stream),
            "cudaEventRecord");
      body(i, stream_.stream);
      check(cudaEventRecord(ends_[static_cast<std::size_t>(i)].event, stream_.stream),
            "cudaEventRecord");
    }
    stream_.wait();
    std::vector<double> times;
    for (std::int64_t i = 0; i < n; ++i) {
      float ms = 0;
      check(cudaEventElapsedTime(&ms, begins_[static_cast<std::size_t>(i)].event,
                                 ends_[static_cast<std::size_t>(i)].event),
            "cudaEventElapsedTime");
      constexpr double kTick = 1e-9;  // a time is not 0
      times.push_back(std::max(kTick, static_cast<double>(ms) * 1e-3 - empty_.base()));
    }
    std::sort(times.begin(), times.end());
    return times;
  }

 private:
  /// Some 40 us over PCIe 5, more over older ones, and little of any cache.
  static constexpr std::size_t kCopied = std::size_t{2} << 20;

  const Stream& stream_;
  std::size_t flushed_;
  static constexpr std::int64_t kReadColumns = 1024;
  cuda::Buffer written_, copied_, sums_, partial_;
  cuda::kernels::ConstMatrixView read_;
  Seconds empty_;
  std::array<Event, kMost> begins_, ends_;
};

cudaDeviceProp properties() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    throw EnvironmentError(fmt::format("no GPU to calibrate: {}", code != cudaSuccess
                                                                      ? cudaGetErrorString(code)
                                                                      : "the driver lists none"));
  }
  check(cudaSetDevice(0), "cudaSetDevice");
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, 0), "cudaGetDeviceProperties");
  return p;
}

void measure_launches(DeviceFacts& facts, const Stream& stream, Arena& arena) {
  constexpr int kBatch = 500;
  arena.reset();
  const cuda::kernels::MatrixView one = arena.matrix(Format::kFp32, 1, 1);
  const auto tiny = [&] { cuda::kernels::fill(one, 1.0F, stream.stream); };
  for (int i = 0; i < 2 * kBatch; ++i) {
    tiny();
  }
  stream.wait();
  const Event first;
  const Event last;
  for (int batch = 0; batch < 20; ++batch) {
    // Behind work that takes longer than launching: what the device does, not what the host does.
    check(cudaMemsetAsync(arena.at_front(), 0, arena.bytes(), stream.stream), "cudaMemsetAsync");
    check(cudaEventRecord(first.event, stream.stream), "cudaEventRecord");
    const auto begin = Clock::now();
    for (int i = 0; i < kBatch; ++i) {
      tiny();
    }
    facts.launch.push_back(since(begin) / kBatch);
    check(cudaEventRecord(last.event, stream.stream), "cudaEventRecord");
    stream.wait();
    float ms = 0;
    check(cudaEventElapsedTime(&ms, first.event, last.event), "cudaEventElapsedTime");
    facts.kernel_gap.push_back(static_cast<double>(ms) * 1e-3 / kBatch);
  }
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamBeginCapture(stream.stream, cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
  for (int i = 0; i < kBatch; ++i) {
    tiny();
  }
  check(cudaStreamEndCapture(stream.stream, &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  std::vector<double> times;
  for (int i = 0; i < 12; ++i) {
    const auto begin = Clock::now();
    check(cudaGraphLaunch(executable, stream.stream), "cudaGraphLaunch");
    stream.wait();
    times.push_back(since(begin) / kBatch);
  }
  std::sort(times.begin(), times.end());
  facts.graph_node = Seconds(quantile_of(times, 0.5));
  check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

void measure_copies(DeviceFacts& facts, const Stream& stream, Timer& timer, Arena& arena) {
  const std::size_t largest = std::min(std::size_t{256} << 20, arena.bytes() / 4);
  void* host = nullptr;
  check(cudaMallocHost(&host, largest), "cudaMallocHost");
  const std::unique_ptr<void, void (*)(void*)> release(
      host, [](void* p) { cuda::let_go(cudaFreeHost(p)); });
  arena.reset();
  void* a = arena.take(largest);
  void* b = arena.take(largest);
  for (std::size_t bytes = 4096; bytes <= largest; bytes *= 4) {
    const auto add = [&](const char* path, void* to, const void* from, cudaMemcpyKind kind) {
      const CaseBody body = [=](std::int64_t, cudaStream_t s) {
        check(cudaMemcpyAsync(to, from, bytes, kind, s), "cudaMemcpyAsync");
      };
      facts.transfers.push_back({path, static_cast<double>(bytes),
                                 Seconds(quantile_of(timer.run(body, false, 0.05), 0.5))});
    };
    add("host_to_device", a, host, cudaMemcpyHostToDevice);
    add("device_to_host", host, a, cudaMemcpyDeviceToHost);
    add("device_to_device", b, a, cudaMemcpyDeviceToDevice);
  }
  facts.copy =
      BytesPerSecond(2 * facts.transfers.back().bytes / facts.transfers.back().median.base());
  stream.wait();
}

/// Measures what NCCL does on one device: an all-reduce of one rank is a copy, a grouped send to
/// oneself a kernel.
void measure_nccl(DeviceFacts& facts, const Stream& stream, Timer& timer, Arena& arena) {
  ncclComm_t comm = nullptr;
  const int device = 0;
  check(ncclCommInitAll(&comm, 1, &device), "ncclCommInitAll");
  const std::unique_ptr<ncclComm, void (*)(ncclComm_t)> release(
      comm, [](ncclComm_t c) { cuda::let_go(ncclCommDestroy(c)); });
  const std::size_t largest = std::min(std::size_t{64} << 20, arena.bytes() / 4);
  arena.reset();
  void* a = arena.take(largest);
  void* b = arena.take(largest);
  for (std::size_t bytes = 4096; bytes <= largest; bytes *= 4) {
    const std::size_t n = bytes / sizeof(float);
    const CaseBody reduce = [=](std::int64_t, cudaStream_t s) {
      check(ncclAllReduce(a, b, n, ncclFloat, ncclSum, comm, s), "ncclAllReduce");
    };
    const CaseBody exchange = [=](std::int64_t, cudaStream_t s) {
      check(ncclGroupStart(), "ncclGroupStart");
      check(ncclSend(a, n, ncclFloat, 0, comm, s), "ncclSend");
      check(ncclRecv(b, n, ncclFloat, 0, comm, s), "ncclRecv");
      check(ncclGroupEnd(), "ncclGroupEnd");
    };
    const auto add = [&](const char* path, const CaseBody& body) {
      facts.transfers.push_back({path, static_cast<double>(bytes),
                                 Seconds(quantile_of(timer.run(body, false, 0.05), 0.5))});
    };
    add("all_reduce_one_rank", reduce);
    add("send_to_self", exchange);
  }
  stream.wait();
}

/// Whether the device still takes work. After some errors, such as an access outside its memory,
/// the process has to end.
bool usable(const Stream& stream) {
  static_cast<void>(cudaGetLastError());  // of the call that failed, else the next check finds it
  return cudaStreamSynchronize(stream.stream) == cudaSuccess &&
         cudaDeviceSynchronize() == cudaSuccess;
}

std::string versions() {
  int driver = 0;
  int runtime = 0;
  int nccl = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  check(ncclGetVersion(&nccl), "ncclGetVersion");
  return fmt::format("driver for CUDA {}.{}, runtime {}.{}, cuBLASLt {}, NCCL {}", driver / 1000,
                     driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10, cublasLtGetVersion(),
                     nccl);
}

/// Runs the cases of a sweep.
class Cases {
 public:
  Cases(const SweepOptions& options, Clock::time_point begin, const Stream& stream, Timer& timer,
        Arena& arena, DeviceSweep& sweep)
      : options_(options),
        begin_(begin),
        stream_(stream),
        timer_(timer),
        arena_(arena),
        sweep_(sweep),
        cases_(device_cases(options.seed, Bytes(static_cast<double>(arena.bytes())))),
        target_(std::min(0.06, left() / 2000)) {
    try {
      attention_ = &cuda::CudnnAttention::open();
      sweep_.fused_attention = true;
      sweep_.facts.versions += ", attention by " + attention_->version();
    } catch (const EnvironmentError& error) {
      sweep_.rejected.emplace_back("attention", error.what());
    }
  }

  void run() {
    auto part_begin = Clock::now();
    double part_end = 0;
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const DeviceCase& c = cases_[i];
      if (i == 0 || c.part != cases_[i - 1].part) {
        arena_.refill(options_.seed + i);
        part_begin = Clock::now();
        part_end = time_of(c.part);
      }
      if (since(part_begin) > part_end) {
        ++sweep_.left_out;
        continue;
      }
      if (attention_ == nullptr && std::holds_alternative<AttentionAttributes>(c.op.attributes)) {
        continue;
      }
      plan_ahead(i);
      if (options_.progress) {
        options_.progress(std::min(1.0, since(begin_) / options_.seconds), text_of(c));
      }
      try {
        measure(c, options_.seed + i);
      } catch (const InputError& error) {
        sweep_.rejected.emplace_back(text_of(c), error.what());
      } catch (const RunError& error) {
        sweep_.rejected.emplace_back(text_of(c), error.what());
        if (!usable(stream_)) {
          sweep_.left_out += static_cast<std::int64_t>(cases_.size() - i) - 1;
          break;
        }
      }
    }
  }

 private:
  [[nodiscard]] double left() const { return std::max(0.0, options_.seconds - since(begin_)); }

  /// A part's share of what is left for it and those to come: what a quick one leaves goes to them.
  [[nodiscard]] double time_of(SweepPart part) const {
    double shares = 0;
    for (auto p = static_cast<std::size_t>(part); p < static_cast<std::size_t>(SweepPart::kCount);
         ++p) {
      shares += share_of(static_cast<SweepPart>(p));
    }
    return left() * share_of(part) / shares;
  }

  /// cuDNN compiles for half a second a plan: some cases' together, on all cores.
  void plan_ahead(std::size_t i) {
    constexpr std::size_t kTogether = 24;
    if (attention_ == nullptr || i < planned_ || cases_[i].part != SweepPart::kAttention) {
      return;
    }
    std::vector<cuda::AttentionProblem> problems;
    for (planned_ = i; planned_ < std::min(cases_.size(), i + kTogether); ++planned_) {
      try {
        const auto of_case = attention_problems(cases_[planned_], arena_);
        problems.insert(problems.end(), of_case.begin(), of_case.end());
      } catch (const InputError&) {  // NOLINT(bugprone-empty-catch): its turn will say so
      }
    }
    attention_->plan_all(problems);
  }

  void measure(const DeviceCase& c, std::uint64_t seed) {
    const CaseBody body = case_body(c, {arena_, matmul_, attention_, seed});
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // set-up ran on the default stream
    const std::vector<double> times = timer_.run(body, c.cold, target_);
    sweep_.samples.push_back({c, Seconds(quantile_of(times, 0.5)), Seconds(quantile_of(times, 0.1)),
                              Seconds(quantile_of(times, 0.9)),
                              static_cast<std::int64_t>(times.size())});
  }

  const SweepOptions& options_;
  const Clock::time_point begin_;
  const Stream& stream_;
  Timer& timer_;
  Arena& arena_;
  DeviceSweep& sweep_;
  cuda::Matmul matmul_;
  cuda::CudnnAttention* attention_ = nullptr;  ///< null where there is none
  const std::vector<DeviceCase> cases_;
  const double target_;      ///< seconds of runs of a case
  std::size_t planned_ = 0;  ///< cases whose attention has plans
};

}  // namespace

DeviceSweep run_device_sweep(const SweepOptions& options) {
  const auto begin = Clock::now();
  const cudaDeviceProp device = properties();
  const auto say = [&](const std::string& what) {
    if (options.progress) {
      options.progress(std::min(1.0, since(begin) / options.seconds), what);
    }
  };
  DeviceSweep sweep;
  DeviceFacts& facts = sweep.facts;
  facts.name = device.name;
  facts.versions = versions();
  facts.memory = Bytes(static_cast<double>(device.totalGlobalMem));
  facts.l2 = Bytes(static_cast<double>(device.l2CacheSize));
  facts.multiprocessors = device.multiProcessorCount;

  const Stream stream;
  constexpr std::size_t kFlushed = std::size_t{128} << 20;  // where the cache is not known
  const auto l2 = static_cast<std::size_t>(device.l2CacheSize);
  Timer timer(stream, l2 > 0 ? 4 * l2 : kFlushed);
  facts.event_pair = timer.empty();
  Arena arena(0.7, std::size_t{48} << 30, options.seed);
  say("launches");
  measure_launches(facts, stream, arena);
  say("copies");
  measure_copies(facts, stream, timer, arena);
  say("one-device collectives");
  try {
    measure_nccl(facts, stream, timer, arena);
  } catch (const RunError& error) {  // nothing else here needs NCCL
    sweep.rejected.emplace_back("one-device collectives", error.what());
  }

  Cases(options, begin, stream, timer, arena, sweep).run();
  return sweep;
}

}  // namespace stepcast::runtime::calibration

extern "C" __attribute__((visibility("default"))) stepcast::runtime::calibration::DeviceSweep
stepcast_cuda_sweep(const stepcast::runtime::calibration::SweepOptions& options) {
  return stepcast::runtime::calibration::run_device_sweep(options);
}
