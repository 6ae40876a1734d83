#include "simulator/network.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace stepcast::simulator {

Network::Network(std::size_t links)
    : on_link_(links),
      free_(links, 0),
      open_(links, 0),
      uses_(links, 0),
      full_(links, 0),
      busy_place_(links, 0) {}

void Network::start(std::uint32_t id, std::int64_t now, std::int64_t duration, double speed,
                    std::span<const Use> links) {
  if (id >= flows_.size()) {
    flows_.resize(id + 1);
  }
  Flow& flow = flows_[id];
  flow.start = now;
  flow.duration = duration;
  flow.speed = speed;
  flow.place = kAlone;
  flow.links.clear();
  bool meets = false;
  if (speed > 0 && duration > 0) {
    flow.links.assign(links.begin(), links.end());
    for (const auto& [link, use] : flow.links) {
      meets = meets || !on_link_[link].empty();
      if (on_link_[link].empty()) {
        busy_place_[link] = static_cast<std::uint32_t>(busy_.size());
        busy_.push_back(link);
      }
      on_link_[link].push_back(id);
    }
  }
  if (!meets) {
    alone_.schedule(id, now + duration);
    return;
  }
  for (const auto& [link, use] : flow.links) {
    for (const std::uint32_t other : on_link_[link]) {
      if (flows_[other].place == kAlone) {
        enter_pool(other, now);
      }
    }
  }
  dirty_ = true;
}

void Network::enter_pool(std::uint32_t id, std::int64_t now) {
  Flow& flow = flows_[id];
  alone_.cancel(id);
  flow.place = static_cast<std::uint32_t>(pool_.size());
  const std::int64_t end = flow.start + flow.duration;
  pool_.push_back({.id = id,
                   .link_count = static_cast<std::uint32_t>(flow.links.size()),
                   .links = flow.links.data(),
                   .speed = flow.speed,
                   .remaining = static_cast<double>(end - now),
                   .rate = 1,
                   .next_rate = 1,
                   .mark = now,
                   .end = end,
                   .fixed = 0});
  slowest_ = pool_.size() == 1 ? flow.speed : std::min(slowest_, flow.speed);
}

void Network::leave(std::uint32_t id) {
  Flow& flow = flows_[id];
  for (const auto& [link, use] : flow.links) {
    auto& here = on_link_[link];
    *std::find(here.begin(), here.end(), id) = here.back();
    here.pop_back();
    dirty_ = dirty_ || !here.empty();
    if (here.empty()) {
      busy_[busy_place_[link]] = busy_.back();
      busy_place_[busy_.back()] = busy_place_[link];
      busy_.pop_back();
    }
  }
  if (flow.place != kAlone) {
    pool_[flow.place] = pool_.back();
    flows_[pool_[flow.place].id].place = flow.place;
    pool_.pop_back();
    flow.place = kAlone;
    dirty_ = true;  // the pool's next end has to be found again
  }
}

void Network::fill() {
  for (const std::uint32_t link : busy_) {
    const auto& here = on_link_[link];
    free_[link] = 1;
    // Links of transfers that are alone do not take part.
    open_[link] =
        flows_[here.front()].place == kAlone ? 0 : static_cast<std::uint32_t>(here.size());
    uses_[link] = 0;
  }
  for (const Pooled& p : pool_) {
    for (std::uint32_t k = 0; k < p.link_count; ++k) {
      uses_[p.links[k].link] += p.links[k].use;
    }
  }
  double slowest = slowest_;
  ++round_;
  std::size_t left = pool_.size();
  while (left > 0) {
    // The level every open transfer can be raised to.
    double level = std::numeric_limits<double>::infinity();
    for (const std::uint32_t link : busy_) {
      if (open_[link] > 0) {
        level = std::min(level, free_[link] / uses_[link]);
      }
    }
    const double reach = level * (1 + 1e-12);
    // Those whose own speed is below it stop there; if there are none, those on a full link stop.
    const bool slow = slowest <= reach;
    for (const std::uint32_t link : busy_) {
      full_[link] = !slow && open_[link] > 0 && free_[link] <= reach * uses_[link];
    }
    const std::size_t before = left;
    const double bound = slowest;
    slowest = std::numeric_limits<double>::infinity();
    for (Pooled& p : pool_) {
      if (p.fixed == round_) {
        continue;
      }
      bool stops = slow && p.speed <= reach;
      for (std::uint32_t k = 0; k < p.link_count; ++k) {
        stops = stops || full_[p.links[k].link] != 0;
      }
      if (!stops) {
        slowest = std::min(slowest, p.speed);
      } else {
        p.fixed = round_;
        p.next_rate = slow ? 1.0 : level / p.speed;
        const double used = slow ? p.speed : level;
        --left;
        for (std::uint32_t k = 0; k < p.link_count; ++k) {
          const auto [link, use] = p.links[k];
          free_[link] = std::max(0.0, free_[link] - used * use);
          uses_[link] -= use;
          --open_[link];
        }
      }
    }
    // `slowest_` may be a speed that has left: then nothing stopped, and the true one is known now.
    STEPCAST_CHECK(left < before || slowest > bound, "progressive filling stalls at {} transfers",
                   left);
  }
}

void Network::settle(std::int64_t now) {
  if (!dirty_) {
    return;
  }
  dirty_ = false;
  fill();
  pool_end_ = std::numeric_limits<std::int64_t>::max();
  double rate = 1;
  double inverse = 1;
  for (std::size_t i = 0; i < pool_.size(); ++i) {
    Pooled& p = pool_[i];
    if (p.next_rate != p.rate) {
      if (p.next_rate != rate) {  // mostly all have one rate: one division
        rate = p.next_rate;
        inverse = 1 / rate;
      }
      p.remaining = std::max(0.0, p.remaining - static_cast<double>(now - p.mark) * p.rate);
      p.mark = now;
      p.rate = rate;
      p.end = now + static_cast<std::int64_t>(p.remaining * inverse + 0.5);
    }
    // Equal ends leave in the order of their ids: the pool's own order depends on who left before.
    if (p.end < pool_end_ || (p.end == pool_end_ && p.id < pool_[pool_next_].id)) {
      pool_end_ = p.end;
      pool_next_ = i;
    }
  }
}

std::int64_t Network::next_end() const {
  if (alone_.empty()) {
    return pool_end_;
  }
  return pool_.empty() ? alone_.top().time : std::min(alone_.top().time, pool_end_);
}

std::uint32_t Network::finish_next() {
  if (!alone_.empty() && (pool_.empty() || alone_.top().time <= pool_end_)) {
    const std::uint32_t id = alone_.pop().source;
    leave(id);
    return id;
  }
  const std::uint32_t id = pool_[pool_next_].id;
  leave(id);
  return id;
}

}  // namespace stepcast::simulator
