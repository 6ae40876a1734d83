#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/op.h"
#include "core/units.h"

namespace stepcast::runtime::calibration {

/// The shape of an embedding case: `tables` equal tables whose bags are pooled one table after the
/// other, as an embedding op of a step does.
struct EmbeddingCase {
  std::int64_t rows = 1;     ///< of each table
  std::int64_t dim = 1;      ///< fp32 columns
  std::int64_t pooling = 1;  ///< lookups per bag, exact
  std::int64_t batch = 1;    ///< bags
  double zipf = 0;           ///< exponent; 0 is uniform
  std::int64_t tables = 1;
  OptimizerKind optimizer = OptimizerKind::kSgd;
  [[nodiscard]] std::int64_t lookups() const { return batch * pooling * tables; }
};

/// Parts of the sweep of a device, each with a share of the time.
enum class SweepPart : std::uint8_t { kEmbedding, kGemm, kAttention, kMemoryBound, kCount };
std::string_view name_of(SweepPart part);
/// Share of the whole budget; what is left is for the facts of the device. The shares sum to less
/// than 1.
double share_of(SweepPart part);

/// One point of the sweep: an op as a step would issue it, with its caches flushed (cold) or as the
/// run before left them (warm).
struct DeviceCase {
  SweepPart part = SweepPart::kGemm;
  Op op;                    ///< kind, shape, format, flags, attributes and work
  EmbeddingCase embedding;  ///< of embedding kinds: one table
  bool cold = true;
};

/// A measured case: median and deciles of device time between two events.
struct DeviceSample {
  DeviceCase what;
  Seconds median, p10, p90;
  std::int64_t repeats = 0;
};

/// One point of a curve over message sizes.
struct TransferSample {
  std::string path;  ///< "host_to_device", "all_reduce_one_rank", ...
  double bytes = 0;
  Seconds median;
};

/// Facts of the device itself, and those that no op shows.
struct DeviceFacts {
  std::string name;      ///< as the driver says
  std::string versions;  ///< driver, toolkit, libraries, what computes attention
  Bytes memory, l2;
  std::int64_t multiprocessors = 0;
  BytesPerSecond copy;         ///< device to device, bytes read plus bytes written
  std::vector<double> launch;  ///< seconds the host takes to launch one kernel, by batch
  std::vector<double>
      kernel_gap;  ///< seconds from one tiny kernel to the next with all of them enqueued, by batch
  Seconds graph_node;  ///< the same inside a CUDA graph
  Seconds event_pair;  ///< between two events with nothing between them; times are net of it
  std::vector<TransferSample> transfers;
};

struct SweepOptions {
  std::uint64_t seed = 1;
  double seconds = 420;  ///< of everything; a short budget leaves out cases, never repeats
  std::function<void(double done, const std::string& what)> progress;
};

struct DeviceSweep {
  DeviceFacts facts;
  std::vector<DeviceSample> samples;
  bool fused_attention = false;  ///< there is cuDNN
  std::int64_t left_out = 0;     ///< cases the budget did not reach
  std::vector<std::pair<std::string, std::string>>
      rejected;  ///< case and why: too large, not supported
};

/// Whether a case is one of some hundred that every sweep begins with, whatever its seed and
/// budget: those that other libraries and other visits are compared with.
bool is_anchor(const DeviceCase& c);

/// All cases in the order in which they run: by part, its anchors, then the others shuffled, so
/// that any budget sees every kind of shape. Embedding: rows x dim x pooling x zipf x batch,
/// forward and backward with a fused optimizer, tables from what the second level cache holds to a
/// hundred times that. GEMM: sizes of DLRM and transformer layers with their three layouts
/// (forward, data gradient, weight gradient) in bf16, fp32, tf32, fp16 and fp8, the last on
/// operands that stand quantised; products of 2 to 32 experts with few rows each. Attention: heads,
/// head widths, lengths, causal or not, both passes. Memory-bound: every kind a step has. `memory`:
/// what a case may allocate.
std::vector<DeviceCase> device_cases(std::uint64_t seed, Bytes memory);

/// How many cases of each part there are and what time they get, for people, before a sweep begins.
std::string plan_text(const std::vector<DeviceCase>& cases, double seconds);

/// "gemm bf16 4096 x 4096 x 1024", for progress and rejection.
std::string text_of(const DeviceCase& c);

/// In libstepcast_cuda.so: measures this process's device 0. Clocks are left alone.
/// Errors: EnvironmentError without a device; RunError when CUDA fails.
using DeviceSweepEntry = DeviceSweep(const SweepOptions& options);
constexpr const char* kDeviceSweepEntry = "stepcast_cuda_sweep";

}  // namespace stepcast::runtime::calibration
