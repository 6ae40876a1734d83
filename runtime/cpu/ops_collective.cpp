#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "runtime/collective_buffers.h"
#include "runtime/cpu/op_context.h"

namespace stepcast::runtime::cpu {

// Tensors are fp32 and copied at once (runtime/collective_buffers.h).
static StoredTensor stored(const OpContext& c, TensorId id) {
  const Matrix m = c.tensor(id);
  return {reinterpret_cast<char*>(m.data), static_cast<std::size_t>(m.elements())};
}
static void copy(const OpContext& /*c*/, void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
static char* scratch(const OpContext& c, std::size_t bytes) {
  return reinterpret_cast<char*>(c.scratch_floats((bytes + 3) / 4));
}
static std::size_t members(const OpContext& c) {
  return static_cast<std::size_t>(c.collectives->size());
}

namespace {

using Joined = JoinedTensors<OpContext>;
using Buffers = CollectiveBuffers<OpContext>;

float* floats(const Joined& buffer, std::size_t element = 0) {
  return reinterpret_cast<float*>(buffer.at(element));
}

double sent(const OpContext& c, std::size_t elements, double times) {
  return bytes_sent(c, elements, sizeof(float), times);
}

void all_reduce(OpContext& c) {
  const Buffers b(c);
  const std::size_t n = elements_of(c, b.out.count());
  if (b.in.data() != b.out.data()) {
    std::copy_n(floats(b.in), n, floats(b.out));
  }
  const auto reduction = c.op.as<CollectiveAttributes>().reduction;
  c.collectives->all_reduce(floats(b.out), n, reduction);
  b.out.unpack();
  c.bytes_sent = sent(c, n, 2);
}

void all_gather(OpContext& c) {
  const Buffers b(c);
  const std::size_t n = elements_of(c, b.out.count());
  const std::size_t part = per_rank(c, n);
  const auto rank = static_cast<std::size_t>(c.collectives->rank());
  const bool in_place = b.in.data() == b.out.data();  // the own part stands where it belongs
  const float* send = in_place ? floats(b.out, rank * part) : floats(b.in);
  c.collectives->all_gather(send, floats(b.out), part);
  b.out.unpack();
  c.bytes_sent = sent(c, n, 1);
}

void reduce_scatter(OpContext& c) {
  const Buffers b(c);
  const std::size_t n = elements_of(c, b.in.count());
  const std::size_t part = per_rank(c, n);
  STEPCAST_CHECK(part <= b.out.count(), "'{}' writes {} elements into {}", c.program.name(c.op),
                 part, b.out.count());
  const auto rank = static_cast<std::size_t>(c.collectives->rank());
  const bool in_place = b.in.data() == b.out.data();
  c.collectives->reduce_scatter(floats(b.in), floats(b.out, in_place ? rank * part : 0), part);
  b.out.unpack();
  c.bytes_sent = sent(c, n, 1);
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
  c.bytes_sent = sent(c, n, 1);
}

void broadcast(OpContext& c) {
  Joined buffer(c, c.op.outputs > 0 ? c.program.outputs(c.op) : c.program.inputs(c.op));
  buffer.place();
  const std::size_t n = elements_of(c, buffer.count());
  buffer.pack();
  c.collectives->broadcast(floats(buffer), n, c.op.peer);
  buffer.unpack();
  c.bytes_sent = c.collectives->rank() == c.op.peer ? static_cast<double>(n * sizeof(float)) : 0;
}

void send(OpContext& c) {
  STEPCAST_CHECK(c.op.inputs == 1, "'{}' sends {} tensors", c.program.name(c.op), c.op.inputs);
  const Matrix m = c.input(0);
  const std::size_t n = elements_of(c, static_cast<std::size_t>(m.elements()));
  c.collectives->post_send(m.data, n, c.op.peer, static_cast<int>(c.op.shape[1]));
  c.bytes_sent = static_cast<double>(n * sizeof(float));
}

void receive(OpContext& c) {
  const Matrix m = c.output(0);
  const std::size_t n = elements_of(c, static_cast<std::size_t>(m.elements()));
  c.collectives->receive(m.data, n, c.op.peer, static_cast<int>(c.op.shape[1]));
}

void barrier(OpContext& c) { c.collectives->barrier(); }

}  // namespace

OpFamily collective_ops() { return {{STEPCAST_COLLECTIVE_OPS(STEPCAST_OP)}, nullptr}; }

}  // namespace stepcast::runtime::cpu
