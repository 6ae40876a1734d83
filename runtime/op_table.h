#pragma once
#include "core/graph/op.h"

// The ops that backends execute, one row each: the kind, the function of both backends that
// executes it (runtime/cpu and runtime/cuda, ops_*.cpp), and its operands, inputs -> outputs, where
// core/graph/op.h does not say them; [x] is there or not by the style of the model. Weights are
// [in, out]; bias and activation work in place; gradients of biases and replicated tables are added
// to and zeroed by a fill op first.
//
//   OpFamily generic_ops() { return {{STEPCAST_GENERIC_OPS(STEPCAST_OP)}, make_state}; }
#define STEPCAST_OP(kind, function) {OpKind::kind, function},

// clang-format off
#define STEPCAST_GENERIC_OPS(ROW)                                                                                      \
  ROW(kGemm, gemm)                                        /* A, B -> C */                                              \
  ROW(kBiasActivationForward, bias_activation_forward)    /* x, [bias] -> y */                                         \
  ROW(kBiasActivationBackward, bias_activation_backward)  /* dy, [y] -> dx, [dbias]: added to; dx may be dy */         \
  ROW(kAdd, add)                                          /* a, b, ... -> y, which may be one of them; a third one of  \
                                                             one row is added to every row */                          \
  ROW(kCopyColumns, copy_columns)                         /* by its blocks, else inputs side by side = outputs */      \
  ROW(kFill, fill)                                        /* -> tensors, zeroed */                                     \
  ROW(kCast, cast)                                        /* x -> y, rounded to the op's format */                     \
  ROW(kOptimizer, optimizer)                              /* gradients, weights and states, found by role, in order */ \
  ROW(kLoadBatch, load_batch)                             /* -> tensors that the host batch fills, by the end of their \
                                                             names: "dense", "labels" or "tokens" (as fp32) */

/// Operands that the CPU alone has.
#define STEPCAST_CPU_OPS(ROW)                                                                                          \
  ROW(kOrthogonalize, orthogonalize)                      /* x -> x, iterates, squares; the last two are room */

/// All but all-to-all-v. Several operands count as one buffer, in order.
#define STEPCAST_COLLECTIVE_OPS(ROW)                                                                                   \
  ROW(kAllReduce, all_reduce)          /* tensors -> the same tensors (or one -> another); sum or maximum */           \
  ROW(kAllGather, all_gather)          /* tensors -> tensors */                                                        \
  ROW(kReduceScatter, reduce_scatter)  /* tensors -> tensors */                                                        \
  ROW(kAllToAll, all_to_all)           /* tensors -> tensors */                                                        \
  ROW(kBroadcast, broadcast)           /* tensors, in place */                                                         \
  ROW(kSend, send)                     /* tensor -> */                                                                 \
  ROW(kRecv, receive)                  /* -> tensor */                                                                 \
  ROW(kBarrier, barrier)

/// Embeddings, index exchange, interaction: their tables' weights and state are found through the op's group.
#define STEPCAST_DLRM_OPS(ROW)                                                                                         \
  ROW(kIndexPack, index_pack)                              /* -> lengths, ids to send */                               \
  ROW(kIndexUnpack, index_unpack)                          /* what arrived -> */                                       \
  ROW(kAllToAllV, all_to_all_v)                            /* lengths (int32), ids (int64) or rows of the op's route,  \
                                                              whose way the phase tells */                             \
  ROW(kEmbeddingForward, embedding_forward)                /* [what arrived] -> pooled */                              \
  ROW(kEmbeddingBackward, embedding_backward)              /* d_pooled, [what arrived] -> */                           \
  ROW(kEmbeddingGradient, embedding_gradient)              /* d_pooled, [what arrived] -> gradients of the tables */   \
  ROW(kTierFetch, tier_fetch)                              /* by its tier */                                           \
  ROW(kTierWriteBack, tier_write_back)                     /* by its tier */                                           \
  ROW(kSequencePoolForward, sequence_pool_forward)         /* rows, lengths sent -> pooled */                          \
  ROW(kSequencePoolBackward, sequence_pool_backward)       /* d_pooled, lengths sent -> d_rows */                      \
  ROW(kDotInteractionForward, dot_interaction_forward)     /* x -> y */                                                \
  ROW(kDotInteractionBackward, dot_interaction_backward)   /* x, dy -> dx */                                           \
  ROW(kCrossForward, cross_forward)                        /* x0, u, bias, x -> y */                                   \
  ROW(kCrossBackward, cross_backward)                      /* x0, u, bias, dy -> du in place of u, dx0 (added to with  \
                                                              kAccumulate), dbias; dy is the rest of dx */             \
  ROW(kBinaryCrossEntropy, binary_cross_entropy)           /* logits, labels -> d_logits */

/// Layers of models given as lists; op.h has the operands.
#define STEPCAST_LAYER_OPS(ROW)                                                                                        \
  ROW(kJaggedAttentionForward, jagged_attention_forward)                                                               \
  ROW(kJaggedAttentionBackward, jagged_attention_backward)                                                             \
  ROW(kTranspose, transpose)                                                                                           \
  ROW(kMultiplyForward, multiply_forward)                                                                              \
  ROW(kMultiplyBackward, multiply_backward)                                                                            \
  ROW(kSoftmaxForward, softmax_forward)                                                                                \
  ROW(kSoftmaxBackward, softmax_backward)                                                                              \
  ROW(kMeanRowsForward, mean_rows_forward)                                                                             \
  ROW(kMeanRowsBackward, mean_rows_backward)                                                                           \
  ROW(kModulateForward, modulate_forward)                                                                              \
  ROW(kModulateBackward, modulate_backward)                                                                            \
  ROW(kGateForward, gate_forward)                                                                                      \
  ROW(kGateBackward, gate_backward)

#define STEPCAST_TRANSFORMER_OPS(ROW)                                                                                  \
  ROW(kAttentionForward, attention_forward)                /* qkv [tokens, query | key | value heads] -> out,          \
                                                              log-sum-exp (fused) or probabilities (unfused) */        \
  ROW(kAttentionBackward, attention_backward)              /* qkv, out, log-sum-exp or probabilities, d_out -> d_qkv */\
  ROW(kActivationForward, activation_forward)              /* x, [bias] -> y = act(x + bias); x stays as it is */      \
  ROW(kActivationBackward, activation_backward)            /* dy, x, [bias] -> dx, [dbias] */                          \
  ROW(kNormForward, norm_forward)                          /* x, gamma, [beta] -> y, statistics */                     \
  ROW(kNormBackward, norm_backward)                        /* dy, x, gamma, statistics, [residual] -> dx (+ residual), \
                                                              dgamma, [dbeta]; a residual uses up dy */                \
  ROW(kRopeForward, rope_forward)                          /* x -> x, in place on its first shape[1] heads */          \
  ROW(kRopeBackward, rope_backward)                        /* the same */                                              \
  ROW(kTokenEmbeddingForward, token_embedding_forward)     /* table, [positions] -> out; this tensor rank's rows of    \
                                                              the table and columns of the positions */                \
  ROW(kTokenEmbeddingBackward, token_embedding_backward)   /* d_out -> d_table, [d_positions] */                       \
  ROW(kCrossEntropyMax, cross_entropy_max)                 /* logits -> maxima */                                      \
  ROW(kCrossEntropySum, cross_entropy_sum)                 /* logits, maxima -> sums [2, tokens]: of exp(logit -       \
                                                              maximum); of the target's logit */                       \
  ROW(kCrossEntropyLoss, cross_entropy_loss)               /* logits, maxima, sums -> logits, which become their       \
                                                              gradient */

/// Ops on copies of routed tokens (workloads/transformer/moe.cpp): those with an Op::routing. They work on the rows that
/// the draw of the micro-batch gives, which tensors have room for.
#define STEPCAST_EXPERT_OPS(ROW)                                                                                       \
  ROW(kRouteForward, route_forward)              /* logits -> probabilities: softmax over all experts; draws who goes  \
                                                    where */                                                           \
  ROW(kRouteBackward, route_backward)            /* logits, probabilities, gradient of the weights -> gradient of the  \
                                                    logits, in place */                                                \
  ROW(kDispatchForward, dispatch_forward)        /* rows, probabilities -> copies; or copies -> another order */       \
  ROW(kDispatchBackward, dispatch_backward)      /* gradients of the copies, probabilities -> gradient of the rows */  \
  ROW(kCombineForward, combine_forward)          /* copies, probabilities -> rows: sum of probability * copy */        \
  ROW(kCombineBackward, combine_backward)        /* gradient of the rows, copies, probabilities -> gradients of the    \
                                                    copies, of the chosen experts' probabilities (0 elsewhere) */      \
  ROW(kGemm, grouped_gemm)                       /* as elsewhere, for each expert held here and for its rows */        \
  ROW(kActivationForward, routed_activation_forward)    /* the same */                                                      \
  ROW(kActivationBackward, routed_activation_backward)  /* the same */                                                      \
  ROW(kAllToAll, exchange)                       /* all-to-all of copies, as many as each member has */                \
  ROW(kAllToAllV, exchange)                      /* the same */                                                        \
  ROW(kAllGather, gather_copies)                 /* all-gather of copies over tensor ranks */                          \
  ROW(kReduceScatter, sum_gathered)              /* reduce-scatter of copies over tensor ranks */
// clang-format on
