#include "workloads/transformer/expert_routing.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/access/access.h"
#include "core/error.h"

namespace stepcast::workloads {

namespace {

std::vector<double> popularity_of(const MixtureOfExperts& moe) {
  std::vector<double> popularity(static_cast<std::size_t>(moe.experts), 0.0);
  double sum = 0;
  for (std::int64_t rank = 0; rank < moe.experts; ++rank) {
    const auto expert = static_cast<std::size_t>(moe.routing->row_of_rank(rank));
    sum += popularity.at(expert) = moe.routing->probability(static_cast<double>(rank));
  }
  STEPCAST_CHECK(sum > 0, "experts without popularity");
  for (double& p : popularity) {
    p /= sum;
  }
  return popularity;
}

/// Adds to `shares` the chance that expert e arrives in a moment of length `step` (in ln t) around
/// t while fewer than k others have. before[e][j]: probability that j of the experts below e have
/// come; after[e][j]: that at most j of those from e on have.
void add_moment(const std::vector<double>& popularity, std::size_t k, double t, double step,
                std::vector<double>& shares) {
  const std::size_t count = popularity.size();
  std::vector<double> before((count + 1) * k, 0.0);
  std::vector<double> after((count + 1) * k, 0.0);
  before[0] = 1;
  std::fill_n(after.begin() + static_cast<std::ptrdiff_t>(count * k), k, 1.0);
  for (std::size_t e = 0; e < count; ++e) {
    const double here = -std::expm1(-popularity[e] * t);
    for (std::size_t j = 0; j < k; ++j) {
      before[(e + 1) * k + j] =
          before[e * k + j] * (1 - here) + (j > 0 ? before[e * k + j - 1] * here : 0);
    }
  }
  for (std::size_t e = count; e-- > 0;) {
    const double here = -std::expm1(-popularity[e] * t);
    for (std::size_t j = 0; j < k; ++j) {
      after[e * k + j] =
          after[(e + 1) * k + j] * (1 - here) + (j > 0 ? after[(e + 1) * k + j - 1] * here : 0);
    }
  }
  for (std::size_t e = 0; e < count; ++e) {
    double early = 0;
    for (std::size_t j = 0; j < k; ++j) {
      early += before[e * k + j] * after[(e + 1) * k + k - 1 - j];
    }
    shares[e] += popularity[e] * t * std::exp(-popularity[e] * t) * early * step;
  }
}

}  // namespace

std::vector<double> expert_shares(const MixtureOfExperts& moe) {
  const auto count = static_cast<std::size_t>(moe.experts);
  const auto k = static_cast<std::size_t>(moe.per_token);
  const double even = static_cast<double>(k) / static_cast<double>(count);
  std::vector<double> shares(count, even);
  if (!moe.routing || moe.routing->kind() == AccessKind::kUniform || k == count) {
    return shares;
  }
  const std::vector<double> popularity = popularity_of(moe);
  std::vector<double> sorted = popularity;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  if (sorted[k] <= 0) {  // no choice among those ever picked; the rest of the picks go anywhere
    const double picked = static_cast<double>(
        std::count_if(sorted.begin(), sorted.end(), [](double p) { return p > 0; }));
    const double rest = (static_cast<double>(k) - picked) / (static_cast<double>(count) - picked);
    std::transform(popularity.begin(), popularity.end(), shares.begin(),
                   [rest](double p) { return p > 0 ? 1.0 : rest; });
    return shares;
  }
  // The integrand falls off at both ends like exp(-exp|u|): sums of equal steps are exact.
  constexpr double kStep = 0.2;
  std::fill(shares.begin(), shares.end(), 0.0);
  for (double u = std::log(1e-9); u < std::log(60 / sorted[k]); u += kStep) {
    add_moment(popularity, k, std::exp(u), kStep, shares);
  }
  double sum = 0;
  for (const double s : shares) {
    sum += s;
  }
  for (double& s : shares) {
    s = std::min(1.0, s * static_cast<double>(k) / sum);
  }
  return shares;
}

double expert_reach(const MixtureOfExperts& moe, std::int64_t begin, std::int64_t end) {
  STEPCAST_CHECK(moe.even() && moe.experts % moe.groups == 0, "experts are not alike");
  const std::int64_t group = moe.experts / moe.groups;
  const std::int64_t covered = std::max<std::int64_t>(1, (end - begin) / group);
  const std::int64_t each = std::min(end - begin, group);
  const std::int64_t choice = group * moe.groups_per_token;
  const auto log_choose = [](std::int64_t n, std::int64_t k) {
    const auto log_factorial = [](std::int64_t i) {
      return std::lgamma(static_cast<double>(i) + 1);
    };
    return log_factorial(n) - log_factorial(k) - log_factorial(n - k);
  };
  double missed = 0;
  for (std::int64_t j = 0; j <= std::min(covered, moe.groups_per_token); ++j) {
    const std::int64_t others = moe.groups_per_token - j;
    if (others > moe.groups - covered) {
      continue;
    }
    double share = std::exp(log_choose(covered, j) + log_choose(moe.groups - covered, others) -
                            log_choose(moe.groups, moe.groups_per_token));
    for (std::int64_t i = 0; i < moe.per_token; ++i) {
      share *= static_cast<double>(std::max<std::int64_t>(0, choice - j * each - i)) /
               static_cast<double>(choice - i);
    }
    missed += share;
  }
  return 1 - missed;
}

bool ExpertLoad::even() const {
  return std::all_of(to.begin(), to.end(), [&](double v) { return v == to.front(); });
}

std::int64_t expert_capacity(const MixtureOfExperts& moe, std::int64_t tokens) {
  const double even = static_cast<double>(tokens) * static_cast<double>(moe.per_token) /
                      static_cast<double>(moe.experts);
  return moe.capacity_factor > 0
             ? static_cast<std::int64_t>(std::ceil(moe.capacity_factor * even - 1e-9))
             : tokens;
}

ExpertLoad expert_load(const MixtureOfExperts& moe, const std::vector<double>& shares,
                       std::int64_t tokens, std::int64_t ranks) {
  STEPCAST_CHECK(ranks > 0 && moe.experts % ranks == 0, "{} experts on {} ranks", moe.experts,
                 ranks);
  const auto n = static_cast<double>(tokens);
  const auto capacity = static_cast<double>(expert_capacity(moe, tokens));
  const auto local = static_cast<std::size_t>(moe.experts / ranks);
  ExpertLoad load;
  load.to.assign(static_cast<std::size_t>(ranks), 0.0);
  for (std::size_t e = 0; e < shares.size(); ++e) {
    load.to[e / local] += std::min(n * shares[e], capacity);
  }
  for (const double copies : load.to) {
    load.sent += copies;
    load.most = std::max(load.most, copies * static_cast<double>(ranks));
  }
  return load;
}

ExpertRoom expert_room(const ExpertDraw& draw, std::int64_t tokens, std::int64_t capacity,
                       std::int64_t ranks) {
  const std::int64_t local = draw.experts() / ranks;
  ExpertRoom room;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::int64_t taken = 0;
    for (std::int64_t e = rank * local; e < (rank + 1) * local; ++e) {
      taken += std::min(capacity, draw.most(tokens, e, e + 1));
    }
    taken = std::min(taken, draw.most(tokens, rank * local, (rank + 1) * local));
    room.sent += taken;
    room.received = std::max(room.received, taken * ranks);
  }
  room.sent = std::min(room.sent, tokens * draw.per_token());
  return room;
}

}  // namespace stepcast::workloads
