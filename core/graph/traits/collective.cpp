// Collectives: {elements} by the NCCL convention of each (docs/architecture.md). The second is, of
// those that all members do alike, the number of equal steps of one exchange that the op is one of;
// 0: it is all of it.
#include "core/graph/traits/work.h"

namespace stepcast {
namespace {

void collective_work(const OpTraits&, Op& op) {
  const bool in_rows = op.kind == OpKind::kAllToAllV;
  op.bytes_read = op.bytes_written =
      in_rows ? Bytes(extent(op, 0) * element_bytes(op)) : format_bytes(op.format, 1, op.shape[0]);
}

constexpr CollectiveTraits kAllReduceTraits{.pattern = CollectivePattern::kRing,
                                            .ring = RingUse::kAllReduce,
                                            .moved = {2, 0},
                                            .sent = {2, 0},
                                            .least = {0, 1},
                                            .ends_together = true};
constexpr CollectiveTraits kAllGatherTraits{.pattern = CollectivePattern::kRing,
                                            .ring = RingUse::kAllGather,
                                            .moved = {1, 0},
                                            .sent = {1, 0},
                                            .least = {1, 0},
                                            .ends_together = true};
constexpr CollectiveTraits kReduceScatterTraits{.pattern = CollectivePattern::kRing,
                                                .ring = RingUse::kReduceScatter,
                                                .moved = {1, 0},
                                                .sent = {1, 0},
                                                .least = {1, 0},
                                                .ends_together = true};
constexpr CollectiveTraits kAllToAllTraits{
    .pattern = CollectivePattern::kExchange, .moved = {1, 0}, .sent = {1, 0}, .least = {1, 0}};
constexpr CollectiveTraits kAllToAllVTraits{.pattern = CollectivePattern::kExchange,
                                            .moved = {1, 0},
                                            .sent = {1, 0},
                                            .fitted_as = "all_to_all"};
constexpr CollectiveTraits kBroadcastTraits{
    .pattern = CollectivePattern::kRooted, .moved = {0, 1}, .sent = {1, 0}, .least = {0, 1}};
constexpr CollectiveTraits kSendTraits{
    .pattern = CollectivePattern::kPair, .moved = {0, 1}, .sent = {0, 1}, .least = {0, 1}};
constexpr CollectiveTraits kRecvTraits{
    .pattern = CollectivePattern::kPair, .moved = {0, 1}, .least = {0, 1}, .fitted_as = "send"};
constexpr CollectiveTraits kBarrierTraits{
    .pattern = CollectivePattern::kNoBytes, .moved = {0, 1}, .ends_together = true};

}  // namespace

std::span<const OpTraits> collective_op_traits() {
  static const std::array rows{OpTraits{.kind = OpKind::kAllReduce,
                                        .name = "all_reduce",
                                        .op_class = OpClass::kCollective,
                                        .kernel = KernelKind::kCommunication,
                                        .role = OpRole::kSymmetric,
                                        .attributes = CollectiveAttributes{},
                                        .work = collective_work,
                                        .collective = &kAllReduceTraits},
                               OpTraits{.kind = OpKind::kAllGather,
                                        .name = "all_gather",
                                        .op_class = OpClass::kCollective,
                                        .kernel = KernelKind::kCommunication,
                                        .role = OpRole::kSymmetric,
                                        .attributes = CollectiveAttributes{},
                                        .work = collective_work,
                                        .collective = &kAllGatherTraits},
                               OpTraits{.kind = OpKind::kReduceScatter,
                                        .name = "reduce_scatter",
                                        .op_class = OpClass::kCollective,
                                        .kernel = KernelKind::kCommunication,
                                        .role = OpRole::kSymmetric,
                                        .attributes = CollectiveAttributes{},
                                        .work = collective_work,
                                        .collective = &kReduceScatterTraits},
                               OpTraits{.kind = OpKind::kAllToAll,
                                        .name = "all_to_all",
                                        .op_class = OpClass::kCollective,
                                        .kernel = KernelKind::kCommunication,
                                        .role = OpRole::kSymmetric,
                                        .attributes = CollectiveAttributes{},
                                        .work = collective_work,
                                        .collective = &kAllToAllTraits},
                               OpTraits{.kind = OpKind::kAllToAllV,
                                        .name = "all_to_all_v",
                                        .op_class = OpClass::kCollective,
                                        .kernel = KernelKind::kCommunication,
                                        .role = OpRole::kRankwise,
                                        .attributes = CollectiveAttributes{},
                                        .work = collective_work,
                                        .collective = &kAllToAllVTraits},
                               OpTraits{.kind = OpKind::kBroadcast,
                                        .name = "broadcast",
                                        .op_class = OpClass::kCollective,
                                        .kernel = KernelKind::kCommunication,
                                        .role = OpRole::kBroadcast,
                                        .attributes = CollectiveAttributes{},
                                        .work = collective_work,
                                        .collective = &kBroadcastTraits},
                               OpTraits{.kind = OpKind::kSend,
                                        .name = "send",
                                        .op_class = OpClass::kCollective,
                                        .kernel = KernelKind::kCommunication,
                                        .role = OpRole::kSend,
                                        .attributes = CollectiveAttributes{},
                                        .work = collective_work,
                                        .collective = &kSendTraits},
                               OpTraits{.kind = OpKind::kRecv,
                                        .name = "recv",
                                        .op_class = OpClass::kCollective,
                                        .kernel = KernelKind::kCommunication,
                                        .role = OpRole::kReceive,
                                        .attributes = CollectiveAttributes{},
                                        .work = collective_work,
                                        .collective = &kRecvTraits},
                               OpTraits{.kind = OpKind::kBarrier,
                                        .name = "barrier",
                                        .op_class = OpClass::kCollective,
                                        .kernel = KernelKind::kCommunication,
                                        .role = OpRole::kSymmetric,
                                        .attributes = CollectiveAttributes{},
                                        .work = collective_work,
                                        .collective = &kBarrierTraits}};
  return rows;
}

}  // namespace stepcast
