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

/// An op on bags of rows: its builder sets the work.
OpTraits bags(OpKind kind, std::string_view name) {
  return {.kind = kind,
          .name = name,
          .op_class = OpClass::kEmbedding,
          .kernel = KernelKind::kEmbedding,
          .main = {0, -1, -1, -1},
          .work = no_work};
}

OpTraits pack(OpTraits traits) {
  traits.runs = pack_runs;
  return traits;
}

OpTraits as_forward(OpTraits traits, OpFamily family, OpAttributes attributes, OpKind backward) {
  traits.family = family;
  traits.pass = OpPass::kForward;
  traits.backward = backward;
  traits.attributes = attributes;
  return traits;
}

OpTraits as_backward(OpTraits traits, OpFamily family, OpAttributes attributes) {
  traits.family = family;
  traits.pass = OpPass::kBackward;
  traits.attributes = attributes;
  return traits;
}

}  // namespace

std::span<const OpTraits> embedding_traits() {
  static const std::array rows{
      pack(bags(OpKind::kIndexPack, "index_pack")),
      bags(OpKind::kIndexUnpack, "index_unpack"),
      as_forward(bags(OpKind::kEmbeddingForward, "embedding_forward"), OpFamily::kLookup,
                 EmbeddingAttributes{}, OpKind::kEmbeddingBackward),
      as_backward(bags(OpKind::kEmbeddingBackward, "embedding_backward"), OpFamily::kLookup,
                  EmbeddingAttributes{}),
      as_backward(bags(OpKind::kEmbeddingGradient, "embedding_gradient"), OpFamily::kLookup,
                  EmbeddingAttributes{}),
      as_forward(bags(OpKind::kTierFetch, "tier_fetch"), OpFamily::kTierMove, TierAttributes{},
                 OpKind::kTierWriteBack),
      as_backward(bags(OpKind::kTierWriteBack, "tier_write_back"), OpFamily::kTierMove,
                  TierAttributes{}),
      as_forward(bags(OpKind::kSequencePoolForward, "sequence_pool_forward"),
                 OpFamily::kSequencePool, PoolAttributes{}, OpKind::kSequencePoolBackward),
      as_backward(bags(OpKind::kSequencePoolBackward, "sequence_pool_backward"),
                  OpFamily::kSequencePool, PoolAttributes{}),
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
               .work = token_embedding_work},
  };
  return rows;
}

}  // namespace stepcast
