#include "runtime/expert_plan.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/access/row_order.h"
#include "core/error.h"
#include "core/graph/expert_draw.h"
#include "core/numbers.h"

namespace stepcast::runtime {
namespace {}  // namespace

ExpertPlan::ExpertPlan(const ExecutionGraph& graph, const ExpertRouting& routing, std::int32_t rank)
    : experts(routing.draw->experts()),
      per_token(routing.draw->per_token()),
      local(experts / routing.split.ranks),
      members(routing.split.ranks),
      sources(members * (routing.gathers ? routing.split.tensor : 1)),
      batch_(graph.inputs.batch),
      routing_(routing),
      mesh_(graph.mesh),
      rank_(rank) {
  const std::int32_t own = mesh_.coordinate(rank, Axis::kTensor);
  const std::int32_t stride = mesh_.stride(Axis::kTensor);
  for (std::int64_t i = 0; i < sources / members; ++i) {
    const std::int32_t tensor = routing.gathers ? static_cast<std::int32_t>(i) : own;
    const auto group = expert_group(mesh_, routing.split, rank + (tensor - own) * stride);
    source_ranks_.insert(source_ranks_.end(), group.begin(), group.end());
  }
  own_tensor_ = routing.gathers ? own : 0;
}

ExpertPlan::Block ExpertPlan::blocks(const std::vector<std::int64_t>& first, std::int64_t begin,
                                     std::int64_t count) {
  const std::int64_t at = first[index(begin)];
  return {at, first[index(begin + count)] - at};
}

std::int64_t ExpertPlan::Exchange::leaving(std::int32_t own) const {
  std::int64_t sum = 0;
  for (std::size_t member = 0; member < send.size(); ++member) {
    sum += member == index(own) ? 0 : send[member].count;
  }
  return sum;
}

ExpertPlan::Exchange ExpertPlan::exchange(std::int64_t part, CopyWay way) const {
  Exchange e;
  for (std::int64_t member = 0; member < members; ++member) {
    e.send.push_back(sent_to(part, member));
    e.receive.push_back(received_from(part, member));
  }
  if (way == CopyWay::kBack) {
    std::swap(e.send, e.receive);
  }
  return e;
}

std::int64_t ExpertPlan::most_gathered(std::int64_t part) const {
  std::int64_t most = 0;
  for (std::int64_t t = 0; t < tensors(); ++t) {
    most = std::max(most, gathered_from(part, t).count);
  }
  return most;
}

std::int64_t ExpertPlan::first_token_of(std::int32_t rank, std::int32_t microbatch) const {
  const std::int64_t data = mesh_.coordinate(rank, Axis::kData);
  const std::int64_t sample = data * (batch_.global / mesh_.data) + microbatch * batch_.micro;
  // With sequence parallelism tensor ranks route tokens of their own, in order.
  const bool own_rows = routing_.rows < batch_.micro * batch_.sequence;
  const std::int64_t tensor = own_rows ? mesh_.coordinate(rank, Axis::kTensor) : 0;
  return sample * batch_.sequence + tensor * routing_.rows;
}

bool ExpertPlan::draw(std::int64_t step, std::int32_t microbatch) {
  if (step_ == step) {  // made again by a recomputation: the same
    return false;
  }
  step_ = step;
  phase = expert_phase(step, routing_.layer);
  first_token = first_token_of(rank_, microbatch);
  const auto kept = [&](std::int32_t rank, std::int64_t expert) {
    return std::min(routing_.capacity, routing_.draw->count(first_token_of(rank, microbatch),
                                                            routing_.rows, phase, expert));
  };
  std::vector<std::int64_t> own(index(experts));
  for (std::int64_t e = 0; e < experts; ++e) {
    own[index(e)] = kept(rank_, e);
  }
  const std::int64_t place = expert_place(mesh_, routing_.split, rank_);
  std::vector<std::int64_t> to_here(index(sources * local));
  for (std::int64_t s = 0; s < sources; ++s) {
    for (std::int64_t l = 0; l < local; ++l) {
      to_here[index(s * local + l)] = kept(source_ranks_[index(s)], place * local + l);
    }
  }
  for (auto* order : {&sent, &received, &unsorted, &sorted}) {
    order->assign(1, 0);
  }
  const auto add = [](std::vector<std::int64_t>& order, std::int64_t count) {
    order.push_back(order.back() + count);
  };
  for (std::int64_t part = 0; part < routing_.parts; ++part) {
    const auto here = [&](std::int64_t s, std::int64_t l) {
      return part_of(to_here[index(s * local + l)], part);
    };
    for (std::int64_t e = 0; e < experts; ++e) {
      add(sent, part_of(own[index(e)], part));
    }
    for (std::int64_t s = 0; s < sources; ++s) {
      for (std::int64_t l = 0; l < local; ++l) {
        if (s / members == own_tensor_) {
          add(received, here(s, l));
        }
        add(unsorted, here(s, l));
      }
    }
    for (std::int64_t l = 0; l < local; ++l) {
      for (std::int64_t s = 0; s < sources; ++s) {
        add(sorted, here(s, l));
      }
    }
  }
  return true;
}

void ExpertPlan::place_copies() {
  chosen.resize(index(routing_.rows * per_token));
  copy_of.resize(chosen.size());
  row_of.resize(index(copies()));
  expert_of.resize(row_of.size());
  std::vector<std::int64_t> next(index(experts), 0);
  std::vector<std::int64_t> all(index(experts), 0);
  for (std::int64_t part = 0; part < routing_.parts; ++part) {
    for (std::int64_t e = 0; e < experts; ++e) {
      all[index(e)] += blocks(sent, part * experts + e, 1).count;
    }
  }
  for (std::int64_t row = 0; row < routing_.rows; ++row) {
    const std::span<std::int32_t> of_row(chosen.data() + row * per_token, index(per_token));
    routing_.draw->experts_of(first_token + row, phase, of_row);
    for (std::int64_t i = 0; i < per_token; ++i) {
      const std::int64_t e = of_row[index(i)];
      const std::int64_t number = next[index(e)]++;
      const std::int64_t kept = all[index(e)];
      std::int64_t& copy = copy_of[index(row * per_token + i)];
      copy = -1;
      if (number < kept) {
        const std::int64_t part = ((number + 1) * routing_.parts - 1) / kept;
        copy = sent[index(part * experts + e)] + number - kept * part / routing_.parts;
        row_of[index(copy)] = row;
        expert_of[index(copy)] = static_cast<std::int32_t>(e);
      }
    }
  }
  for (std::int64_t e = 0; e < experts; ++e) {
    STEPCAST_CHECK(std::min(next[index(e)], routing_.capacity) == all[index(e)],
                   "{} copies for expert {}, {} were counted", next[index(e)], e, all[index(e)]);
  }
}

}  // namespace stepcast::runtime
