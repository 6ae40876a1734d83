#pragma once
#include <cstddef>
#include <span>

#include "core/error.h"
#include "core/formats.h"
#include "core/graph/program.h"

namespace stepcast::runtime {

/// One tensor as a collective sees it.
struct StoredTensor {
  char* data = nullptr;
  std::size_t elements = 0;
  std::size_t element_bytes = 4;
  Format format = Format::kFp32;
};

// Functions of a backend on its op context, found by argument-dependent lookup:
//   StoredTensor stored(const Context&, TensorId);
//   void copy(const Context&, void* to, const void* from, std::size_t bytes);  // may be enqueued
//   char* scratch(const Context&, std::size_t bytes);
//   std::size_t members(const Context&);  // of the op's communicator

/// Several tensors of one format seen as one buffer. They usually lie side by side (tensor_layout
/// places them so); else the buffer is a packed copy in scratch memory, once it has been placed.
template <class Context>
class JoinedTensors {
 public:
  JoinedTensors(const Context& c, std::span<const TensorId> ids) : context_(c), ids_(ids) {
    bool side_by_side = true;
    for (const TensorId id : ids) {
      const StoredTensor t = stored(c, id);
      if (whole_.elements == 0) {
        whole_ = {t.data, 0, t.element_bytes, t.format};
      }
      side_by_side = side_by_side && t.data == at(whole_.elements);
      STEPCAST_CHECK(t.format == whole_.format, "'{}' moves tensors of several formats",
                     c.program.name(c.op));
      whole_.elements += t.elements;
    }
    packed_ = !side_by_side;
  }
  [[nodiscard]] void* data() const { return whole_.data; }
  [[nodiscard]] char* at(std::size_t element) const {
    return whole_.data + element * whole_.element_bytes;
  }
  [[nodiscard]] std::size_t count() const { return whole_.elements; }
  [[nodiscard]] Format format() const { return whole_.format; }
  [[nodiscard]] std::size_t element_bytes() const { return whole_.element_bytes; }
  /// Scratch this buffer wants, in bytes.
  [[nodiscard]] std::size_t scratch_bytes() const {
    return packed_ ? (count() * element_bytes() + 255) / 256 * 256 : 0;
  }
  void place(char* memory) { whole_.data = packed_ ? memory : whole_.data; }
  /// In scratch memory of its own, if it wants some.
  void place() {
    if (packed_) {
      whole_.data = scratch(context_, scratch_bytes());
    }
  }
  void pack() const { copy_all(true); }
  void unpack() const { copy_all(false); }

 private:
  void copy_all(bool into) const {
    char* next = whole_.data;
    for (std::size_t i = 0; packed_ && i < ids_.size(); ++i) {
      const StoredTensor t = stored(context_, ids_[i]);
      const std::size_t bytes = t.elements * t.element_bytes;
      copy(context_, into ? next : t.data, into ? t.data : next, bytes);
      next += bytes;
    }
  }

  const Context& context_;
  std::span<const TensorId> ids_;
  StoredTensor whole_;
  bool packed_ = false;
};

/// Input and output buffers of a collective; the input is packed.
template <class Context>
struct CollectiveBuffers {
  explicit CollectiveBuffers(const Context& c)
      : in(c, c.program.inputs(c.op)), out(c, c.program.outputs(c.op)) {
    STEPCAST_CHECK(in.count() == 0 || out.count() == 0 || in.format() == out.format(),
                   "'{}' changes the format from {} to {}", c.program.name(c.op),
                   name_of(in.format()), name_of(out.format()));
    if (in.scratch_bytes() + out.scratch_bytes() > 0) {
      char* memory = scratch(c, in.scratch_bytes() + out.scratch_bytes());
      in.place(memory);
      out.place(memory + in.scratch_bytes());
    }
    in.pack();
  }
  JoinedTensors<Context> in;
  JoinedTensors<Context> out;
};

/// Elements the op moves, of a buffer that has `available`.
template <class Context>
std::size_t elements_of(const Context& c, std::size_t available) {
  const auto n = static_cast<std::size_t>(c.op.shape[0]);
  STEPCAST_CHECK(n <= available, "'{}' moves {} elements of a buffer of {}", c.program.name(c.op),
                 n, available);
  return n;
}

/// The part of each member.
template <class Context>
std::size_t per_rank(const Context& c, std::size_t total) {
  const std::size_t ranks = members(c);
  STEPCAST_CHECK(total % ranks == 0, "'{}' splits {} elements over {} ranks", c.program.name(c.op),
                 total, ranks);
  return total / ranks;
}

/// Bytes a member sends of a buffer that passes `times` times over all members but itself:
/// times * elements * bytes * (n - 1) / n.
template <class Context>
double bytes_sent(const Context& c, std::size_t elements, std::size_t element_bytes, double times) {
  const auto n = static_cast<double>(members(c));
  return times * static_cast<double>(elements * element_bytes) * (n - 1) / n;
}

}  // namespace stepcast::runtime
