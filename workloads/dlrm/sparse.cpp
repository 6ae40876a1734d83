#include <algorithm>

#include "core/error.h"
#include "workloads/dlrm/step.h"

#include "core/numbers.h"

namespace stepcast::workloads {
namespace {

double element_bytes(Format f) { return bits_per_element(f, 1024) / 8; }

}  // namespace

void LayeredStep::embedding_forward(bool next) {
  for (const EmbeddingRoute r : kAllRoutes) {
    Route& of = route(r);
    if (!of.present) {
      continue;
    }
    // Nothing to wait for where the step before has prepared it.
    of.ready = next == ahead(DlrmPipeline::kSparseDist) ? unpacked_ : kNoOp;
    if (looked_up_ahead(r) == next && of.width > 0) {
      if (!fetched_ahead()) {
        fetch_rows(r, next);
      }
      lookup(r, next);
    }
    if (!is_local(r) && exchanged_ahead(r) == next) {
      exchange_output(r, next);
    }
  }
}

void LayeredStep::lookup(EmbeddingRoute r, bool next) {
  Route& to = route(r);
  double rows = 0;
  double elements = 0;
  double additions = 0;
  double ids = 0;     // bytes
  double copied = 0;  // of lists that are looked up once, to every sample
  for (const std::int32_t id : to.slices) {
    const EmbeddingSlice& s = slice(id);
    const double samples = samples_of(r);
    const double lookups = travelling(id, rank_, samples);
    rows += lookups * row_bytes(s).base();
    ids += lookups * id_bytes(table(s));
    additions += lookups * real(s.dim);
    elements +=
        is_sequence(r) ? rows_back(id, rank_, samples) * real(s.dim) : samples * real(s.width());
    copied += is_local(r) && s.pools_lists_once() ? s.list_share * samples * real(s.dim) : 0;
  }
  const double copied_bytes = copied * element_bytes(b_.tensor_at(to.output).format);
  const Indices& from = next ? next_indices_ : indices_;
  auto op =
      w_.compute(OpKind::kEmbeddingForward, fmt::format("embedding.{}.forward", name_of(r)),
                 {rounded(to.lookups), rounded(to.bags), to.width})
          .format(to.format)
          .attributes(EmbeddingAttributes{.group = to.group, .order = order_of(r), .route = r})
          .in(is_local(r) ? std::vector<TensorId>{} : from.read())
          .out({to.output})
          .work(Flops(additions), Bytes(rows + ids + to.bags * kLengthBytes + copied_bytes),
                Bytes(elements * element_bytes(b_.tensor_at(to.output).format) + copied_bytes));
  mark(op, next);
  if (next == ahead(DlrmPipeline::kSparseDist)) {
    w_.follows(indexed_);
    indexed_ = kNoOp;
  }
  w_.follows(to.fetched);
  if (!is_local(r) && exchanged_ahead(r) == next) {
    to.ready = w_.written();
  }
}

/// Elements of one row on the wire, for formats that scale rows: the widest slice of the route.
std::int64_t LayeredStep::row_elements(EmbeddingRoute r) const {
  std::int64_t widest = 0;
  for (const EmbeddingSlice& s : layout_.slices) {
    widest = s.route == r ? std::max(widest, s.dim) : widest;
  }
  return widest;
}

void LayeredStep::exchange_output(EmbeddingRoute r, bool next) {
  Route& of = route(r);
  const OpId start = of.ready;
  const auto collective = [&](OpKind kind, const char* name, std::int64_t elements,
                              std::int32_t communicator, TensorId in, TensorId out,
                              std::int32_t exchange = -1) {
    auto op = w_.op(Channel::kExchange, kind, fmt::format("embedding.{}.{}", name_of(r), name),
                    {elements, kind == OpKind::kAllToAllV ? row_elements(r) : 0})
                  .attributes(CollectiveAttributes{.exchange = exchange, .route = r})
                  .format(job_.formats.all_to_all_forward)
                  .traffic(TrafficKind::kOutputs)
                  .communicator(communicator)
                  .in({in})
                  .out({out});
    mark(op, next);
    w_.follows(start);
  };
  switch (kind_of(r)) {
    case EmbeddingRoute::kExchange: {
      if (in_towers(r)) {
        exchange_towers(next);
        return;
      }
      Exchange e{.send_elements = std::vector<double>(static_cast<std::size_t>(devices()),
                                                      real(batch_ * of.width))};
      collective(OpKind::kAllToAllV, "all_to_all", global_batch_ * of.width, comm_.exchange,
                 of.output, of.arrived, b_.exchange(std::move(e)));
      break;
    }
    case EmbeddingRoute::kReduce:
    case EmbeddingRoute::kGroupReduce:
      collective(OpKind::kReduceScatter, "reduce_scatter", rounded(samples_of(r)) * of.width,
                 has_copies(r) ? group_of(r) : comm_.exchange, of.output, of.arrived);
      break;
    case EmbeddingRoute::kNodeReduce: {
      const std::int64_t size = layout_.group_of(r);
      const auto& grid = comm_.node.at(level_of(r));
      if (of.width > 0) {
        collective(OpKind::kReduceScatter, "reduce_scatter", global_batch_ * of.width, grid.inside,
                   of.output, of.between);
      }
      const auto nodes = static_cast<std::size_t>(devices() / size);
      Exchange e{.send_elements = std::vector<double>(nodes, real(batch_ * of.width))};
      collective(OpKind::kAllToAllV, "all_to_all", global_batch_ / size * of.width, grid.across,
                 of.between, of.arrived, b_.exchange(std::move(e)));
      break;
    }
    case EmbeddingRoute::kSequence:
    case EmbeddingRoute::kGroupSequence: {
      double elements = 0;
      for (const std::int32_t id : of.slices) {
        const EmbeddingSlice& s = slice(id);
        elements += rows_back(id, rank_, real(batch_)) * real(s.dim);
      }
      const std::int64_t peers = has_copies(r) ? layout_.group_of(r) : devices();
      Exchange e{.send_elements = std::vector<double>(static_cast<std::size_t>(peers), elements)};
      collective(OpKind::kAllToAllV, "all_to_all", rounded(elements * real(peers)),
                 has_copies(r) ? group_of(r) : comm_.exchange, of.output, of.between,
                 b_.exchange(std::move(e)));
      break;
    }
    case EmbeddingRoute::kReplicated:
    case EmbeddingRoute::kLocal:
      return;
  }
  of.ready = next ? kNoOp : w_.written();
}

void LayeredStep::pool_sequences() {
  for (const EmbeddingRoute r : kAllRoutes) {
    if (is_sequence(r) && route(r).present) {
      pool_sequences(r);
    }
  }
}

void LayeredStep::pool_sequences(EmbeddingRoute r) {
  Route& of = route(r);
  const SequenceSizes n = sequence_sizes(r);
  const double wire = element_bytes(job_.formats.all_to_all_forward);
  w_.compute(OpKind::kSequencePoolForward, fmt::format("embedding.{}.pool", name_of(r)),
             {rounded(n.lookups), rounded(n.bags), rounded(n.bag_elements / real(batch_))})
      .attributes(PoolAttributes{r})
      .in({of.between, indices_.sent_lengths})
      .out({of.arrived})
      .work(Flops(n.looked_up_elements), Bytes(n.looked_up_elements * wire + n.bags * kLengthBytes),
            Bytes(n.bag_elements * element_bytes(compute_)));
  w_.follows(of.ready);
  of.ready = kNoOp;
}

/// Charges the bytes that memory moves while the kernel works, and at least those of the rows.
LayeredStep::OpEdit LayeredStep::arrange(EmbeddingRoute r, const char* name, TensorId rows) {
  double pieces = 0;
  for (const ColumnBlock& block : column_blocks(r, 0, true)) {
    pieces += block.columns > 0 ? real(batch_) : 0;
  }
  const Device& device = job_.system.device;
  const double seconds = pieces / (real(device.multiprocessors) * traits_.arranged_rows);
  const Bytes moved(
      std::max(b_.tensor_at(rows).bytes().base(), seconds * device.bandwidth.base() / 2));
  return w_
      .compute(OpKind::kCopyColumns, fmt::format("embedding.{}.{}", name_of(r), name),
               {batch_, b_.tensor_at(rows).columns})
      .in({rows})
      .out({rows})
      .work(Flops{}, moved, moved);
}

TensorId LayeredStep::assemble(TensorId bottom) {
  for (const EmbeddingRoute r : kAllRoutes) {
    if (arranges(r)) {
      arrange(r, "arrange", route(r).arrived);
      w_.follows(route(r).ready);
      route(r).ready = kNoOp;
    }
  }
  const TensorId stacked = b_.activation("features", batch_, stack_width_, compute_);
  std::vector<TensorId> in;
  std::vector<ColumnBlock> blocks;
  double read = 0;
  if (bottom != kNoTensor) {
    in.push_back(bottom);
    blocks.push_back(
        {.from_pitch = before_tables_, .to_pitch = stack_width_, .columns = before_tables_});
    read = b_.tensor_at(bottom).bytes().base();
  }
  std::vector<TensorId> added;
  std::vector<ColumnBlock> additions;
  double more = 0;
  for (const EmbeddingRoute r : kAllRoutes) {
    if (!route(r).present) {
      continue;
    }
    const double column = real(batch_) * element_bytes(b_.tensor_at(route(r).arrived).format);
    const auto take = [&](bool first, std::vector<TensorId>& operands, std::vector<ColumnBlock>& to,
                          double& bytes) {
      const auto part = column_blocks(r, static_cast<std::int32_t>(operands.size()), true, first);
      to.insert(to.end(), part.begin(), part.end());
      for (const ColumnBlock& block : part) {
        bytes += column * real(block.columns);
      }
      if (!part.empty()) {
        operands.push_back(route(r).arrived);
      }
    };
    take(true, in, blocks, read);
    take(false, added, additions, more);
  }
  w_.compute(OpKind::kCopyColumns, "features.assemble", {batch_, stack_width_})
      .attributes(ColumnAttributes{b_.column_copy(std::move(blocks))})
      .in(in)
      .out({stacked})
      .work(Flops{}, Bytes(read), b_.tensor_at(stacked).bytes());
  for (const EmbeddingRoute r : kAllRoutes) {
    w_.follows(route(r).ready);
  }
  if (!additions.empty()) {  // the other row ranges of the same columns
    double columns = 0;
    for (const ColumnBlock& block : additions) {
      columns += real(block.columns);
    }
    const double stack_bytes = real(batch_) * columns * element_bytes(compute_);
    w_.compute(OpKind::kCopyColumns, "features.add_ranges", {batch_, rounded(columns)})
        .flags(op_flags::kAccumulate)
        .attributes(ColumnAttributes{b_.column_copy(std::move(additions))})
        .in(added)
        .out({stacked})
        .work(Flops{}, Bytes(more + stack_bytes), Bytes(stack_bytes));
  }
  return stacked;
}

TensorId LayeredStep::split(TensorId d_stack) {
  TensorId d_bottom = kNoTensor;
  std::vector<TensorId> out;
  std::vector<ColumnBlock> blocks;
  double written = 0;
  if (before_tables_ > 0) {
    d_bottom = b_.activation("bottom.gradient", batch_, before_tables_, compute_);
    out.push_back(d_bottom);
    blocks.push_back(
        {.from_pitch = stack_width_, .to_pitch = before_tables_, .columns = before_tables_});
    written = b_.tensor_at(d_bottom).bytes().base();
  }
  for (const EmbeddingRoute r : kAllRoutes) {
    if (route(r).present) {
      const auto part = column_blocks(r, static_cast<std::int32_t>(out.size()), false);
      blocks.insert(blocks.end(), part.begin(), part.end());
      out.push_back(route(r).d_arrived);
      written += b_.tensor_at(route(r).d_arrived).bytes().base();
    }
  }
  w_.compute(OpKind::kCopyColumns, "features.split", {batch_, stack_width_})
      .attributes(ColumnAttributes{b_.column_copy(std::move(blocks))})
      .in({d_stack})
      .out(out)
      .work(Flops{}, b_.tensor_at(d_stack).bytes(), Bytes(written));
  for (const EmbeddingRoute r : kAllRoutes) {
    if (arranges(r)) {
      arrange(r, "gradient.arrange", route(r).d_arrived);
    }
  }
  split_ = w_.written();
  return d_bottom;
}

void LayeredStep::exchange_gradients() {
  for (const EmbeddingRoute r : kAllRoutes) {
    if (route(r).present && !is_local(r)) {
      exchange_gradient(r);
    }
  }
}

void LayeredStep::exchange_gradient(EmbeddingRoute r) {
  Route& of = route(r);
  OpId start = split_;
  if (is_sequence(r)) {
    const SequenceSizes n = sequence_sizes(r);
    const double wire = element_bytes(job_.formats.all_to_all_backward);
    w_.compute(OpKind::kSequencePoolBackward, fmt::format("embedding.{}.pool_backward", name_of(r)),
               {rounded(n.lookups), rounded(n.bags), rounded(n.bag_elements / real(batch_))})
        .attributes(PoolAttributes{r})
        .in({of.d_arrived, indices_.sent_lengths})
        .out({of.d_between})
        .work(Flops(n.looked_up_elements),
              Bytes(n.bag_elements * element_bytes(compute_) + n.bags * kLengthBytes),
              Bytes(n.looked_up_elements * wire));
    start = w_.written();
  }
  if (in_towers(r)) {
    exchange_tower_gradients(start);
    return;
  }
  const auto collective = [&](OpKind kind, const char* name, std::int64_t elements,
                              std::int32_t communicator, TensorId in, TensorId out,
                              std::int32_t exchange = -1) {
    w_.op(Channel::kExchange, kind, fmt::format("embedding.{}.{}", name_of(r), name),
          {elements, kind == OpKind::kAllToAllV ? row_elements(r) : 0})
        .attributes(CollectiveAttributes{.exchange = exchange, .route = r})
        .format(job_.formats.all_to_all_backward)
        .traffic(TrafficKind::kGradients)
        .communicator(communicator)
        .in({in})
        .out({out});
    w_.follows(start);
  };
  const bool by_node = is_node_reduce(r);
  const bool copies = has_copies(r);
  if (r == EmbeddingRoute::kReduce || kind_of(r) == EmbeddingRoute::kGroupReduce) {
    collective(OpKind::kAllGather, "gradient.all_gather", rounded(samples_of(r)) * of.width,
               copies ? group_of(r) : comm_.exchange, of.d_arrived, of.d_output);
    of.d_ready = w_.written();
    return;
  }
  const std::int64_t peers = by_node  ? devices() / layout_.group_of(r)
                             : copies ? layout_.group_of(r)
                                      : devices();
  Exchange e;
  double elements = 0;
  for (std::int64_t peer = 0; peer < peers; ++peer) {
    const auto owner = static_cast<std::int32_t>(copies ? layout_.peers(r, rank_)[0] + peer
                                                        : peer * (devices() / peers));
    const auto [to_peer, fresh] = sent_.gradients.try_emplace({r, owner}, 0);
    if (fresh) {
      for (const std::int32_t id : layout_.held_by(owner, r)) {
        const EmbeddingSlice& s = slice(id);
        to_peer->second += is_sequence(r) ? rows_back(id, owner, real(batch_)) * real(s.dim)
                                          : real(batch_ * s.width());
      }
    }
    e.send_elements.push_back(to_peer->second);
    elements += to_peer->second;
  }
  const TensorId in = is_sequence(r) ? of.d_between : of.d_arrived;
  collective(OpKind::kAllToAllV, "gradient.all_to_all", rounded(elements),
             by_node  ? comm_.node.at(level_of(r)).across
             : copies ? group_of(r)
                      : comm_.exchange,
             in, by_node ? of.d_between : of.d_output, b_.exchange(std::move(e)));
  if (by_node && of.width > 0) {
    collective(OpKind::kAllGather, "gradient.all_gather", global_batch_ * of.width,
               comm_.node.at(level_of(r)).inside, of.d_between, of.d_output);
  }
  of.d_ready = w_.written();
}

/// Dense gradients of rows with copies; they are all-reduced before the optimizer.
void LayeredStep::dense_gradient(EmbeddingRoute r) {
  const Route& of = route(r);
  if (of.width == 0) {
    return;
  }
  std::vector<TensorId> gradients;
  std::vector<std::size_t> complete;
  double elements = 0;
  double touched = 0;
  double ids = 0;  // bytes
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    if (parameters_[p].slice >= 0 && slice(parameters_[p].slice).route == r) {
      const EmbeddingSlice& s = slice(parameters_[p].slice);
      const double lookups = travelling(parameters_[p].slice, rank_, samples_of(r));
      elements += lookups * real(s.dim);
      touched += distinct_rows(parameters_[p].slice, rank_, samples_of(r)) * real(s.dim);
      ids += lookups * id_bytes(table(s));
      gradients.push_back(parameters_[p].gradient);
      complete.push_back(p);
    }
  }
  const double gradient_bytes = touched * element_bytes(job_.formats.gradient);
  const double arrived = elements * element_bytes(b_.tensor_at(of.d_output).format);

  w_.compute(OpKind::kEmbeddingGradient, fmt::format("embedding.{}.gradient", name_of(r)),
             {rounded(of.lookups), rounded(of.bags), of.width})
      .format(of.format)
      .attributes(EmbeddingAttributes{.group = of.group, .order = order_of(r), .route = r})
      .in(is_local(r) ? std::vector<TensorId>{of.d_arrived} : indices_.read(of.d_output))
      .out(gradients)
      .work(Flops(elements), Bytes(arrived + ids + gradient_bytes), Bytes(gradient_bytes));
  w_.follows(of.d_ready);
  gradients_done(complete);
}

void LayeredStep::embedding_backward() {
  // Copies first: their gradients are reduced while the other rows are updated.
  for (const EmbeddingRoute r : kAllRoutes) {
    if (has_copies(r)) {
      dense_gradient(r);
    }
  }
  for (const EmbeddingRoute r : kAllRoutes) {
    Route& of = route(r);
    if (of.width == 0 || is_synchronised(r)) {
      continue;
    }
    const double samples = samples_of(r);
    double gathered = 0;
    double updated = 0;
    double elements = 0;
    double ids = 0;  // bytes
    for (const std::int32_t id : of.slices) {
      const EmbeddingSlice& s = slice(id);
      const double lookups = travelling(id, rank_, samples);
      elements += lookups * real(s.dim);
      gathered += lookups * real(s.dim) * element_bytes(b_.tensor_at(of.d_output).format);
      updated += distinct_rows(id, rank_, samples) * (row_bytes(s).base() + state_bytes(s.dim));
      ids += lookups * id_bytes(table(s));
    }
    w_.compute(OpKind::kEmbeddingBackward, fmt::format("embedding.{}.backward", name_of(r)),
               {rounded(of.lookups), rounded(of.bags), of.width})
        .format(of.format)
        .attributes(EmbeddingAttributes{.group = of.group,
                                        .order = order_of(r),
                                        .route = r,
                                        .optimizer = job_.embedding_optimizer})
        .in(is_local(r) ? std::vector<TensorId>{of.d_output} : indices_.read(of.d_output))
        .work(Flops(elements), Bytes(gathered + ids + updated), Bytes(updated));
    w_.follows(of.d_ready);
    write_rows_back(r, w_.written());
  }
}

}  // namespace stepcast::workloads
