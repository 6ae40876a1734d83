// Opening a large trace: bench_traces [bytes] [file]. Without a file a synthetic Kineto trace of
// about that many bytes (2 GB unless given) is written to the temporary folder, opened and removed;
// a file of one's own is opened as it is. Prints MB/s, seconds and the process's peak memory beside
// the file's size.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "traces/open_trace.h"

namespace {

namespace fs = std::filesystem;

/// One operator as Kineto writes it: nested ops, a launch, its kernel, the two flow arrows between.
class Generator {
 public:
  explicit Generator(const fs::path& file) : out_(file, std::ios::binary) {
    text_ = R"({
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "synthetic", "numSms": 108
    }
  ],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1711964646000000000,
  "traceEvents": [
)";
  }
  void write(std::uint64_t bytes) {
    for (std::uint64_t op = 0; written_ + text_.size() < bytes; ++op) {
      if (op % 2000 == 0) {
        step(op / 2000);
      }
      this->op();
    }
    fmt::format_to(std::back_inserter(text_),
                   R"(  {{
    "ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": {}.000
  }}
  ],
  "traceName": "synthetic.json"
}}
)",
                   us_);
    flush();
  }

 private:
  void step(std::uint64_t number) {
    fmt::format_to(std::back_inserter(text_), R"(  {{
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{}", "pid": 4711, "tid": 4711,
    "ts": {}.125, "dur": 79990.500,
    "args": {{
      "External id": {},"Record function id": 0, "Ev Idx": {}
    }}
  }},
)",
                   number, us_, id_, id_);
  }
  void op() {
    ++id_;
    const auto kernel = id_ % 40;
    fmt::format_to(std::back_inserter(text_), R"json(  {{
    "ph": "X", "cat": "cpu_op", "name": "aten::operator_{0}", "pid": 4711, "tid": 4711,
    "ts": {1}.207, "dur": 36.112,
    "args": {{
      "External id": {2},"Record function id": {2}, "Concrete Inputs": ["", "", "1"], "Input type": ["float", "float", "Scalar"], "Input Strides": [[{3}, 1], [1, {3}], []], "Input Dims": [[{4}, {3}], [{3}, 64], []], "Ev Idx": {2}
    }}
  }},
  {{
    "ph": "X", "cat": "cpu_op", "name": "aten::inner_{0}", "pid": 4711, "tid": 4711,
    "ts": {5}.031, "dur": 30.750,
    "args": {{
      "External id": {2},"Sequence number": {2}, "Fwd thread id": 0, "Record function id": {2}, "Ev Idx": {2}
    }}
  }},
  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4711, "tid": 4711,
    "ts": {6}.003, "dur": 5.420,
    "args": {{
      "External id": {2}, "cbid": 211, "correlation": {2}
    }}
  }},
  {{
    "ph": "s", "id": {2}, "pid": 4711, "tid": 4711, "ts": {6}.003,
    "cat": "ac2g", "name": "ac2g"
  }},
  {{
    "ph": "X", "cat": "kernel", "name": "void at::native::vectorized_elementwise_kernel<4, at::native::functor_{0}<float, float, float, at::native::binary_internal::MulFunctor<float> >, at::detail::Array<char*, 2> >(int, at::native::functor_{0}<float>, at::detail::Array<char*, 2>)", "pid": 0, "tid": 7,
    "ts": {7}.500, "dur": 21.376,
    "args": {{
      "External id": {2}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {2}, "registers per thread": 32, "shared memory": 0, "blocks per SM": 4.740741, "warps per SM": 75.851852, "grid": [{3}, 1, 1], "block": [512, 1, 1], "est. achieved occupancy %": 75
    }}
  }},
  {{
    "ph": "f", "id": {2}, "pid": 0, "tid": 7, "ts": {7}.500,
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }},
)json",
                   kernel, us_, id_, 32 + kernel, 16 * (1 + kernel % 8), us_ + 2, us_ + 4,
                   us_ + 12);
    us_ += 40;
    if (text_.size() > (std::size_t{1} << 22)) {
      flush();
    }
  }
  void flush() {
    out_.write(text_.data(), static_cast<std::streamsize>(text_.size()));
    written_ += text_.size();
    text_.clear();
    if (!out_) {
      throw stepcast::InputError("bench_traces",
                                 "cannot write the synthetic trace; is there room?");
    }
  }

  std::ofstream out_;
  std::string text_;
  std::uint64_t written_ = 0;
  std::uint64_t id_ = 0;
  std::uint64_t us_ = 4458676522690;
};

double peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
}

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

void open(const fs::path& file) {
  const double size = static_cast<double>(fs::file_size(file));
  const double before = processor_seconds();
  const auto begin = std::chrono::steady_clock::now();
  const stepcast::traces::Recording recording = stepcast::traces::open_trace(file);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double processor = processor_seconds() - before;
  std::size_t events = 0;
  for (const auto& rank : recording.ranks) {
    events += rank.events.size();
  }
  fmt::print(
      "{}: {:.0f} MB, {} events, {} names\n"
      "  opened in {:.2f} s ({:.0f} MB/s); processor {:.2f} s ({:.0f} MB/s)\n"
      "  peak memory {:.0f} MB, {:.1f} % of the file\n",
      recording.format, size / 1e6, events, recording.names.size(), seconds, size / 1e6 / seconds,
      processor, size / 1e6 / processor, peak_megabytes(), 100 * peak_megabytes() * 1e6 / size);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 2) {
    open(argv[2]);
    return 0;
  }
  const std::uint64_t bytes =
      argc > 1 ? static_cast<std::uint64_t>(std::strtod(argv[1], nullptr)) : 2'000'000'000;
  const fs::path file = fs::temp_directory_path() / "stepcast-synthetic-trace.json";
  Generator(file).write(bytes);
  open(file);
  fs::remove(file);
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "bench_traces: {}\n", e.what());
  return 2;
}
