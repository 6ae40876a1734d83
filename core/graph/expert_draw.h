#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace stepcast {

/// Which experts tokens go to: each token to `per_token` distinct ones, expert e to a share pi_e of
/// all tokens, the same whoever asks and however tokens are split over ranks.
///
/// Systematic sampling: the shares laid end to end cover [0, per_token); token i takes the experts
/// that hold u_i, u_i + 1, ..., u_i + per_token - 1. As pi_e <= 1 they are distinct, and expert e
/// is taken with probability pi_e where u_i is uniform in [0, 1). u_i is the radical inverse of i
/// in base 2, shifted by a phase: 2^m tokens from a multiple of 2^m on spread evenly over [0, 1),
/// so an expert gets within one of 2^m pi_e of them, and exactly that where it is whole. Source:
/// Madow, Ann. Math. Statist. 20, 1949; van der Corput, Proc. Akad. Amsterdam 38, 1935.
///
///   const ExpertDraw draw(shares, 2);
///   draw.experts_of(token, phase, chosen);
class ExpertDraw {
 public:
  /// In: shares in [0, 1] that sum to `per_token`.
  ExpertDraw(const std::vector<double>& shares, std::int64_t per_token);
  [[nodiscard]] std::int64_t experts() const {
    return static_cast<std::int64_t>(bounds_.size()) - 1;
  }
  [[nodiscard]] std::int64_t per_token() const { return per_token_; }

  /// The experts of one token, ascending. Token: 0 .. 2^48 - 1; any phase.
  void experts_of(std::int64_t token, std::uint64_t phase, std::span<std::int32_t> chosen) const;
  /// How many of `tokens` tokens from `first` on expert `expert` gets. O(log tokens).
  [[nodiscard]] std::int64_t count(std::int64_t first, std::int64_t tokens, std::uint64_t phase,
                                   std::int64_t expert) const;
  /// Most copies that go to experts [begin, end) from `tokens` neighbouring tokens, the first of
  /// which is a multiple of `tokens`, whatever the phase.
  [[nodiscard]] std::int64_t most(std::int64_t tokens, std::int64_t begin, std::int64_t end) const;

 private:
  std::int64_t per_token_;
  std::vector<std::uint64_t> bounds_;  ///< where each expert's share begins, in 2^-48
};

/// The shift of a layer's draw in one step of a run.
std::uint64_t expert_phase(std::int64_t step, std::int64_t layer);

}  // namespace stepcast
