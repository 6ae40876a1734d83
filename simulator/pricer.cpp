#include "simulator/pricer.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/graph/program.h"

namespace stepcast::simulator {
namespace {

/// Long enough that blocks of scaled formats count with their share of a scale.
constexpr std::int64_t kLongRow = std::int64_t{1} << 20;

}  // namespace

Pricer::PricedExchange Pricer::exchange(std::span<const Part> parts,
                                        std::span<const std::int32_t> ranks,
                                        Seconds idle_time) const {
  const std::size_t n = ranks.size();
  PricedExchange priced;
  priced.send.reserve(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto& [program, op] = parts[i];
    const Exchange* found = program->exchange_of(*op);
    STEPCAST_CHECK(found != nullptr, "all_to_all_v '{}' has no exchange", program->name(*op));
    const std::vector<double> elements = found->sent_by(i);
    STEPCAST_CHECK(elements.size() == n, "exchange of '{}' has {} entries for {} ranks",
                   program->name(*op), elements.size(), n);
    const double bits = bits_per_element(op->format, kLongRow);
    for (const double e : elements) {
      priced.send.push_back(e * bits / 8);
    }
  }
  priced.prediction = model_.all_to_all_v(priced.send, ranks, parts.back().op->format, idle_time);
  STEPCAST_CHECK(priced.prediction.ends.size() == n,
                 "all_to_all_v model answered for {} of {} ranks", priced.prediction.ends.size(),
                 n);
  return priced;
}

Pricer::GroupOfRanks Pricer::group(std::vector<std::int32_t> ranks, std::int64_t devices) {
  GroupShape shape = group_shape(model_.system(), ranks, devices);
  Collectives& known = collectives_[{shape.members, shape.siblings}];
  return {std::move(ranks), std::move(shape), &known};
}

double Pricer::collective_of_equals(const Program& program, const Op& op,
                                    const GroupOfRanks& group) const {
  if (op.kind != OpKind::kAllToAllV) {
    const auto [known, fresh] =
        group.known->try_emplace({op.kind, op.format, op.shape[0], op.shape[1]}, 0);
    if (fresh) {
      known->second = model_.collective(op, group.shape).time.base();
    }
    return known->second;
  }
  const std::vector<Part> parts(group.ranks.size(), Part{&program, &op});
  const PricedExchange priced = exchange(parts, group.ranks);
  return std::max_element(priced.prediction.ends.begin(), priced.prediction.ends.end())->base();
}

}  // namespace stepcast::simulator
