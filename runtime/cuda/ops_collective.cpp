#include <algorithm>

#include "core/error.h"
#include "runtime/collective_buffers.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/nccl_exchange.h"
#include "runtime/cuda/op_context.h"

namespace stepcast::runtime::cuda {

// Tensors lie in device memory and copies are enqueued (runtime/collective_buffers.h).
static StoredTensor stored(const OpContext& c, TensorId id) {
  const kernels::MatrixView m = c.tensor(id);
  return {static_cast<char*>(m.data), static_cast<std::size_t>(m.elements()),
          stored_bytes(m.format), m.format};
}
static void copy(const OpContext& c, void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, c.stream), "cudaMemcpyAsync");
}
static char* scratch(const OpContext& c, std::size_t bytes) {
  return static_cast<char*>(c.workspace(bytes).data);
}
static std::size_t members(const OpContext& c) {
  return static_cast<std::size_t>(c.communicator->size());
}

namespace {

using kernels::MatrixView;
using Joined = JoinedTensors<OpContext>;
using Buffers = CollectiveBuffers<OpContext>;

void all_reduce(OpContext& c) {
  const Buffers b(c);
  const std::size_t n = elements_of(c, std::min(b.in.count(), b.out.count()));
  const bool largest = c.op.as<CollectiveAttributes>().reduction == Reduction::kMax;
  c.communicator->complete(
      ncclAllReduce(b.in.data(), b.out.data(), n, nccl_type(b.in.format()),
                    largest ? ncclMax : ncclSum, c.communicator->handle(), c.stream),
      "ncclAllReduce");
  b.out.unpack();
  c.bytes_sent = bytes_sent(c, n, b.in.element_bytes(), 2);
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
  c.bytes_sent = bytes_sent(c, n, b.out.element_bytes(), 1);
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
  c.bytes_sent = bytes_sent(c, n, b.in.element_bytes(), 1);
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
  c.bytes_sent = bytes_sent(c, n, b.in.element_bytes(), 1);
}

void broadcast(OpContext& c) {
  Joined buffer(c, c.op.outputs > 0 ? c.program.outputs(c.op) : c.program.inputs(c.op));
  buffer.place();
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

OpFamily collective_ops() { return {{STEPCAST_COLLECTIVE_OPS(STEPCAST_OP)}, nullptr}; }

}  // namespace stepcast::runtime::cuda
