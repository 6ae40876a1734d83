#include "workloads/dlrm/step.h"

#include "core/graph/embedding_communicators.h"
#include "workloads/passes/streams.h"

namespace stepcast::workloads {

DlrmCommunicators::DlrmCommunicators(const EmbeddingPlacement& layout, const LayerList& list,
                                     bool towers) {
  using Purpose = EmbeddingCommunicator::Purpose;
  node.resize(layout.group_sizes.size());
  group.resize(layout.group_sizes.size());
  const std::vector<EmbeddingCommunicator> all = embedding_communicators(layout, towers);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const EmbeddingCommunicator& c = all[i];
    if (c.group == 0) {
      continue;  // `input`, `exchange`, `data`
    }
    Grid& grid = c.purpose == Purpose::kTower  ? tower
                 : c.purpose == Purpose::kNode ? node[c.level]
                                               : group[c.level];
    (c.across ? grid.across : grid.inside) = static_cast<std::int32_t>(i);
  }
  first_group = list.groups.empty() ? -1 : static_cast<std::int32_t>(all.size());
  items = static_cast<std::int32_t>(all.size() + list.groups.size());
}

LayeredStep::LayeredStep(const Job& job, const LayerList& list, const EmbeddingPlacement& layout,
                         ShardLaws& laws, SentToHolders& sent, std::int32_t rank, bool shared)
    : job_(job),
      workload_(*job.workload.layered()),
      list_(list),
      layout_(layout),
      laws_(laws),
      sent_(sent),
      rank_(rank),
      shared_(shared),
      replicas_(job.devices / list.ranks_per_sample()),
      batch_(job.batch.global / replicas_),
      global_batch_(job.batch.global),
      interval_(job.devices > 1 ? job.sync_interval : 1),
      compute_(job.formats.compute),
      w_(compute_),
      b_(w_.builder()),
      comm_(layout, list, job.sptt),
      compression_(compression_of(job)),
      layer_states_(list.layers.size()),
      values_(list.tensors.size(), kNoTensor),
      gradients_(list.tensors.size()) {
  for (const Layer& l : list.layers) {
    if (l.kind == LayerKind::kTables) {
      stack_width_ = list.output(l).columns;
      before_tables_ = stack_width_ - layout.columns / compression_;
    }
  }
}

OpWriter::Written LayeredStep::build() && {
  w_.order().by_name = true;
  b_.set_interval(interval_);
  declare_routes();
  declare_parameters();
  std::vector<std::uint32_t> segments;
  w_.set_phase(Phase::kInput);
  segments.push_back(w_.begin_segment("input", SegmentKind::kOther));
  load_batch();
  exchange_indices();
  distribute_ids();
  for (const EmbeddingRoute r : kAllRoutes) {
    if (fetched_ahead()) {
      fetch_rows(r, true);
    }
  }
  w_.end_segment();

  w_.set_phase(Phase::kForward);
  segments.push_back(w_.begin_segment("forward", SegmentKind::kOther));
  // Layers before the tables that hide the input exchange, and those that hide the output exchange.
  const std::size_t layers = list_.layers.size();
  std::size_t bottom = 0;
  while (bottom < layers && list_.layers[bottom].kind != LayerKind::kTables) {
    ++bottom;
  }
  bottom = bottom == layers ? 0 : bottom;
  const bool waits_for_input = overlaps(job_, Channel::kInput) && !ahead(DlrmPipeline::kSparseDist);
  const std::size_t early = !waits_for_input                     ? 0
                            : overlaps(job_, Channel::kExchange) ? (bottom + 1) / 2
                                                                 : bottom;
  for (std::size_t i = 0; i < early; ++i) {
    layer_forward(i);
  }
  embedding_forward(false);
  for (std::size_t i = early; i < bottom; ++i) {
    layer_forward(i);
  }
  pool_sequences();
  for (std::size_t i = bottom; i < layers; ++i) {
    if (trains_ || !is_loss(list_.layers[i].kind)) {
      layer_forward(i);
    }
  }
  w_.end_segment();

  if (trains_) {
    w_.set_phase(Phase::kBackward);
    segments.push_back(w_.begin_segment("backward", SegmentKind::kOther));
    zero_gradients();
    for (std::size_t i = layers; i-- > 0;) {
      layer_backward(i);
    }
    embedding_backward();
    w_.end_segment();
  }

  // On the compute stream: lookups fill the device, so overlapped with other kernels they would
  // gain nothing. They run while the last gradients are reduced.
  if (ahead(DlrmPipeline::kPrefetch)) {
    w_.set_phase(Phase::kForward);
    segments.push_back(w_.begin_segment("lookup_ahead", SegmentKind::kOther));
    embedding_forward(true);
    w_.end_segment();
  }

  if (trains_) {
    w_.set_phase(Phase::kOptimizer);
    segments.push_back(w_.begin_segment("optimizer", SegmentKind::kOther));
    optimizers();
    w_.end_segment();
  }
  for (const std::uint32_t s : segments) {
    b_.call(s);
  }
  return std::move(w_).finish();
}

}  // namespace stepcast::workloads
