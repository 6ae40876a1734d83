#pragma once

namespace stepcast {

/// Properties of a version of a training framework, apart from the arithmetic of a model: data with
/// a source (models/stacks). They cost time and bytes; the bundled runtime has none of them.
struct FrameworkTraits {
  /// Weight gradients of a micro-batch are added to the sum by a kernel of their own.
  bool separate_accumulation = false;
  /// A tensor rank sends its part of an activation along the pipeline and the receiving ranks
  /// gather it (arXiv 2104.04473, section 4.1). Without effect under sequence parallelism.
  bool scatter_gather = false;
  /// Fuses quantisation where products are narrower than activations: norms write the narrow
  /// format, tensor ranks quantise their rows before they gather them, and a transposed copy is
  /// made of narrow values. Without it each product's operand is quantised from wide values by a
  /// kernel of its own.
  bool fused_quantise = false;
  /// The host waits for all work of its device once a pipeline message has arrived, before it
  /// issues more.
  bool synchronous_messages = false;
  /// "selective" recomputation keeps what attention, every second product and sums over split rows
  /// made, and makes the rest of a layer again (torchtitan). Without it, it makes attention's core
  /// again and keeps the rest (Megatron-LM).
  bool selective_per_op = false;
  /// The host goes on when an op is done, not when it is issued (CUDA_LAUNCH_BLOCKING=1).
  bool blocking_launches = false;
  /// A stage keeps what it sent until the backward pass of the micro-batch (DeepSpeed).
  bool keeps_outputs = false;
  /// Narrow copies of weights are made where they are used, in each pass, and not kept (torchao).
  /// Without it they are made once a step, and kept.
  bool casts_each_pass = false;
  /// ZeRO 3: weights that narrow products read are kept, updated and gathered in that format
  /// (Megatron-FSDP with fp8_param_gather; Megatron Bridge sets keep_fp8_transpose_cache to false).
  /// The time to transpose them, 2 bytes a weight, is not counted. Without it wide weights are
  /// gathered and cast in each pass.
  bool gathers_narrow = false;
  /// Fused attention takes so many times what the kernels take that devices were measured with; on
  /// devices with fp8 units `attention_fp8_devices`. 0: as long.
  double attention = 0;
  double attention_fp8_devices = 0;
  /// Fused attention computes in fp8, and keeps and sends queries, keys and values in it
  /// (Transformer Engine's fp8_dpa). Key `formats.attention` of a job sets it.
  bool fp8_attention = false;
  /// ZeRO 3: gathered weights are copied from the gather's buffer to where products read them
  /// (FSDP2). Without it they are read where they arrive (FSDP1).
  bool copies_gathered = false;
  /// In training the vocabulary head's products are made in the format of layers' products
  /// (FP8_OUTPUT_PROJ of NVIDIA's MLPerf programs). Key `formats.head` of a job sets it.
  bool narrow_head = false;
  /// Unfused attention computes its softmax in fp32 and keeps the result beside the narrow copy
  /// that products read (Megatron-LM without masked-softmax fusion). Key `formats.scores` sets it.
  bool wide_scores = false;
  /// ZeRO 3: passes over the gradients of a unit before they leave: put side by side, divided.
  double gradient_passes = 0;
  /// The host waits for each router's counts before it issues the exchange of tokens.
  bool synchronous_routing = false;
  /// The host's time for the router, counts and permutation of a layer of experts, each pass, in
  /// seconds. Full graphs and dispatchers that need no counts take it away.
  double expert_layer_host = 0;
  /// Multiprocessors that the kernel of a collective occupies while it overlaps with compute, be it
  /// a gather, a sum or an exchange of tokens.
  double exchange_multiprocessors = 0;
  /// Experts' activations are multiplied by the routing probabilities, so that the backward pass
  /// needs no experts' outputs (Megatron-Core's TEGroupedMLP; torchtitan's score_before_experts).
  bool probabilities_inside = false;
  /// Recommenders: row ids are 32 bits wide, in memory and on links.
  bool narrow_ids = false;
  /// Recommenders: one launch updates all dense parameters, in fp32 copies in addition to those
  /// that products read, and the rows of replicated tables.
  bool fused_optimizer = false;
  /// Recommenders: pooled rows are put in the order of the model on arrival, partial sums added up,
  /// and their gradients in the order of the exchange, by a kernel of one warp a row: rows that one
  /// multiprocessor handles in a second; 0: the copies that assemble the features do it.
  double arranged_rows = 0;
  /// Recommenders: kernels count the local batch's ids by the ranks they go to and put them in
  /// order; they share the multiprocessors with the step they run in. Ids that one multiprocessor
  /// handles in a second; 0: packing them moves their bytes.
  double distributed_ids = 0;

  bool operator==(const FrameworkTraits&) const = default;
};

}  // namespace stepcast
