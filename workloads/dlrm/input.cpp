#include <algorithm>

#include "workloads/dlrm/step.h"

#include "core/numbers.h"

// Host input and index exchange of a DLRM step: of its own batch or, in a pipeline, of the next.

namespace stepcast::workloads {
namespace {

constexpr double kWeightBytes = 4;  // fp32

double total(const Exchange& e) {
  double sum = 0;
  for (const double elements : e.sent_by(0)) {
    sum += elements;
  }
  return sum;
}

/// Lengths a rank sends per sample and slice: of each feature the part's own, and the whole bag's
/// where a mean is split by rows.
std::int64_t lengths_per_sample(const EmbeddingSlice& s, const EmbeddingTable& t) {
  return s.features * (s.splits_bags() && t.mode == PoolingMode::kMean ? 2 : 1);
}

}  // namespace

void LayeredStep::load_batch() {
  double bytes_in = real(batch_) * real(list_.input_width() + label_width(list_)) * 4;
  for (const EmbeddingTable& t : workload_.tables) {
    bytes_in += real(batch_) * (t.pooling * id_bytes(t) + real(t.feature_count()) * kLengthBytes);
  }
  const auto input = [this](std::string name, TensorPurpose purpose, std::int64_t rows,
                            std::int64_t columns, Format f) {
    return b_.tensor({.name = std::move(name),
                      .role = TensorRole::kInput,
                      .purpose = purpose,
                      .format = f,
                      .rows = rows,
                      .columns = columns,
                      .per_microbatch = false,
                      .pieces = {}});
  };
  std::vector<TensorId> loaded;
  for (const std::int32_t t : list_.inputs) {
    const LayerTensor& x = list_.tensor(t);
    value(t) = input(list_.inputs.size() == 1 ? "dense" : x.name, TensorPurpose::kDense,
                     batch_ * x.rows, x.columns, compute_);
    loaded.push_back(value(t));
  }
  for (std::size_t i = 0; i < list_.layers.size(); ++i) {
    const Layer& l = list_.layers[i];
    if (is_loss(l.kind)) {
      const auto [rows, columns] = label_shape(list_, l);
      if (rows == 0) {
        continue;
      }
      labels_[i] = input(labels_.empty() ? "labels" : l.name + ".labels", TensorPurpose::kLabels,
                         batch_ * rows, columns, Format::kFp32);
      loaded.push_back(labels_[i]);
    }
  }
  const bool next = ahead(DlrmPipeline::kSparseDist);
  if (next) {
    for (TensorId& id : loaded) {
      Tensor t = b_.tensor_at(id);
      t.name = "next." + t.name;
      t.next_of = static_cast<std::int32_t>(id);
      id = b_.tensor(std::move(t));
    }
  }
  auto load =
      w_.op(Channel::kInput, OpKind::kLoadBatch, "load_batch", {rounded(bytes_in)}).out(loaded);
  mark(load, next);
  loaded_ = next ? kNoOp : w_.written();
  indexed_ = !next || ahead(DlrmPipeline::kPrefetch) ? w_.written() : kNoOp;
}

LayeredStep::Indices LayeredStep::declare_indices(const std::string& prefix,
                                                  const Exchange& lengths, const Indices* now) {
  const auto list = [&](const char* name, double elements, Format f, const TensorId* replaced) {
    Tensor t{
        .name = prefix + name,
        .role = ahead(DlrmPipeline::kSparseDist) ? TensorRole::kBuffer : TensorRole::kActivation,
        .format = f,
        .rows = rounded(elements),
        .columns = 1,
        .per_microbatch = !ahead(DlrmPipeline::kSparseDist),
        .pieces = {}};
    t.next_of = replaced != nullptr ? static_cast<std::int32_t>(*replaced) : -1;
    return b_.tensor(std::move(t));
  };
  Indices all;
  all.sent_lengths = list("lengths.sent", total(lengths), Format::kInt32,
                          now != nullptr ? &now->sent_lengths : nullptr);
  all.lengths =
      list("lengths", arriving_lengths(), Format::kInt32, now != nullptr ? &now->lengths : nullptr);
  all.ids = list("ids", arriving_ids(), id_format(), now != nullptr ? &now->ids : nullptr);
  if (weighted()) {
    all.weights = list("weights", arriving_weights(), Format::kFp32,
                       now != nullptr ? &*now->weights : nullptr);
  }
  return all;
}

std::vector<TensorId> LayeredStep::Indices::read(std::optional<TensorId> first) const {
  std::vector<TensorId> all;
  if (first) {
    all.push_back(*first);
  }
  all.insert(all.end(), {lengths, ids});
  if (weights) {
    all.push_back(*weights);
  }
  return all;
}

bool LayeredStep::weighted() const {
  return std::any_of(layout_.slices.begin(), layout_.slices.end(), [this](const EmbeddingSlice& s) {
    return !is_local(s.route) && table(s).weighted;
  });
}

double LayeredStep::arriving_lengths() const {
  double sum = 0;
  for (const std::int32_t id : layout_.held[static_cast<std::size_t>(rank_)]) {
    const EmbeddingSlice& s = slice(id);
    sum += is_local(s.route) ? 0 : samples_of(s.route) * real(lengths_per_sample(s, table(s)));
  }
  return sum;
}

double LayeredStep::arriving_ids() const {
  double sum = 0;
  for (const EmbeddingRoute r : kAllRoutes) {
    sum += is_local(r) ? 0 : routes_.at(static_cast<std::size_t>(r)).lookups;
  }
  return sum;
}

double LayeredStep::arriving_weights() {
  double sum = 0;
  for (const std::int32_t id : layout_.held[static_cast<std::size_t>(rank_)]) {
    const EmbeddingSlice& s = slice(id);
    if (!is_local(s.route) && table(s).weighted) {
      sum += travelling(id, rank_, samples_of(s.route));
    }
  }
  return sum;
}

/// Indices that a rank sends to a holder of a slice.
SentToHolders::Indices LayeredStep::sent_with(std::int32_t id, std::int32_t holder) {
  const EmbeddingSlice& s = slice(id);
  SentToHolders::Indices to;
  to.lengths = real(batch_ * lengths_per_sample(s, table(s)));
  to.ids = travelling(id, holder, real(batch_));
  to.weights = table(s).weighted ? to.ids : 0;
  to.by_row = s.splits_bags() ? to.ids : 0;
  if (s.pools_lists_once()) {  // all lists are looked at to find the distinct ones
    to.by_row += real(batch_) * table(s).pooling / real(s.members());
  }
  return to;
}

/// Indices that this rank sends to each rank with rows its lookups may fall to.
LayeredStep::SentIndices LayeredStep::sent_indices() {
  SentIndices sent;
  auto& [lengths, ids, weights, by_row] = sent;
  lengths.send_elements.resize(static_cast<std::size_t>(devices()));
  ids = weights = lengths;
  for (const std::int64_t size : layout_.group_sizes) {
    lengths.unit_elements.emplace_back(static_cast<std::size_t>(size));
  }
  ids.unit_elements = weights.unit_elements = lengths.unit_elements;
  const bool fresh = sent_.indices.empty();
  sent_.indices.resize(static_cast<std::size_t>(devices()));
  for (std::int32_t peer = 0; peer < static_cast<std::int32_t>(devices()); ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    SentToHolders::Indices& all = sent_.indices[at];
    for (const EmbeddingRoute r : kAllRoutes) {
      if (is_local(r) || (!fresh && !has_copies(r))) {
        continue;
      }
      for (const std::int32_t id : layout_.held_by(peer, r)) {
        if (has_copies(r) && !slice(id).serves(peer, rank_)) {
          continue;
        }
        const SentToHolders::Indices to = sent_with(id, peer);
        if (has_copies(r)) {
          const auto position = static_cast<std::size_t>(slice(id).position(peer));
          lengths.unit_elements.at(level_of(r)).at(position) += to.lengths;
          ids.unit_elements.at(level_of(r)).at(position) += to.ids;
          weights.unit_elements.at(level_of(r)).at(position) += to.weights;
          by_row += to.by_row;
        } else {
          all.lengths += to.lengths;
          all.ids += to.ids;
          all.weights += to.weights;
          all.by_row += to.by_row;
        }
      }
    }
    lengths.send_elements[at] = all.lengths;
    ids.send_elements[at] = all.ids;
    weights.send_elements[at] = all.weights;
    by_row += all.by_row;
  }
  return sent;
}

void LayeredStep::exchange_indices() {
  if (!layout_.exchanges_ids()) {
    find_rows({});
    return;
  }
  auto [lengths, ids, weights, by_row] = sent_indices();
  const double sent_ids = total(ids);
  const double sent_lengths = total(lengths);
  const double lengths_here = arriving_lengths();
  const double ids_here = arriving_ids();
  const double sent_weights = total(weights);
  const double weights_here = arriving_weights();
  const bool next = ahead(DlrmPipeline::kSparseDist);
  indices_ = declare_indices("", lengths, nullptr);
  next_indices_ = next ? declare_indices("next.", lengths, &indices_) : indices_;
  const TensorId ids_sent = b_.activation("ids.sent", rounded(sent_ids), 1, id_format());
  std::vector<TensorId> packed{next_indices_.sent_lengths, ids_sent};
  if (weighted()) {
    packed.push_back(b_.activation("weights.sent", rounded(sent_weights), 1, Format::kFp32));
  }
  const double id = bits_per_element(id_format(), 1024) / 8;
  const auto traffic = [id](double id_count, double length_count, double weight_count) {
    return Bytes(id_count * id + length_count * kLengthBytes + weight_count * kWeightBytes);
  };
  auto pack = w_.op(Channel::kInput, OpKind::kIndexPack, "index_pack",
                    {rounded(sent_ids), rounded(sent_lengths), devices(), rounded(by_row)})
                  .format(id_format())
                  .out(packed)
                  .work(Flops{}, traffic(sent_ids, sent_lengths, sent_weights),
                        traffic(sent_ids, sent_lengths, sent_weights));
  mark(pack, next);
  const auto exchange = [&](const char* name, double elements, Format format, Exchange what,
                            TensorId from, TensorId to) {
    auto op = w_.op(Channel::kInput, OpKind::kAllToAllV, name, {rounded(elements)})
                  .format(format)
                  .communicator(comm_.input)
                  .attributes(CollectiveAttributes{.exchange = b_.exchange(std::move(what))})
                  .traffic(TrafficKind::kIds)
                  .in({from})
                  .out({to});
    mark(op, next);
  };
  exchange("lengths.all_to_all", sent_lengths, Format::kInt32, std::move(lengths),
           next_indices_.sent_lengths, next_indices_.lengths);
  exchange("ids.all_to_all", sent_ids, id_format(), std::move(ids), ids_sent, next_indices_.ids);
  std::vector<TensorId> arrived{next_indices_.lengths, next_indices_.ids};
  if (weighted()) {  // a collective of its own, as TorchRec's KJTAllToAll sends each tensor
    exchange("weights.all_to_all", sent_weights, Format::kFp32, std::move(weights), packed.back(),
             *next_indices_.weights);
    arrived.push_back(*next_indices_.weights);
  }
  auto unpack = w_.op(Channel::kInput, OpKind::kIndexUnpack, "index_unpack",
                      {rounded(ids_here), rounded(lengths_here), devices()})
                    .format(id_format())
                    .in(arrived)
                    .work(Flops{}, traffic(ids_here, lengths_here, weights_here),
                          traffic(ids_here, 2 * lengths_here, weights_here));
  mark(unpack, next);
  find_rows({next_indices_.ids});
  // An exchange starts from here where this rank holds none of its slices.
  unpacked_ = !next || ahead(DlrmPipeline::kFused) ? w_.written() : kNoOp;
  indexed_ = !next || ahead(DlrmPipeline::kPrefetch) ? w_.written() : kNoOp;  // looked up
}

/// Looks keys up, and begins rows of admitted ids anew.
void LayeredStep::find_rows(const std::vector<TensorId>& ids) {
  double lookups = 0;
  double written = 0;
  for (const std::int32_t id : layout_.held[static_cast<std::size_t>(rank_)]) {
    const EmbeddingSlice& s = slice(id);
    if (!table(s).keyed()) {
      continue;
    }
    const auto [known, fresh] = sent_.keyed.try_emplace(s.table);
    if (fresh) {
      known->second = keyed_rows(job_, table(s));
    }
    const double n = travelling(id, rank_, samples_of(s.route));
    lookups += n;
    written += n * known->second.written;
  }
  if (lookups <= 0) {
    return;
  }
  const bool next = ahead(DlrmPipeline::kSparseDist);
  auto op = w_.op(Channel::kInput, OpKind::kIndexUnpack, "ids.find_rows",
                  {rounded(lookups), 0, devices()})
                .format(id_format())
                .in(ids)
                .work(Flops{}, Bytes(lookups * KeyedRows::kSector), Bytes(written));
  mark(op, next);
  indexed_ = !next || ahead(DlrmPipeline::kPrefetch) ? w_.written() : indexed_;
}

/// Charges the bytes that memory moves while the kernels work.
void LayeredStep::distribute_ids() {
  if (traits_.distributed_ids <= 0 || !layout_.exchanges_ids()) {
    return;
  }
  double ids = 0;
  for (const EmbeddingTable& t : workload_.tables) {
    ids += real(batch_) * t.pooling;
  }
  const Device& device = job_.system.device;
  const double seconds = ids / (real(device.multiprocessors) * traits_.distributed_ids);
  const Bytes moved(seconds * device.bandwidth.base() / 2);
  auto op = w_.compute(OpKind::kIndexPack, "ids.distribute", {rounded(ids), 0, devices(), 0})
                .format(id_format())
                .work(Flops{}, moved, moved);
  mark(op, ahead(DlrmPipeline::kSparseDist));
}

}  // namespace stepcast::workloads
