#pragma once
#include <cstdint>
#include <vector>

#include "core/expert_draw.h"
#include "core/workload.h"

namespace stepcast::workloads {

/// Probability that a token is sent to each expert, by expert; they sum to `per_token`.
///
/// A token picks distinct experts one after the other by their popularity p_e. That is a race of
/// exponential arrivals with rates p_e, so expert e is picked with probability
///   pi_e = integral p_e exp(-p_e t) P(fewer than per_token others have arrived by t) dt
/// (Rosen, Ann. Math. Statist. 43, 1972). Test: expert_routing_test.cpp draws tokens.
std::vector<double> expert_shares(const MixtureOfExperts& moe);

/// Expected copies of tokens in one layer, when each of `ranks` ranks routes `tokens` tokens and
/// holds experts / ranks neighbouring experts.
struct ExpertLoad {
  std::vector<double> to;  ///< copies one rank sends to each rank, itself included
  double sent = 0;         ///< their sum: tokens * per_token less what is dropped
  double most = 0;         ///< copies that reach the most loaded rank from all ranks
  [[nodiscard]] bool even() const;
};

/// Copies of one rank's `tokens` tokens that an expert takes: ceil(capacity_factor tokens per_token
/// / experts) (GShard, arXiv 2006.16668, section 2.2), all of them without capacity_factor.
std::int64_t expert_capacity(const MixtureOfExperts& moe, std::int64_t tokens);

/// `ranks` divides the number of experts; `shares` as by expert_shares.
ExpertLoad expert_load(const MixtureOfExperts& moe, const std::vector<double>& shares,
                       std::int64_t tokens, std::int64_t ranks);
ExpertLoad expert_load(const MixtureOfExperts& moe, std::int64_t tokens, std::int64_t ranks);

/// Most copies that a rank sends and that reach a rank, whatever the draw's phase.
struct ExpertRoom {
  std::int64_t sent = 0, received = 0;
};
ExpertRoom expert_room(const ExpertDraw& draw, std::int64_t tokens, std::int64_t capacity,
                       std::int64_t ranks);

}  // namespace stepcast::workloads
