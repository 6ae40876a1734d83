#include <algorithm>

#include "core/error.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/nccl_exchange.h"
#include "runtime/cuda/op_context.h"

namespace stepcast::runtime::cuda {
namespace {

using kernels::MatrixView;

/// Several tensors of one format seen as one buffer. They usually lie side by side (tensor_layout
/// places them so); else the buffer is a packed copy in scratch memory.
class Joined {
 public:
  Joined(const OpContext& c, std::span<const TensorId> ids) : context_(c), ids_(ids) {
    bool side_by_side = true;
    for (const TensorId id : ids) {
      const MatrixView m = c.tensor(id);
      side_by_side = side_by_side && (count_ == 0 || m.data == data_ + count_ * element_);
      data_ = count_ == 0 ? static_cast<char*>(m.data) : data_;
      format_ = count_ == 0 ? m.format : format_;
      STEPCAST_CHECK(m.format == format_, "'{}' moves tensors of several formats",
                     c.program.name(c.op));
      element_ = stored_bytes(format_);
      count_ += static_cast<std::size_t>(m.elements());
    }
    packed_ = !side_by_side;
  }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] void* at(std::size_t element) const { return data_ + element * element_; }
  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] Format format() const { return format_; }
  [[nodiscard]] std::size_t element_bytes() const { return element_; }
  [[nodiscard]] std::size_t scratch() const {
    return packed_ ? (count_ * element_ + 255) / 256 * 256 : 0;
  }
  void place(char* scratch) { data_ = packed_ ? scratch : data_; }
  void pack() const { copy(true); }
  void unpack() const { copy(false); }

 private:
  void copy(bool into) const {
    char* next = data_;
    for (std::size_t i = 0; packed_ && i < ids_.size(); ++i) {
      const MatrixView m = context_.tensor(ids_[i]);
      const std::size_t bytes = static_cast<std::size_t>(m.elements()) * element_;
      check(cudaMemcpyAsync(into ? next : m.data, into ? m.data : next, bytes,
                            cudaMemcpyDeviceToDevice, context_.stream),
            "cudaMemcpyAsync");
      next += bytes;
    }
  }

  const OpContext& context_;
  std::span<const TensorId> ids_;
  char* data_ = nullptr;
  std::size_t count_ = 0;
  std::size_t element_ = 4;
  Format format_ = Format::kFp32;
  bool packed_ = false;
};

/// Input and output buffers of an op.
struct Buffers {
  explicit Buffers(const OpContext& c)
      : in(c, c.program.inputs(c.op)), out(c, c.program.outputs(c.op)) {
    STEPCAST_CHECK(in.count() == 0 || out.count() == 0 || in.format() == out.format(),
                   "'{}' changes the format from {} to {}", c.program.name(c.op),
                   name_of(in.format()), name_of(out.format()));
    if (in.scratch() + out.scratch() > 0) {
      auto* scratch = static_cast<char*>(c.workspace(in.scratch() + out.scratch()).data);
      in.place(scratch);
      out.place(scratch + in.scratch());
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
  const auto ranks = static_cast<std::size_t>(c.communicator->size());
  STEPCAST_CHECK(total % ranks == 0, "'{}' splits {} elements over {} ranks", c.program.name(c.op),
                 total, ranks);
  return total / ranks;
}

double sent(const OpContext& c, std::size_t elements, std::size_t element_bytes, double times) {
  const double n = c.communicator->size();
  return times * static_cast<double>(elements * element_bytes) * (n - 1) / n;
}

void all_reduce(OpContext& c) {
  const Buffers b(c);
  const std::size_t n = elements_of(c, std::min(b.in.count(), b.out.count()));
  c.communicator->complete(
      ncclAllReduce(b.in.data(), b.out.data(), n, nccl_type(b.in.format()),
                    c.op.variant == 1 ? ncclMax : ncclSum, c.communicator->handle(), c.stream),
      "ncclAllReduce");
  b.out.unpack();
  c.bytes_sent = sent(c, n, b.in.element_bytes(), 2);
}

void all_gather(OpContext& c) {
  const Buffers b(c);
  const std::size_t n = elements_of(c, b.out.count());
  const std::size_t part = per_rank(c, n);
  const bool in_place = b.in.data() == b.out.data();  // the own part stands where it belongs
  const void* send =
      in_place ? b.out.at(static_cast<std::size_t>(c.communicator->rank()) * part) : b.in.data();
  c.communicator->complete(ncclAllGather(send, b.out.data(), part, nccl_type(b.out.format()),
                                         c.communicator->handle(), c.stream),
                           "ncclAllGather");
  b.out.unpack();
  c.bytes_sent = sent(c, n, b.out.element_bytes(), 1);
}

void reduce_scatter(OpContext& c) {
  const Buffers b(c);
  const std::size_t n = elements_of(c, b.in.count());
  const std::size_t part = per_rank(c, n);
  STEPCAST_CHECK(part <= b.out.count(), "'{}' writes {} elements into {}", c.program.name(c.op),
                 part, b.out.count());
  const bool in_place = b.in.data() == b.out.data();
  void* receive =
      in_place ? b.out.at(static_cast<std::size_t>(c.communicator->rank()) * part) : b.out.data();
  c.communicator->complete(ncclReduceScatter(b.in.data(), receive, part, nccl_type(b.in.format()),
                                             ncclSum, c.communicator->handle(), c.stream),
                           "ncclReduceScatter");
  b.out.unpack();
  c.bytes_sent = sent(c, n, b.in.element_bytes(), 1);
}

void all_to_all(OpContext& c) {
  const Buffers b(c);
  const std::size_t n = elements_of(c, std::min(b.in.count(), b.out.count()));
  const auto part = static_cast<std::int64_t>(per_rank(c, n));
  const auto ranks = static_cast<std::size_t>(c.communicator->size());
  const std::vector<std::int64_t> counts(ranks, part);
  all_to_all_v(*c.communicator, b.in.data(), counts, b.out.data(), counts, nccl_type(b.in.format()),
               b.in.element_bytes(), c.stream);
  b.out.unpack();
  c.bytes_sent = sent(c, n, b.in.element_bytes(), 1);
}

void broadcast(OpContext& c) {
  Joined buffer(c, c.op.outputs > 0 ? c.program.outputs(c.op) : c.program.inputs(c.op));
  if (buffer.scratch() > 0) {
    buffer.place(static_cast<char*>(c.workspace(buffer.scratch()).data));
  }
  const std::size_t n = elements_of(c, buffer.count());
  buffer.pack();
  c.communicator->complete(
      ncclBroadcast(buffer.data(), buffer.data(), n, nccl_type(buffer.format()), c.op.peer,
                    c.communicator->handle(), c.stream),
      "ncclBroadcast");
  buffer.unpack();
  c.bytes_sent =
      c.communicator->rank() == c.op.peer ? static_cast<double>(n * buffer.element_bytes()) : 0;
}

/// `stream` is the one the pair's messages go out on, not the op's own: a send does not hold back
/// what follows it.
void send(OpContext& c) {
  STEPCAST_CHECK(c.op.inputs == 1, "'{}' sends {} tensors", c.program.name(c.op), c.op.inputs);
  const MatrixView m = c.input(0);
  const std::size_t n = elements_of(c, static_cast<std::size_t>(m.elements()));
  c.communicator->complete(
      ncclSend(m.data, n, nccl_type(m.format), 1, c.communicator->handle(), c.stream), "ncclSend");
  c.bytes_sent = static_cast<double>(n * stored_bytes(m.format));
}

void receive(OpContext& c) {
  const MatrixView m = c.output(0);
  const std::size_t n = elements_of(c, static_cast<std::size_t>(m.elements()));
  c.communicator->complete(
      ncclRecv(m.data, n, nccl_type(m.format), 0, c.communicator->handle(), c.stream), "ncclRecv");
}

void barrier(OpContext& c) {
  float* one = static_cast<float*>(c.workspace(sizeof(float)).data);
  c.communicator->complete(
      ncclAllReduce(one, one, 1, ncclFloat32, ncclSum, c.communicator->handle(), c.stream),
      "ncclAllReduce (barrier)");
}

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

}  // namespace stepcast::runtime::cuda
