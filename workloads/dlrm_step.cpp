#include "workloads/dlrm_step.h"

namespace stepcast::workloads {

DlrmCommunicators::DlrmCommunicators(const EmbeddingLayout& layout) {
  std::int32_t next = data + 1;
  if (layout.uses(EmbeddingRoute::kNodeReduce)) {
    node = next++;
    across = next++;
  }
  if (layout.group > 1) {
    group = next++;
    copies = next++;
  }
}

DlrmStep::DlrmStep(const Job& job, const EmbeddingLayout& layout, ShardLaws& laws,
                   std::int32_t rank, bool shared)
    : job_(job),
      workload_(*job.workload.dlrm()),
      layout_(layout),
      laws_(laws),
      rank_(rank),
      shared_(shared),
      batch_(job.batch.global / job.devices),
      global_batch_(job.batch.global),
      stack_width_(workload_.bottom_mlp.back() + layout.columns),
      compute_(job.formats.compute),
      comm_(layout) {
  const Overlap& overlap = job.parallel.overlap;
  const bool several = job.devices > 1;
  if ((several && overlap.input_all_to_all) || ahead(DlrmPipeline::kSparseDist)) {
    input_stream_ = "input";
  }
  if (several && overlap.output_all_to_all) {
    exchange_stream_ = "exchange";
  }
  if (several && overlap.dense_all_reduce) {
    reduce_stream_ = "all_reduce";
  }
}

Program DlrmStep::build() && {
  b_.set_format(compute_);
  declare_routes();
  declare_parameters();
  std::vector<std::uint32_t> segments;
  b_.set_phase(Phase::kInput);
  segments.push_back(b_.begin_segment("input"));
  load_batch();
  exchange_indices();
  b_.end_segment();

  b_.set_phase(Phase::kForward);
  segments.push_back(b_.begin_segment("forward"));
  // What of the bottom MLP hides the input exchange, and what the output exchange.
  const std::size_t layers = bottom_.size();
  const bool waits_for_input = input_stream_ != kComputeStream && !ahead(DlrmPipeline::kSparseDist);
  const std::size_t early = !waits_for_input                     ? 0
                            : exchange_stream_ == kComputeStream ? layers
                                                                 : (layers + 1) / 2;
  TensorId x = mlp_forward(bottom_, 0, early, dense_);
  embedding_forward(false);
  x = mlp_forward(bottom_, early, layers, x);
  pool_sequences();
  const TensorId stack = assemble(x);
  const TensorId logits = mlp_forward(top_, 0, top_.size(), interaction_forward(stack));
  const TensorId d_logits = b_.activation("logits.gradient", batch_, 1, compute_);
  b_.op(OpKind::kBinaryCrossEntropy, "loss", {batch_, 1}).in({logits, labels_}).out({d_logits});
  b_.end_segment();

  b_.set_phase(Phase::kBackward);
  segments.push_back(b_.begin_segment("backward"));
  zero_gradients();
  const TensorId d_bottom = split(interaction_backward(stack, mlp_backward(top_, d_logits, true)));
  exchange_gradients();
  dense_gradient(EmbeddingRoute::kReplicated);
  mlp_backward(bottom_, d_bottom, false);
  embedding_backward();
  b_.end_segment();

  // On the compute stream: lookups fill the device, so beside other kernels they would gain
  // nothing. They run while the last gradients are reduced.
  if (ahead(DlrmPipeline::kPrefetch)) {
    b_.set_phase(Phase::kForward);
    segments.push_back(b_.begin_segment("lookup_ahead"));
    embedding_forward(true);
    b_.end_segment();
  }

  b_.set_phase(Phase::kOptimizer);
  segments.push_back(b_.begin_segment("optimizer"));
  optimizers();
  b_.end_segment();
  for (const std::uint32_t s : segments) {
    b_.call(s);
  }
  return std::move(b_).finish();
}

}  // namespace stepcast::workloads
