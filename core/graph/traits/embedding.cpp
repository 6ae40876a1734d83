// Embedding bags and tables of tokens. The work of bags follows from the tables of their group:
// builders set it.
#include "core/graph/traits/work.h"

namespace stepcast {
namespace {

/// Ids that are packed are looked at one by one where each has an owner of its own, else copied.
double pack_runs(const Op& op) { return extent(op, 3); }

void token_embedding_work(const OpTraits& traits, Op& op) {
  const double e = element_bytes(op);
  const bool backward = traits.pass == OpPass::kBackward;
  op.flops = backward ? Flops(extent(op, 0) * extent(op, 1)) : Flops{};
  op.bytes_read = Bytes((backward ? 2 : 1) * extent(op, 0) * extent(op, 1) * e + 4 * extent(op, 0));
  op.bytes_written = Bytes(extent(op, 0) * extent(op, 1) * e);
}

}  // namespace

std::span<const OpTraits> embedding_traits() {
  static const std::array rows{OpTraits{.kind = OpKind::kIndexPack,
                                        .name = "index_pack",
                                        .op_class = OpClass::kEmbedding,
                                        .kernel = KernelKind::kEmbedding,
                                        .main = {0, -1, -1, -1},
                                        .work = no_work,
                                        .runs = pack_runs},
                               OpTraits{.kind = OpKind::kIndexUnpack,
                                        .name = "index_unpack",
                                        .op_class = OpClass::kEmbedding,
                                        .kernel = KernelKind::kEmbedding,
                                        .main = {0, -1, -1, -1},
                                        .work = no_work},
                               OpTraits{.kind = OpKind::kEmbeddingForward,
                                        .name = "embedding_forward",
                                        .op_class = OpClass::kEmbedding,
                                        .kernel = KernelKind::kEmbedding,
                                        .family = OpFamily::kLookup,
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kEmbeddingBackward,
                                        .attributes = EmbeddingAttributes{},
                                        .main = {0, -1, -1, -1},
                                        .work = no_work},
                               OpTraits{.kind = OpKind::kEmbeddingBackward,
                                        .name = "embedding_backward",
                                        .op_class = OpClass::kEmbedding,
                                        .kernel = KernelKind::kEmbedding,
                                        .family = OpFamily::kLookup,
                                        .pass = OpPass::kBackward,
                                        .attributes = EmbeddingAttributes{},
                                        .main = {0, -1, -1, -1},
                                        .work = no_work},
                               OpTraits{.kind = OpKind::kEmbeddingGradient,
                                        .name = "embedding_gradient",
                                        .op_class = OpClass::kEmbedding,
                                        .kernel = KernelKind::kEmbedding,
                                        .family = OpFamily::kLookup,
                                        .pass = OpPass::kBackward,
                                        .attributes = EmbeddingAttributes{},
                                        .main = {0, -1, -1, -1},
                                        .work = no_work},
                               OpTraits{.kind = OpKind::kTierFetch,
                                        .name = "tier_fetch",
                                        .op_class = OpClass::kEmbedding,
                                        .kernel = KernelKind::kEmbedding,
                                        .family = OpFamily::kTierMove,
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kTierWriteBack,
                                        .attributes = TierAttributes{},
                                        .main = {0, -1, -1, -1},
                                        .work = no_work},
                               OpTraits{.kind = OpKind::kTierWriteBack,
                                        .name = "tier_write_back",
                                        .op_class = OpClass::kEmbedding,
                                        .kernel = KernelKind::kEmbedding,
                                        .family = OpFamily::kTierMove,
                                        .pass = OpPass::kBackward,
                                        .attributes = TierAttributes{},
                                        .main = {0, -1, -1, -1},
                                        .work = no_work},
                               OpTraits{.kind = OpKind::kSequencePoolForward,
                                        .name = "sequence_pool_forward",
                                        .op_class = OpClass::kEmbedding,
                                        .kernel = KernelKind::kEmbedding,
                                        .family = OpFamily::kSequencePool,
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kSequencePoolBackward,
                                        .attributes = PoolAttributes{},
                                        .main = {0, -1, -1, -1},
                                        .work = no_work},
                               OpTraits{.kind = OpKind::kSequencePoolBackward,
                                        .name = "sequence_pool_backward",
                                        .op_class = OpClass::kEmbedding,
                                        .kernel = KernelKind::kEmbedding,
                                        .family = OpFamily::kSequencePool,
                                        .pass = OpPass::kBackward,
                                        .attributes = PoolAttributes{},
                                        .main = {0, -1, -1, -1},
                                        .work = no_work},
                               OpTraits{.kind = OpKind::kTokenEmbeddingForward,
                                        .name = "token_embedding_forward",
                                        .kernel = KernelKind::kEmbedding,
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kTokenEmbeddingBackward,
                                        .work = token_embedding_work},
                               OpTraits{.kind = OpKind::kTokenEmbeddingBackward,
                                        .name = "token_embedding_backward",
                                        .kernel = KernelKind::kEmbedding,
                                        .pass = OpPass::kBackward,
                                        .work = token_embedding_work}};
  return rows;
}

}  // namespace stepcast
