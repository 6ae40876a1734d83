#pragma once
#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/program.h"

namespace stepcast {

/// Writes a Program op by op, in issue order; workloads use nothing else. Work (FLOPs, bytes) is
/// filled from the shape.
///
///   ProgramBuilder b;
///   b.begin_segment("forward");
///   b.op(OpKind::kGemm, "mlp.0", {m, n, k, 1}).in({x, w}).out({y});
///   b.end_segment();
///   b.call("forward", microbatch);
///   Program p = std::move(b).finish();
class ProgramBuilder {
 public:
  /// Refers to an op under construction; valid until the next op is added.
  class OpEdit {
   public:
    OpEdit& in(std::initializer_list<TensorId> ids) {
      return in(std::span(ids.begin(), ids.end()));
    }
    OpEdit& in(std::span<const TensorId> ids);
    OpEdit& out(std::initializer_list<TensorId> ids) {
      return out(std::span(ids.begin(), ids.end()));
    }
    OpEdit& out(std::span<const TensorId> ids);  ///< after in()
    OpEdit& on(std::string_view stream);
    OpEdit& phase(Phase p) {
      op().phase = p;
      return *this;
    }
    OpEdit& format(Format f);
    OpEdit& flags(std::uint8_t f);
    /// Errors: InternalError for those of another kind.
    OpEdit& attributes(const OpAttributes& a);
    OpEdit& communicator(std::int32_t c, std::int32_t peer = -1) {
      op().communicator = c;
      op().peer = peer;
      return *this;
    }
    OpEdit& routing(std::int32_t r) {
      op().routing = r;
      op().traffic = r >= 0 ? TrafficKind::kExperts : op().traffic;
      return *this;
    }
    OpEdit& traffic(TrafficKind kind) {
      op().traffic = kind;
      return *this;
    }
    OpEdit& waits(std::int32_t event);
    OpEdit& records(std::int32_t event) {
      op().record = event;
      return *this;
    }
    /// Overrides the work of kinds whose work does not follow from the shape (embeddings, copies
    /// with unusual traffic).
    OpEdit& work(Flops flops, Bytes read, Bytes written);
    [[nodiscard]] Op& op() { return builder_.program_.ops.back(); }

   private:
    friend class ProgramBuilder;
    explicit OpEdit(ProgramBuilder& builder) : builder_(builder) {}
    ProgramBuilder& builder_;
  };

  explicit ProgramBuilder(std::vector<std::string> streams = {"compute"});
  /// Writes a program of which there are tensors, side tables and names, but no ops yet.
  explicit ProgramBuilder(Program begun);

  TensorId tensor(Tensor t);
  /// Tensor::tier of a slower memory tier, by its name.
  std::uint8_t tier(std::string_view name);
  [[nodiscard]] const std::string& tier_name(std::uint8_t tier) const {
    return program_.tiers.at(tier - std::size_t{1});
  }
  TensorId activation(std::string name, std::int64_t rows, std::int64_t columns,
                      Format f);  ///< per microbatch
  TensorId buffer(std::string name, std::int64_t rows, std::int64_t columns, Format f);
  /// A parameter with its gradient; both [rows, columns]. `piece` describes the initial values.
  struct Parameter {
    TensorId weight;
    TensorId gradient;
  };
  Parameter parameter(const std::string& name, std::int64_t rows, std::int64_t columns,
                      Format weight_format, Format gradient_format,
                      std::vector<ParameterPiece> pieces);

  void set_phase(Phase p) { phase_ = p; }  ///< default of the ops that follow
  void set_format(Format f) { format_ = f; }
  /// Op::layer of the ops that follow in the segment; negative: none.
  void set_layer(std::int64_t layer) {
    layer_ = static_cast<std::int16_t>(std::max<std::int64_t>(layer, kNoLayer));
  }
  [[nodiscard]] std::int64_t layer() const { return layer_; }
  OpEdit op(OpKind kind, std::string_view name, std::initializer_list<std::int64_t> shape);
  /// An op as it is, but for its operands and its name.
  void copy(const Op& op, std::uint32_t name, std::span<const TensorId> in,
            std::span<const TensorId> out);
  /// Op::name.
  std::uint32_t name(std::string_view text);
  std::int32_t event() { return program_.events++; }
  std::int32_t embedding_group(EmbeddingGroup g);
  std::int32_t exchange(Exchange e);
  std::int32_t routing(ExpertRouting r) {
    program_.routings.push_back(std::move(r));
    return static_cast<std::int32_t>(program_.routings.size() - 1);
  }
  std::int32_t column_copy(std::vector<ColumnBlock> blocks) {
    program_.column_copies.push_back(std::move(blocks));
    return static_cast<std::int32_t>(program_.column_copies.size() - 1);
  }

  /// Returns the segment's index.
  std::uint32_t begin_segment(std::string name, SegmentKind kind = SegmentKind::kOther,
                              MicrobatchRole microbatches = MicrobatchRole::kAny);
  void end_segment();
  void call(std::uint32_t segment, std::int32_t microbatch = 0);
  void set_microbatches(std::int32_t n) { program_.microbatches = n; }
  void set_interval(std::int64_t steps) { program_.interval = steps; }
  [[nodiscard]] const Tensor& tensor_at(TensorId id) const { return program_.tensors[id]; }
  [[nodiscard]] std::size_t tensors() const { return program_.tensors.size(); }
  void set_purpose(TensorId id, TensorPurpose purpose) { program_.tensors[id].purpose = purpose; }
  /// Tensor::master of a parameter.
  void set_master(TensorId parameter, TensorId master) {
    program_.tensors[parameter].master = static_cast<std::int32_t>(master);
  }

  /// Checks the promises (segments closed, operands declared, waits recorded somewhere) and hands
  /// over the program.
  Program finish() &&;

 private:
  Program program_;
  /// Open addressing over the program's names: index + 1, 0 where none is.
  [[nodiscard]] std::uint32_t& name_slot(std::string_view text);
  std::vector<std::uint32_t> name_slots_;
  Phase phase_ = Phase::kForward;
  Format format_ = Format::kFp32;
  std::int16_t layer_ = kNoLayer;
  bool open_ = false;
};

/// Stable 64-bit hash of a parameter's global name (FNV-1a); the key of ParameterPiece.
std::uint64_t parameter_key(std::string_view name);

}  // namespace stepcast
