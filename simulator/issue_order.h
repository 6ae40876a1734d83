#pragma once
#include <cstdint>
#include <vector>

#include "core/graph/op_traits.h"
#include "core/graph/program.h"

namespace stepcast::simulator {

/// How the engine treats an op; a collective without partners computes.
using Role = OpRole;

/// The static part of executing a Program: what each stream runs, in order; which record each wait
/// refers to; which collectives of different ranks meet. Computed once per program, in
/// O(templates + calls * (records + waits + communicators) per segment), independent of costs.
struct IssueOrder {
  explicit IssueOrder(const Program& source, std::size_t communicator_count);

  /// What a wait refers to: the record with number `index` of the same call, or, if `external`,
  /// entry `index` of the call's row in `external_records`.
  struct Wait {
    bool external = false;
    std::uint32_t index = 0;
  };

  const Program* program = nullptr;
  std::uint32_t streams = 0;
  std::uint32_t communicators = 0;
  std::uint64_t ops = 0;                  ///< executed ops of the step
  std::uint32_t records = 0;              ///< executed records of the step
  std::vector<std::uint64_t> stream_ops;  ///< executed ops by stream

  // By op template.
  std::vector<Role> role;
  bool host_waits = false;  ///< some op has op_flags::kHostWaits
  std::vector<std::uint8_t> stream;
  std::vector<std::int32_t> record;  ///< number among its segment's records, -1 none
  std::vector<std::uint32_t>
      sequence;  ///< number among its segment's collectives of the communicator
  std::vector<std::uint32_t> first_wait;  ///< CSR into `waits`
  std::vector<Wait> waits;

  // By segment and stream, CSR: row = segment * streams + stream.
  std::vector<std::uint32_t> first;
  std::vector<std::uint32_t> list;  ///< op templates in issue order
  /// Ops from here on in the row that only compute: no wait, record or collective.
  std::vector<std::uint32_t> plain;

  // By call.
  std::vector<std::uint64_t> first_op;  ///< executed ops issued before the call
  std::vector<std::uint32_t> first_record;
  std::vector<std::uint32_t> first_external;   ///< row in `external_records`
  std::vector<std::int32_t> external_records;  ///< executed record, -1 when none was issued before
  std::vector<std::uint32_t> first_sequence;   ///< [call * communicators + communicator]

  /// Op templates of the collectives of a communicator (send and recv apart) in issue order.
  std::vector<std::vector<std::uint32_t>> collectives;
};

}  // namespace stepcast::simulator
