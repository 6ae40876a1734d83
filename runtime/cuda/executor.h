#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "runtime/cuda/captured_step.h"
#include "runtime/cuda/communicator.h"
#include "runtime/cuda/device_batch.h"
#include "runtime/cuda/device_tensors.h"
#include "runtime/cuda/fused_products.h"
#include "runtime/cuda/matmul.h"
#include "runtime/cuda/module.h"
#include "runtime/cuda/op_context.h"
#include "runtime/cuda/step_watch.h"
#include "runtime/cuda/streams.h"

namespace stepcast::runtime::cuda {

/// Executes one rank's program on one device: the calling thread issues all ops in call order onto
/// CUDA streams, one per stream of the program, ordered by CUDA events as in the graph. A send goes
/// out on a stream of its own, so that it does not hold back what follows it. The host waits only
/// at the end of the step, and where an exchange must know sizes.
///
/// Op times, when somebody observes, come from events around each op: device time, all on one
/// clock, put on the host's clock by one event that the host waits for at the beginning of the
/// step. An observer that measures ops itself is told around each op what is being launched
/// instead.
///
/// With Options::graph the second step is captured into one CUDA graph, which later steps replay as
/// long as their batches have the same layout.
class Executor final : public DeviceExecutor {
 public:
  Executor(const ExecutionGraph& graph, Ranks ranks, Options options, Observer* observer);
  ~Executor() override;

  [[nodiscard]] Bytes allocated() const override { return tensors_->allocated(); }
  [[nodiscard]] std::vector<float> read(TensorId id, std::int32_t microbatch) const override;
  void write(TensorId id, std::int32_t microbatch, std::span<const float> values) override;
  float* numbers(TensorId id) override;
  void settle() override;
  void take_numbers() override;
  [[nodiscard]] bool keeps_masters() const override { return true; }
  [[nodiscard]] std::vector<RowTraffic> tier_traffic() const override;
  [[nodiscard]] std::string attention() const override {
    return attention_ != nullptr ? attention_->version() : "";
  }
  [[nodiscard]] KernelUse epilogues() const override { return products_.used(); }
  [[nodiscard]] std::vector<double> allocated_in_tiers() const override {
    return tensors_->allocated_in_tiers();
  }

 private:
  struct Task;

  void count_taken(const char* library, const std::function<void()>& work);
  void compile(const ExecutionGraph& graph);
  double run_ops() override;
  void begin_next_batch() override;
  void stage_batches();
  void issue_all(bool captured);
  void issue(std::size_t i, bool captured);
  void report_ops(std::int64_t anchor_ns);
  [[nodiscard]] bool works_on_next(const Op& op) const {
    return (op.flags & op_flags::kNextBatch) != 0;
  }

  const Ranks ranks_;
  const Options options_;
  const bool times_ops_;  ///< by events
  const std::int32_t device_;
  Ledger ledger_;
  std::vector<Stream> streams_;                  ///< of the program
  std::map<const Communicator*, Stream> sends_;  ///< one per pair this rank sends to
  std::vector<Event> events_;                    ///< of the program
  Event begin_{true}, end_{true};
  std::vector<Event> joins_;  ///< one per stream, at the end of a step
  std::unique_ptr<DeviceTensors> tensors_;
  std::map<TensorId, std::vector<float>> copies_;  ///< on the host
  std::vector<Buffer> scratch_;                    ///< by stream, then one for sends
  Buffer losses_, host_losses_, factors_, host_factors_;
  std::unique_ptr<DeviceBatch> batch_, next_batch_;
  Matmul multiply_;
  FusedProducts products_{multiply_};
  std::unique_ptr<QuantisedCopies> quantised_;
  CudnnAttention* attention_ = nullptr;
  std::vector<std::unique_ptr<OpState>> states_;  ///< per family
  std::vector<Task> tasks_;                       ///< of order_.issues
  const StepWatch::DoesWork works_ = [this](const Op& op) { return does_work(op); };
  std::unique_ptr<Communicators> communicators_;
  StepWatch watch_;        ///< streams of the program, then all sends; goes before what it looks at
  CapturedStep captured_;  ///< goes first, then the communicators it uses
};

}  // namespace stepcast::runtime::cuda
