#pragma once
#include <cstdint>
#include <vector>

#include "core/graph/expert_draw.h"
#include "core/job/workload.h"

namespace stepcast::workloads {

/// Probability that a token is sent to each expert, by expert; they sum to `per_token`.
///
/// A token picks distinct experts one after the other by their popularity p_e. That is a race of
/// exponential arrivals with rates p_e, so expert e is picked with probability
///   pi_e = integral p_e exp(-p_e t) P(fewer than per_token others have arrived by t) dt
/// (Rosen, Ann. Math. Statist. 43, 1972). Test: expert_routing_test.cpp draws tokens.
std::vector<double> expert_shares(const MixtureOfExperts& moe);

/// Probability that a token has at least one of its k = per_token experts among the experts
/// [begin, end), where all are alike: the router takes `groups_per_token` of the `groups`, any of
/// them as likely, then k distinct experts of theirs. With n experts in the groups taken, x of them
/// in [begin, end),
///
///   P = 1 - sum over x of P(x) C(n - x, k) / C(n, k)
///
/// x is hypergeometric: of the c groups that [begin, end) covers, or the one it is part of, j are
/// taken with probability C(c, j) C(groups - c, groups_per_token - j) / C(groups,
/// groups_per_token). Expected distinct machines of a token: the sum of P over the experts of each.
/// Valid: [begin, end) is a number of whole groups or lies in one. DeepSeek-V3's router takes the
/// groups whose best two experts score most, so it rarely leaves one of them empty: of 4 taken
/// out of 8 groups of 32, 8 experts reach 3.63 by this formula and 3.95 where scores are
/// independent.
/// Source: derived; the rule is arXiv 2412.19437, section 2.1.2. Test: expert_routing_test.cpp
/// draws tokens both ways.
double expert_reach(const MixtureOfExperts& moe, std::int64_t begin, std::int64_t end);

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

/// Most copies that a rank sends and that reach a rank, whatever the draw's phase.
struct ExpertRoom {
  std::int64_t sent = 0, received = 0;
};
ExpertRoom expert_room(const ExpertDraw& draw, std::int64_t tokens, std::int64_t capacity,
                       std::int64_t ranks);

}  // namespace stepcast::workloads
