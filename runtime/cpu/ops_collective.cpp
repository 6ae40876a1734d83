#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "runtime/cpu/op_context.h"

namespace stepcast::runtime::cpu {
namespace {

/// Several tensors seen as one buffer. They usually lie side by side (TensorStorage places them
/// so); else the buffer is a packed copy in scratch memory.
class Joined {
 public:
  Joined(const OpContext& c, std::span<const TensorId> ids, std::size_t scratch_offset)
      : context_(c), ids_(ids) {
    bool side_by_side = true;
    for (const TensorId id : ids) {
      const Matrix m = c.tensor(id);
      side_by_side = side_by_side && (count_ == 0 || m.data == data_ + count_);
      data_ = count_ == 0 ? m.data : data_;
      count_ += static_cast<std::size_t>(m.elements());
    }
    packed_ = !side_by_side;
    if (packed_) {
      data_ = c.scratch_floats(scratch_offset + count_) + scratch_offset;
    }
  }
  [[nodiscard]] float* data() const { return data_; }
  [[nodiscard]] std::size_t count() const { return count_; }
  /// Scratch this buffer occupies. Both buffers of an op must be laid out before either is packed.
  [[nodiscard]] std::size_t scratch() const { return packed_ ? count_ : 0; }
  void rebase(float* scratch) { data_ = packed_ ? scratch : data_; }

  void pack() const {
    float* next = data_;
    for (std::size_t i = 0; packed_ && i < ids_.size(); ++i) {
      const Matrix m = context_.tensor(ids_[i]);
      next = std::copy_n(m.data, m.elements(), next);
    }
  }
  void unpack() const {
    const float* next = data_;
    for (std::size_t i = 0; packed_ && i < ids_.size(); ++i) {
      const Matrix m = context_.tensor(ids_[i]);
      std::copy_n(next, m.elements(), m.data);
      next += m.elements();
    }
  }

 private:
  const OpContext& context_;
  std::span<const TensorId> ids_;
  float* data_ = nullptr;
  std::size_t count_ = 0;
  bool packed_ = false;
};

/// Input and output buffers of an op.
struct Buffers {
  explicit Buffers(const OpContext& c)
      : in(c, c.program.inputs(c.op), 0), out(c, c.program.outputs(c.op), in.scratch()) {
    if (in.scratch() > 0) {
      in.rebase(c.scratch_floats(in.scratch() + out.scratch()));  // it may have moved
      out.rebase(in.data() + in.scratch());
    }
    in.pack();
  }
  Joined in;
  Joined out;
};

std::size_t elements_of(const OpContext& c, std::size_t available) {
  const auto n = static_cast<std::size_t>(c.op.shape[0]);
  STEPCAST_CHECK(n <= available, "'{}' moves {} elements of a buffer of {}", c.program.name(c.op),
                 n, available);
  return n;
}

std::size_t per_rank(const OpContext& c, std::size_t total) {
  const auto ranks = static_cast<std::size_t>(c.collectives->size());
  STEPCAST_CHECK(total % ranks == 0, "'{}' splits {} elements over {} ranks", c.program.name(c.op),
                 total, ranks);
  return total / ranks;
}

double share_of_others(const OpContext& c) {
  const double n = c.collectives->size();
  return (n - 1) / n;
}

double wire_bytes(double elements) { return elements * static_cast<double>(sizeof(float)); }

void all_reduce(OpContext& c) {
  const Buffers b(c);
  const std::size_t n = elements_of(c, b.out.count());
  if (b.in.data() != b.out.data()) {
    std::copy_n(b.in.data(), n, b.out.data());
  }
  const auto reduction = static_cast<Collectives::Reduction>(c.op.variant);
  c.collectives->all_reduce(b.out.data(), n, reduction);
  b.out.unpack();
  c.bytes_sent = wire_bytes(2 * static_cast<double>(n) * share_of_others(c));
}

void all_gather(OpContext& c) {
  const Buffers b(c);
  const std::size_t n = elements_of(c, b.out.count());
  const std::size_t part = per_rank(c, n);
  const auto rank = static_cast<std::size_t>(c.collectives->rank());
  const bool in_place = b.in.data() == b.out.data();  // the own part stands where it belongs
  const float* send = in_place ? b.out.data() + rank * part : b.in.data();
  c.collectives->all_gather(send, b.out.data(), part);
  b.out.unpack();
  c.bytes_sent = wire_bytes(static_cast<double>(n) * share_of_others(c));
}

void reduce_scatter(OpContext& c) {
  const Buffers b(c);
  const std::size_t n = elements_of(c, b.in.count());
  const std::size_t part = per_rank(c, n);
  STEPCAST_CHECK(part <= b.out.count(), "'{}' writes {} elements into {}", c.program.name(c.op),
                 part, b.out.count());
  const auto rank = static_cast<std::size_t>(c.collectives->rank());
  const bool in_place = b.in.data() == b.out.data();
  c.collectives->reduce_scatter(b.in.data(), in_place ? b.out.data() + rank * part : b.out.data(),
                                part);
  b.out.unpack();
  c.bytes_sent = wire_bytes(static_cast<double>(n) * share_of_others(c));
}

void all_to_all(OpContext& c) {
  const Buffers b(c);
  const std::size_t n = elements_of(c, b.in.count());
  const auto part = static_cast<std::int64_t>(per_rank(c, n));
  const auto ranks = static_cast<std::size_t>(c.collectives->size());
  std::vector<std::int64_t> counts(ranks, part);
  std::vector<std::int64_t> offsets(ranks);
  for (std::size_t i = 0; i < ranks; ++i) {
    offsets[i] = static_cast<std::int64_t>(i) * part;
  }
  c.collectives->all_to_all_v(b.in.data(), counts, offsets, b.out.data(), counts, offsets,
                              sizeof(float));
  b.out.unpack();
  c.bytes_sent = wire_bytes(static_cast<double>(n) * share_of_others(c));
}

void broadcast(OpContext& c) {
  const Joined buffer(c, c.op.outputs > 0 ? c.program.outputs(c.op) : c.program.inputs(c.op), 0);
  const std::size_t n = elements_of(c, buffer.count());
  buffer.pack();
  c.collectives->broadcast(buffer.data(), n, c.op.peer);
  buffer.unpack();
  c.bytes_sent = c.collectives->rank() == c.op.peer ? wire_bytes(static_cast<double>(n)) : 0;
}

void send(OpContext& c) {
  STEPCAST_CHECK(c.op.inputs == 1, "'{}' sends {} tensors", c.program.name(c.op), c.op.inputs);
  const Matrix m = c.input(0);
  const std::size_t n = elements_of(c, static_cast<std::size_t>(m.elements()));
  c.collectives->post_send(m.data, n, c.op.peer, static_cast<int>(c.op.shape[1]));
  c.bytes_sent = wire_bytes(static_cast<double>(n));
}

void receive(OpContext& c) {
  const Matrix m = c.output(0);
  const std::size_t n = elements_of(c, static_cast<std::size_t>(m.elements()));
  c.collectives->receive(m.data, n, c.op.peer, static_cast<int>(c.op.shape[1]));
}

void barrier(OpContext& c) { c.collectives->barrier(); }

}  // namespace

OpFamily collective_ops() {
  return {{{OpKind::kAllReduce, all_reduce},
           {OpKind::kAllGather, all_gather},
           {OpKind::kReduceScatter, reduce_scatter},
           {OpKind::kAllToAll, all_to_all},
           {OpKind::kBroadcast, broadcast},
           {OpKind::kSend, send},
           {OpKind::kRecv, receive},
           {OpKind::kBarrier, barrier}},
          nullptr};
}

}  // namespace stepcast::runtime::cpu
