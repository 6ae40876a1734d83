#pragma once
#include "traces/events/recording.h"
#include "core/input/input.h"

namespace stepcast::traces {

/// One rank from a Chakra execution trace (protobuf, package ChakraProtoMsg): a GlobalMetadata and
/// then nodes, each after its length. Both generations are read: converted files, whose metadata
/// are attributes, and generated ones, which name a version ("0.0.4").
///
/// Durations are whole microseconds and begins mostly absent (Timing::kDurations; kTimeline when
/// every node has one). CPU nodes lie on host lanes by `tid`, device nodes on streams by `stream`
/// or else `tid`. `external` is the node id; Dependencies hold control and data edges. Errors:
/// InputError naming file and byte: cut files, lengths beyond 256 MiB, unknown wire types. Source:
/// reference/profiling-and-traces.md 5.3.
RankRecording read_chakra(Input& input, Names& names);
/// The same from the JSON that Chakra's feeder reads: {"workload_graph": [...]}.
RankRecording read_chakra_json(Input& input, Names& names);

}  // namespace stepcast::traces
