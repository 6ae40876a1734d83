#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/graph/op.h"
#include "traces/events/rank_builder.h"

namespace stepcast::traces::internal {

/// NodeType of the schema.
enum class NodeType : std::int64_t {
  kInvalid = 0,
  kMetadata = 1,
  kMemoryLoad = 2,
  kMemoryStore = 3,
  kCompute = 4,
  kSend = 5,
  kReceive = 6,
  kCollective = 7
};

/// A node of a Chakra graph, from protobuf or JSON; what is absent keeps its default.
struct ChakraNode {
  std::int64_t id = 0;
  std::string name;
  NodeType type = NodeType::kInvalid;
  std::vector<std::int64_t> control, data;  ///< predecessors
  std::optional<std::int64_t> begin_us;
  std::int64_t duration_us = 0;
  std::string values, shapes, types;  ///< of the inputs
  std::optional<bool> on_cpu;
  std::int64_t record_function = -1, sequence = -1, forward_thread = -1;
  std::optional<std::int64_t> thread, stream;
  std::int64_t comm_type = -1, comm_bytes = -1, peer = -1;
  std::string group;
  std::string fields;  ///< what nothing here holds, as it was read
  // What our own writer adds, so that nothing is lost.
  std::optional<std::int64_t> begin_ns, duration_ns, category, correlation, external;
  std::int64_t process = 0, context = -1, device = 0, bytes = -1;
  std::string lane_name;
};

/// CollectiveCommType of the schema to and from our kinds; kCount and -1 where there is none.
OpKind kind_of_comm_type(std::int64_t comm_type);
std::int64_t comm_type_of(OpKind kind);

/// Collects nodes into a rank.
class ChakraRank {
 public:
  ChakraRank(const std::string& source, Names& names);
  void node(const ChakraNode& node);
  [[nodiscard]] RankRecording& rank() { return builder_.rank(); }
  RankRecording finish() &&;

 private:
  std::uint16_t lane(const ChakraNode& node);
  std::int32_t collective(const ChakraNode& node);
  Names& names_;
  RankBuilder builder_;
  bool all_begin_ = true;
  std::uint64_t nodes_ = 0;
};

}  // namespace stepcast::traces::internal
