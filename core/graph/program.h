#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/access/row_traffic.h"
#include "core/graph/mesh.h"
#include "core/graph/op.h"
#include "core/graph/program_fwd.h"
#include "core/graph/step_inputs.h"

namespace stepcast {

class Access;               // core/access/access.h
class RowOrder;             // core/access/row_order.h
class ExpertDraw;           // core/graph/expert_draw.h
struct EmbeddingPlacement;  // core/graph/embedding_placement.h

/// How a block of a parameter is initialised: element (i, j) of the block is a pure function of
/// (key, row + i * row_stride, column + j), so that every sharding of a model starts from the same
/// numbers.
struct ParameterPiece {
  std::uint64_t key = 0;        ///< hash of the global parameter's name
  std::int64_t row = 0;         ///< global row of the block's first row
  std::int64_t row_stride = 1;  ///< > 1 for striped rows
  std::int64_t column = 0;
  std::int64_t local_column = 0;  ///< where the block stands in the local tensor
  std::int64_t columns = 0;
  double scale = 0;  ///< uniform in [-scale, scale]; 0 and `constant` give constants
  double constant = 0;
  /// The block's first row on rank r is row + r * row_per_rank: ranks that hold different rows of a
  /// table can share a program.
  std::int64_t row_per_rank = 0;
  /// > 0: the rank counts modulo this (copies of the same rows in several groups of ranks).
  std::int64_t row_ranks = 0;
  /// Rows are popularity ranks of this law: the value is that of row id order->row_of_rank(row).
  std::shared_ptr<const Access> order = nullptr;
  /// The order that a plan brings: the value is that of row id row_order->row_at(row).
  std::shared_ptr<const RowOrder> row_order = nullptr;
  /// Offset by the rank's tensor coordinate c: row + c * tensor_row_step, column + c *
  /// tensor_column_step.
  std::int64_t tensor_row_step = 0;
  std::int64_t tensor_column_step = 0;
  /// Neighbouring tensor ranks that hold the same columns: c is divided by it, rounding down.
  std::int64_t tensor_column_ranks = 1;
  /// Offset by the rank's place in its expert group (core/graph/mesh.h).
  std::int64_t expert_row_step = 0;
  /// > 0: rows stand in groups of so many, whose first rows lie `row_group_step` apart: each
  /// expert's part of the rows.
  std::int64_t row_group = 0;
  std::int64_t row_group_step = 0;
};

/// A tensor of one rank, row-major [rows, columns]. A per-microbatch tensor has one instance for
/// each microbatch in flight.
struct Tensor {
  std::string name;
  TensorRole role = TensorRole::kActivation;
  TensorPurpose purpose = TensorPurpose::kOther;
  Format format = Format::kFp32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool per_microbatch = false;
  std::vector<ParameterPiece> pieces;  ///< parameters only
  /// >= 0: no storage of its own but that of the tensor `view_of`, from element `view_offset` +
  /// `view_data_step` * (the rank's data coordinate) on. Gradients are views of their bucket,
  /// shards of an optimizer views of the whole.
  std::int32_t view_of = -1;
  std::int64_t view_offset = 0;
  std::int64_t view_data_step = 0;
  /// > 0: the data coordinate counts modulo this (shards inside a level of the fabric).
  std::int64_t data_parts = 0;
  /// Neighbours along data that hold different parameters: the coordinate is divided by it first.
  std::int64_t data_ranks = 1;
  /// A parameter tensor with a flat offset.
  struct Source {
    std::uint32_t tensor = 0;
    std::int64_t offset = 0;
  };
  /// Not empty: shard c (the data coordinate) of these parameters laid out flat, elements
  /// [c, c + 1) * columns; it starts from their initial values. They are views of memory that holds
  /// them only while they are in use.
  std::vector<Source> sources{};
  /// >= 0: what this step prepares for the next one, which reads it as the tensor `next_of`: the
  /// two trade places between steps.
  std::int32_t next_of = -1;
  /// Parameters of a narrow format: the optimizer state that is their fp32 copy, which it updates;
  /// -1 none.
  std::int32_t master = -1;
  /// > 0: not in the device's own memory but in Program::tiers[tier - 1].
  std::uint8_t tier = 0;
  [[nodiscard]] bool is_view() const { return view_of >= 0; }
  [[nodiscard]] std::int64_t elements() const { return rows * columns; }
  [[nodiscard]] Bytes bytes() const { return format_bytes(format, rows, columns); }
};

/// One shard of one table as a rank's embedding op sees it.
struct EmbeddingShard {
  std::int32_t table = 0;       ///< index into the workload's tables
  std::int64_t first_row = 0;   ///< range in the table's row order ...
  std::int64_t rows = 0;        ///< ... number of rows held here
  std::int64_t row_stride = 1;  ///< global row = first_row + i * row_stride
  std::int64_t first_column = 0;
  std::int64_t dim = 0;  ///< columns held here
  std::int64_t table_rows = 0;
  double lookups = 0;  ///< expected lookups that reach this shard in one op
  double drawn = 0;    ///< those of the samples: more, where ids are deduplicated on their way
  double bags = 0;     ///< bags (samples) of one op
  bool mean = false;
  bool sequence = false;           ///< rows leave unpooled
  std::optional<Format> format{};  ///< of its rows, where it is another than the group's
  TensorId weights = 0;            ///< [rows, dim]
  TensorId state = 0;              ///< optimizer state, if `has_state`
  bool has_state = false;
  std::shared_ptr<const Access> access;  ///< law over the rows held here
  /// The part of a shard of a slower tier that is in device memory. Lookups and updates work on
  /// `rows` and `state`, `weights` and the shard's own `state` are the store behind them.
  struct Cache {
    TensorId rows = 0;          ///< [slots, dim]
    TensorId state = 0;         ///< as the shard's, of `slots` rows
    std::int64_t slots = 0;     ///< room for the cached rows and those a batch fetches
    std::int64_t capacity = 0;  ///< rows that stay from step to step
    RowCachePolicy policy = RowCachePolicy::kLru;
    RowTraffic expected;  ///< of one step
  };
  std::optional<Cache> cache;
};

/// The tables one embedding op works on, together (a table-batched embedding), and the optimizer
/// its backward fuses.
struct EmbeddingGroup {
  std::vector<EmbeddingShard> shards;
  Format format = Format::kFp32;
  OptimizerKind optimizer = OptimizerKind::kRowwiseAdagrad;
};

/// Elements this rank sends to each member of the communicator in an all-to-all-v (expected values;
/// the runtime's are the batch's own).
struct Exchange {
  std::vector<double> send_elements;
  /// Elements in addition to members of the sender's own unit, by place in the unit: members form
  /// units of so many, in order. Ranks of one class may be in different units. One list for each
  /// size of units.
  std::vector<std::vector<double>> unit_elements{};
  /// In addition, where rows go through one member of each unit: members form `units` of them, in
  /// order.
  struct Forwarded {
    std::size_t units = 1;
    double across = 0;  ///< to the member at the sender's place of each other unit
    double inside = 0;  ///< to each other member of the own unit, what came from others included
    double kept = 0;    ///< stays
  };
  std::optional<Forwarded> forwarded{};
  /// To each member, from the one at `position`.
  [[nodiscard]] std::vector<double> sent_by(std::size_t position) const;
};

/// Destinations of the tokens of one layer. Ops with an `Op::routing` work on as many rows as its
/// draw sends: dispatched copies stand part by part and expert by expert, received ones part by
/// part, by the rank they come from and expert, sorted ones part by part, by expert and the rank
/// they come from.
struct ExpertRouting {
  std::int64_t layer = 0;
  std::int64_t part = 0;  ///< the one an op works on, of `parts` equal ones of each expert's copies
  std::int64_t parts = 1;
  std::int64_t rows = 0;      ///< tokens of a micro-batch that a rank routes
  std::int64_t capacity = 0;  ///< copies of one rank's tokens that an expert takes
  ExpertSplit split;
  bool gathers = false;  ///< tensor ranks route tokens of their own and compute them together
  std::shared_ptr<const ExpertDraw> draw;
};

/// One strided block that a kCopyColumns op moves: `columns` elements in each of the op's shape[0]
/// rows; row i starts at offset + i * pitch of the operand, in elements. Blocks
/// of one op are disjoint; the op converts between the operands' formats.
struct ColumnBlock {
  std::int32_t input = 0;   ///< position among the op's inputs
  std::int32_t output = 0;  ///< position among its outputs
  std::int64_t from_offset = 0;
  std::int64_t from_pitch = 0;
  std::int64_t to_offset = 0;
  std::int64_t to_pitch = 0;
  std::int64_t columns = 0;
};

/// A run of ops that is issued as a whole: forward of a pipeline chunk, its backward, the
/// optimizer, ...
struct Segment {
  std::string name;
  std::uint32_t first_op = 0;
  std::uint32_t op_count = 0;
  SegmentKind kind = SegmentKind::kOther;
  MicrobatchRole microbatches = MicrobatchRole::kAny;
};
/// One issue of a segment. Programs are stored as templates plus calls, so 512 microbatches cost
/// 512 calls, not 512 copies.
struct Call {
  std::uint32_t segment = 0;
  std::int32_t microbatch = 0;
};
/// One step of one rank: ops in issue order of its host thread, each on a stream, with explicit
/// event edges (record -> wait; a wait refers to the latest record issued before it). Contiguous
/// storage; immutable once built by ProgramBuilder.
struct Program {
  std::vector<std::string> streams;  ///< stream 0 is the compute stream
  std::vector<std::string> names;
  std::vector<std::string> tiers;  ///< slower than the device's own memory, by name
  std::vector<Op> ops;
  std::vector<TensorId> operands;   ///< CSR: inputs, then outputs of each op
  std::vector<std::int32_t> waits;  ///< CSR: event ids
  std::int32_t events = 0;
  std::vector<Tensor> tensors;
  std::vector<EmbeddingGroup> embeddings;
  std::vector<Exchange> exchanges;
  std::vector<ExpertRouting> routings;
  std::vector<std::vector<ColumnBlock>>
      column_copies;  ///< of ops of kind kCopyColumns (ColumnAttributes)
  std::vector<Segment> segments;
  std::vector<Call> calls;  ///< issue order
  std::int32_t microbatches = 1;
  std::int64_t interval = 1;  ///< steps between two executions of ops of op_flags::kEveryInterval

  /// Whether an op is done in a step, counted from 0.
  [[nodiscard]] bool done_in(const Op& o, std::int64_t step) const {
    return (o.flags & op_flags::kEveryInterval) == 0 ||
           step % interval == (o.kind == OpKind::kFill ? 0 : interval - 1);
  }
  /// The share of steps in which it is done.
  [[nodiscard]] double share_of_steps(const Op& o) const {
    return (o.flags & op_flags::kEveryInterval) == 0 ? 1 : 1 / static_cast<double>(interval);
  }
  [[nodiscard]] std::span<const Op> ops_of(const Segment& s) const {
    return {ops.data() + s.first_op, s.op_count};
  }
  [[nodiscard]] std::span<const TensorId> inputs(const Op& o) const {
    return {operands.data() + o.first_operand, o.inputs};
  }
  [[nodiscard]] std::span<const TensorId> outputs(const Op& o) const {
    return {operands.data() + o.first_operand + o.inputs, o.outputs};
  }
  [[nodiscard]] std::span<const std::int32_t> waits_of(const Op& o) const {
    return {waits.data() + o.first_wait, o.waits};
  }
  [[nodiscard]] const std::string& name(const Op& o) const { return names[o.name]; }
  /// The tables an op works on; null: none, or not known (recorded graphs).
  [[nodiscard]] const EmbeddingGroup* group_of(const Op& o) const;
  /// The parts of an all-to-all-v.
  [[nodiscard]] const Exchange* exchange_of(const Op& o) const;
  /// Position among `ops`; nothing for an op that does not stand there.
  [[nodiscard]] std::optional<std::uint32_t> index_of(const Op& o) const;
  /// Number of executed ops of a step: sum over calls.
  [[nodiscard]] std::uint64_t executed_ops() const;
};

/// Groups of ranks that communicate: all combinations of the named mesh axes, or explicit disjoint
/// rank lists.
struct Communicator {
  std::string name;
  std::vector<Axis> axes;
  std::vector<std::vector<std::int32_t>> groups;  ///< explicit lists, when `axes` is empty
  CommunicatorRole role = CommunicatorRole::kOther;
};

/// Ranks with equal programs share one.
struct RankClass {
  std::int32_t program = 0;
  std::vector<std::int32_t> ranks;
};

/// The execution graph of one training step.
struct ExecutionGraph {
  Mesh mesh;
  std::vector<Communicator> communicators;
  std::vector<Program> programs;
  std::vector<RankClass> classes;
  StepInputs inputs;
  /// Null for models without embedding tables.
  std::shared_ptr<const EmbeddingPlacement> placement = nullptr;
  [[nodiscard]] std::int32_t ranks() const { return mesh.size(); }
  [[nodiscard]] std::int32_t class_of(std::int32_t rank) const;
  [[nodiscard]] const Program& program_of(std::int32_t rank) const {
    return programs[static_cast<std::size_t>(
        classes[static_cast<std::size_t>(class_of(rank))].program)];
  }
  /// Ranks of the group of `communicator` that `rank` belongs to, ascending; its position in it is
  /// its index for `peer`.
  [[nodiscard]] std::vector<std::int32_t> members(std::int32_t communicator,
                                                  std::int32_t rank) const;
};

}  // namespace stepcast
