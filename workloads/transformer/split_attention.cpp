#include "workloads/transformer/split_attention.h"

#include <algorithm>
#include <cmath>

#include "workloads/transformer/shape.h"

namespace stepcast::workloads {
namespace {

std::int64_t ceiling(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Sizes of a causal core with so many pairs, of at most so many queries.
SplitAttention::Part sized(std::int64_t queries, double pairs) {
  const auto q = static_cast<double>(queries);
  const double keys = pairs / q + q / 2;
  if (keys >= q) {
    return {1, queries, std::llround(keys), pairs};
  }
  const std::int64_t corner = std::max<std::int64_t>(1, std::llround(std::sqrt(2 * pairs)));
  return {1, corner, corner, pairs};
}

}  // namespace

double causal_pairs(double cached, double fresh, double window) {
  const auto below = [window](double x) {  // integral from 0
    return window <= 0 || x <= window ? x * x / 2 : window * (x - window / 2);
  };
  return below(cached + fresh) - below(cached);
}

std::int64_t window_of_pairs(std::int64_t sequence, double pairs) {
  const auto n = static_cast<double>(sequence);
  if (2 * pairs >= n * n) {
    return 0;
  }
  return std::max<std::int64_t>(1, std::llround(n - std::sqrt(n * n - 2 * pairs)));
}

std::int64_t window_like_chunks(std::int64_t sequence, std::int64_t chunk) {
  const auto d = [](std::int64_t v) { return static_cast<double>(v); };
  const std::int64_t rest = sequence % chunk;
  return window_of_pairs(sequence,
                         (d(sequence / chunk) * d(chunk) * d(chunk) + d(rest) * d(rest)) / 2);
}

SplitAttention::SplitAttention(const TransformerShape& shape, std::int64_t window)
    : context_(shape.context),
      fresh_(shape.fresh),
      past_(shape.positions - shape.fresh),
      queries_(shape.sequence),
      window_(window),
      cached_(window > 0 ? std::min(shape.cached, ceiling(window, shape.context)) : shape.cached) {
  blocks_ = context_ - 1;
  if (window > 0 && past_ == 0 && queries_ < fresh_) {
    const std::int64_t reached = ceiling(window - 1, queries_ / 2);
    by_distance_ = reached < context_;
    blocks_ = std::min(blocks_, reached);
  }
}

double SplitAttention::pairs_of_rank() const {
  const auto d = [](std::int64_t v) { return static_cast<double>(v); };
  return causal_pairs(d(past_), d(fresh_), d(window_)) * d(queries_) / d(fresh_);
}

SplitAttention::Part SplitAttention::whole() const {
  return {1, fresh_, fresh_ + std::min(past_, cached_ * context_),
          pairs_of_rank() * static_cast<double>(fresh_) / static_cast<double>(queries_)};
}

SplitAttention::Part SplitAttention::gathered() const {
  const std::int64_t chunk = queries_ / 2;  // keys of both are 2 c + 1 chunks, whichever they are
  const std::int64_t all = cached_ * context_ + (2 * context_ + 1) * chunk / 2;
  return {2, chunk, window_ > 0 ? std::min(all, chunk + window_) : all, pairs_of_rank() / 2};
}

/// Pairs of a chunk with the one that is so many before it.
double SplitAttention::pairs_of_chunks(std::int64_t apart) const {
  const double chunk = static_cast<double>(queries_) / 2;
  const auto window = static_cast<double>(window_);
  if (apart == 0) {
    return causal_pairs(0, chunk, window);
  }
  const double reach = std::clamp(window - static_cast<double>(apart - 1) * chunk, 0.0, 2 * chunk);
  const double missed = 2 * chunk - reach;
  return reach <= chunk ? reach * reach / 2 : chunk * chunk - missed * missed / 2;
}

/// Pairs of a rank with keys so many chunks before its queries: 2 c - apart of the 2 c chunks of a
/// sequence have such a one.
double SplitAttention::pairs_at(std::int64_t apart) const {
  const auto ranks = static_cast<double>(context_);
  return (2 * ranks - static_cast<double>(apart)) / ranks * pairs_of_chunks(apart);
}

SplitAttention::Part SplitAttention::block(std::int64_t step) const {
  if (!by_distance_) {  // in turn those of all ranks
    return sized(queries_, pairs_of_rank() / static_cast<double>(context_));
  }
  double pairs = pairs_at(step);
  if (step == blocks_) {
    pairs = pairs_of_rank();
    for (std::int64_t apart = 0; apart < step; ++apart) {
      pairs -= pairs_at(apart);
    }
  }
  const std::int64_t chunk = queries_ / 2;
  Part part = step == 0 ? Part{1, chunk, chunk} : sized(chunk, pairs_of_chunks(step));
  part.sequences = 2;
  part.pairs = pairs / 2;
  return part;
}

}  // namespace stepcast::workloads
