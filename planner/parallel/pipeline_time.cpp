#include "planner/parallel/pipeline_time.h"

#include <algorithm>

#include "core/error.h"
#include "workloads/schedule/schedule.h"

namespace stepcast::planner {
namespace {

void gpipe_ends(const PipelinePasses& p, std::vector<double>& ends) {
  const double more = static_cast<double>(p.microbatches - 1);
  double sum = 0;
  double slowest = 0;
  for (const double f : p.forward) {
    sum += f;
    slowest = std::max(slowest, f);
  }
  const double forwards = sum + more * slowest;
  sum = slowest = 0;
  for (auto s = static_cast<std::size_t>(p.stages); s-- > 0;) {
    sum += p.backward[s];
    slowest = std::max(slowest, p.backward[s]);
    ends[s] = forwards + sum + more * slowest;
  }
}

/// Time of the first `count` passes of a stage that visit its chunks in groups of p micro-batches.
double first_passes(const PipelinePasses& p, const std::vector<double>& pass, std::int32_t stage,
                    std::int64_t count) {
  if (p.chunks == 1) {
    return static_cast<double>(count) * pass[static_cast<std::size_t>(stage)];
  }
  const std::int64_t group = std::int64_t{p.stages} * p.chunks;
  const std::int64_t whole = count / group * p.stages;
  const std::int64_t rest = count % group;
  double time = 0;
  for (std::int32_t c = 0; c < p.chunks; ++c) {
    const std::int64_t more =
        std::clamp<std::int64_t>(rest - std::int64_t{c} * p.stages, 0, p.stages);
    time += static_cast<double>(whole + more) * pass[p.at(stage, c)];
  }
  return time;
}

/// One micro-batch through all virtual stages: straight, or held up by a slow stage that works on
/// p micro-batches of a chunk before it takes the next.
double chain(const PipelinePasses& p, const std::vector<double>& pass) {
  double straight = 0;
  double last = 0;  // of the last chunk
  for (std::int32_t c = 0; c < p.chunks; ++c) {
    last = 0;
    for (std::int32_t s = 0; s < p.stages; ++s) {
      last += pass[p.at(s, c)];
    }
    straight += last;
  }
  double longest = straight;
  double before = 0;
  for (std::int32_t s = 0; p.chunks > 1 && s < p.stages; ++s) {
    double held = 0;
    for (std::int32_t c = 0; c + 1 < p.chunks; ++c) {
      held += pass[p.at(s, c)];
    }
    longest = std::max(longest, before + static_cast<double>(p.stages) * held + last);
    before += pass[p.at(s, 0)];
    last -= pass[p.at(s, p.chunks - 1)];
  }
  return longest;
}

/// See pipeline_bound.
void zero_bubble_bound(const PipelinePasses& p, std::int32_t ahead, std::vector<double>& ends) {
  const std::int64_t m = p.microbatches;
  double way_down = 0;
  double forward_before = 0;
  for (const double f : p.forward) {
    way_down += f;
  }
  forward_before = way_down;
  double forward_after = 0;
  double backward_after = 0;
  double last_backward = 0;  // of this stage, at least
  for (std::int32_t s = p.stages; s-- > 0;) {
    const auto at = static_cast<std::size_t>(s);
    const double f = p.forward[at];
    const double b = p.backward[at];
    const double w = p.weights[at];
    forward_before -= f;
    const std::int64_t opening =
        std::min<std::int64_t>(m, std::int64_t{ahead} * (p.stages - 1 - s) + 1);
    const double head = std::max(
        forward_before,
        way_down + backward_after - static_cast<double>(opening) * f);  // once round, or straight
    const auto weights_after = [m, later = std::int64_t{ahead} * s](std::int64_t backwards) {
      return static_cast<double>(std::clamp<std::int64_t>(backwards - later, 0, m));
    };
    const double backwards = static_cast<double>(m) * (f + b) + weights_after(m - 1) * w;
    const double round = static_cast<double>(m) * f + static_cast<double>(m - opening) * b +
                         weights_after(m - opening) * w + forward_after + backward_after + b;
    last_backward = std::max(
        {last_backward + b, head + backwards, (opening < m ? head : forward_before) + round});
    ends[at] = last_backward + (static_cast<double>(m) - weights_after(m - 1)) * w;
    forward_after += f;
    backward_after += b;
  }
}

/// See pipeline_bound.
void v_bound(const PipelinePasses& p, std::vector<double>& ends) {
  double straight = 0;  // one micro-batch down and up, back to the stage
  for (std::size_t at = 0; at < p.forward.size(); ++at) {
    straight += p.forward[at] + p.backward[at];
  }
  double before = 0;
  double backward_before = 0;
  for (std::int32_t s = 0; s < p.stages; ++s) {
    double busy = 0;
    for (std::int32_t c = 0; c < p.chunks; ++c) {
      const std::size_t at = p.at(s, c);
      busy += p.forward[at] + p.backward[at] + p.weights_at(at);
    }
    const std::size_t first = p.at(s, 0);
    ends[static_cast<std::size_t>(s)] =
        std::max(before + static_cast<double>(p.microbatches) * busy,
                 straight - backward_before + p.weights_at(first));
    before += p.forward[first];
    backward_before += p.backward[first];
  }
}

}  // namespace

std::int64_t warm_up_passes(ScheduleKind kind, const PipelinePasses& p, std::int32_t stage) {
  const std::int64_t total = p.microbatches * p.chunks;
  const std::int64_t ahead = traits_of(kind).ahead;
  if (ahead == 0) {
    return total;
  }
  const std::int64_t behind = p.stages - 1 - stage;
  return std::min(
      total, p.chunks == 1 ? ahead * behind : 2 * behind + std::int64_t{p.chunks - 1} * p.stages);
}

void pipeline_bound(ScheduleKind kind, const PipelinePasses& p, std::vector<double>& ends) {
  const auto stages = static_cast<std::size_t>(p.stages);
  ends.resize(stages);
  const ScheduleTraits& schedule = traits_of(kind);
  if (schedule.ahead == 0) {
    gpipe_ends(p, ends);
    return;
  }
  if (schedule.placement == ChunkPlacement::kV && p.chunks > 1) {
    v_bound(p, ends);
    return;
  }
  if (schedule.splits_weights) {
    zero_bubble_bound(p, schedule.ahead, ends);
    return;
  }
  const std::int32_t top = p.chunks - 1;
  const std::int64_t total = p.microbatches * p.chunks;
  const double way_down = chain(p, p.forward);
  const double way_up = chain(p, p.backward);
  double straight_up = 0;  // touches every stage's last pass, as a held-up way need not
  for (const double b : p.backward) {
    straight_up += b;
  }
  double forward_after = 0;   // of the last chunk, from this stage on
  double backward_after = 0;  // of the backward pass
  double backward_before = 0;
  double forward_before = 0;  // of the first chunk, before this stage
  for (std::int32_t s = 0; s < p.stages; ++s) {
    forward_before += p.forward[p.at(s, 0)];
    backward_before += p.backward[p.at(s, 0)];
  }
  const double all_backward = backward_before;
  double through_last = 0;  // the longest path that ends with the last micro-batch's way up
  for (std::int32_t s = p.stages; s-- > 0;) {
    const double f = p.forward[p.at(s, top)];
    const double b = p.backward[p.at(s, top)];
    forward_after += f;
    backward_after += b;
    forward_before -= p.forward[p.at(s, 0)];
    backward_before -= p.backward[p.at(s, 0)];
    double busy = 0;
    for (std::int32_t c = 0; c <= top; ++c) {
      busy += p.forward[p.at(s, c)] + p.backward[p.at(s, c)];
    }
    busy *= static_cast<double>(p.microbatches);
    const std::int64_t opening = std::min(total, warm_up_passes(kind, p, s) + 1);
    const double round = way_down + backward_after - first_passes(p, p.forward, s, opening) - b;
    const double closing = way_up + forward_after - first_passes(p, p.backward, s, opening) - f;
    const double head = std::max(forward_before, round);
    // Both ways round only if a forward lies between the first and the last backward.
    const double head_of_closing = opening < total ? head : forward_before;
    through_last = std::max(through_last, busy + head_of_closing + closing);
    ends[static_cast<std::size_t>(s)] = busy + head;
  }
  double before = all_backward;
  for (auto s = stages; s-- > 0;) {
    const double own = p.backward[s];
    before -= own;
    if (s + 1 < stages) {
      ends[s] = std::max(ends[s], ends[s + 1] + own);
    }
    const double detour = s == 0 ? 0 : way_up - straight_up;
    ends[s] = std::max(ends[s], through_last - detour - before);
  }
}

const ScheduleTimeline::Order& ScheduleTimeline::order(ScheduleKind kind, const PipelinePasses& p,
                                                       std::int64_t microbatches) {
  const auto [it, fresh] = known_.try_emplace({kind, p.stages, p.chunks, microbatches});
  if (!fresh) {
    return it->second;
  }
  const auto m = static_cast<std::int32_t>(microbatches);
  const VirtualStages virtual_stages{p.stages, p.chunks, traits_of(kind).placement};
  const std::int64_t top = virtual_stages.count() - 1;
  const auto slot = [m](std::int64_t virtual_stage, std::int32_t microbatch, bool backward) {
    return static_cast<std::int32_t>(2 * (virtual_stage * m + microbatch) + (backward ? 1 : 0));
  };
  const auto schedules = workloads::pipeline_schedules(kind, {p.stages, p.chunks, m});
  for (std::int32_t s = 0; s < p.stages; ++s) {
    auto& steps = it->second.emplace_back();
    for (const auto& step : schedules[static_cast<std::size_t>(s)]) {
      const std::int64_t at = virtual_stages.at(s, step.chunk);
      Step own{-1, -1, step.chunk * p.stages + s, step.pass};
      if (step.pass == workloads::Pass::kForward) {
        own.slot = slot(at, step.microbatch, false);
        own.after = at > 0 ? slot(at - 1, step.microbatch, false) : -1;
      } else if (step.pass == workloads::Pass::kBackward) {
        own.slot = slot(at, step.microbatch, true);
        own.after = at < top ? slot(at + 1, step.microbatch, true) : -1;
      }
      steps.push_back(own);
    }
  }
  return it->second;
}

void ScheduleTimeline::walk(const PipelinePasses& p, const Order& order, std::int64_t microbatches,
                            std::vector<double>& ends) {
  const auto stages = static_cast<std::size_t>(p.stages);
  ends.assign(stages, 0.0);
  done_.assign(2 * static_cast<std::size_t>(microbatches) * p.forward.size(), -1.0);
  next_.assign(stages, 0);
  std::size_t left = stages;
  while (left > 0) {
    bool moved = false;
    for (std::size_t s = 0; s < stages; ++s) {
      const std::vector<Step>& steps = order[s];
      std::size_t& next = next_[s];
      const std::size_t before = next;
      for (; next < steps.size(); ++next) {
        const Step& step = steps[next];
        double begin = ends[s];
        if (step.after >= 0) {
          const double needed = done_[static_cast<std::size_t>(step.after)];
          if (needed < 0) {
            break;
          }
          begin = std::max(begin, needed);
        }
        const auto pass = static_cast<std::size_t>(step.pass);
        ends[s] = begin + (step.kind == workloads::Pass::kForward    ? p.forward[pass]
                           : step.kind == workloads::Pass::kBackward ? p.backward[pass]
                                                                     : p.weights[pass]);
        if (step.slot >= 0) {
          done_[static_cast<std::size_t>(step.slot)] = ends[s];
        }
      }
      moved = moved || next > before;
      left -= next > before && next == steps.size() ? 1 : 0;
    }
    STEPCAST_CHECK(moved, "the stages of a pipeline wait for each other");
  }
}

void ScheduleTimeline::ends(ScheduleKind kind, const PipelinePasses& p, std::vector<double>& ends) {
  if (traits_of(kind).ahead == 0) {
    pipeline_bound(kind, p, ends);
    return;
  }
  const std::int64_t round = p.stages;
  const std::int64_t rounds = (p.microbatches - 1) / round;  // that leave at least one behind
  constexpr std::int64_t kWalked = 4;
  if (rounds <= kWalked) {
    walk(p, order(kind, p, p.microbatches), p.microbatches, ends);
    return;
  }
  const std::int64_t skipped = rounds - kWalked;
  const std::int64_t fewer = p.microbatches - skipped * round;
  walk(p, order(kind, p, fewer), fewer, ends);
  std::vector<double>& before = before_;
  walk(p, order(kind, p, fewer - round), fewer - round, before);
  for (std::size_t s = 0; s < ends.size(); ++s) {
    ends[s] += static_cast<double>(skipped) * (ends[s] - before[s]);
  }
  // Passes in flight can hide a slow stage for longer than that.
  pipeline_bound(kind, p, before);
  for (std::size_t s = 0; s < ends.size(); ++s) {
    ends[s] = std::max(ends[s], before[s]);
  }
}

}  // namespace stepcast::planner
