#include "traces/graph/step_graph.h"

#include <algorithm>
#include <map>
#include <utility>

#include "traces/graph/internal/issued_step.h"

namespace stepcast::traces {
namespace {

using std::chrono::microseconds;

constexpr Nanoseconds kNever = Nanoseconds::min();
constexpr std::size_t kNone = SIZE_MAX;
/// CUDA lets about a thousand launches wait in a queue; then the launching call blocks.
constexpr std::size_t kFullQueue = 1000;
/// A copy call that takes this long and returns after its copy has waited for it.
constexpr Nanoseconds kBlockingCopyCall = microseconds(20);

/// Walks the calls of a step in order and keeps what they issued.
class Builder {
 public:
  Builder(const RankRecording& rank, const HostOrder& order, Nanoseconds begin,
          const std::vector<Nanoseconds>& ends, GraphAssumptions& assumptions)
      : rank_(rank),
        e_(rank.events),
        order_(order),
        begin_(begin),
        assumptions_(assumptions),
        last_(rank.lanes.size(), kNone),
        before_last_(rank.lanes.size(), kNone),
        next_work_(rank.lanes.size(), 0),
        pending_(rank.lanes.size()),
        cursor_(begin) {
    step_.begin = begin;
    step_.ends = ends;
  }

  IssuedStep build() && {
    carry_over();
    const auto& actions = order_.actions();
    const auto earlier = [this](const HostAction& a, Nanoseconds t) {
      return e_.begin[a.event] < t;
    };
    auto at = std::lower_bound(actions.begin(), actions.end(), begin_, earlier);
    const auto stop = std::lower_bound(at, actions.end(), step_.ends.back(), earlier);
    const auto most = 2 * static_cast<std::size_t>(stop - at);  // a call that waits is two
    nodes_.reserve(most);
    for (auto* times : {&step_.issue, &step_.latency, &step_.duration}) {
      times->reserve(most);
    }
    for (; at != stop; ++at) {
      end_steps(e_.begin[at->event]);
      place_orphans(e_.begin[at->event]);
      act(*at);
    }
    end_steps(step_.ends.back());
    keep_delays();
    return std::move(step_);
  }

 private:
  /// Ends the steps that the host ends up to a time: with its own work up to there.
  void end_steps(Nanoseconds until) {
    while (step_.marks.size() < step_.ends.size() && step_.ends[step_.marks.size()] <= until) {
      const Nanoseconds end = step_.ends[step_.marks.size()];
      place_orphans(end);
      if (order_.actions().empty()) {
        await_work(end);
      }
      add_call(end, std::max<std::int64_t>(0, (end - cursor_).count()), false);
      cursor_ = std::max(cursor_, end);
      step_.marks.push_back(nodes_.size() - 1);
    }
  }

  /// Lets the host end a step after work that had ended by then. For recordings without calls,
  /// which tell nothing else of the host.
  void await_work(Nanoseconds end) {
    Nanoseconds done = cursor_;
    std::vector<std::size_t> awaited;
    for (const std::size_t node : last_) {
      if (node != kNone && e_.end(nodes_[node].event) <= end) {
        awaited.push_back(node);
        done = std::max(done, e_.end(nodes_[node].event));
      }
    }
    add_call(done, 0, true, awaited);
    cursor_ = done;
  }

  /// Earlier calls' work that still occupies its stream when the step begins.
  void carry_over() {
    for (std::size_t lane = 0; lane < rank_.lanes.size(); ++lane) {
      const auto& work = order_.work_of(lane);
      Nanoseconds busy = begin_;
      EventId last = kNoEvent;
      std::size_t& next = next_work_[lane];
      while (next < work.size() && before_step(work[next])) {
        if (e_.end(work[next]) > busy) {
          busy = e_.end(work[next]);
          last = work[next];
        }
        ++next;
      }
      if (last != kNoEvent) {
        add({.event = last, .lane = static_cast<std::uint16_t>(lane), .issued = begin_},
            {.duration = (busy - begin_).count()});
        step_.carried.insert(nodes_.size() - 1);
        last_[lane] = nodes_.size() - 1;
      }
    }
  }
  [[nodiscard]] bool before_step(EventId work) const {
    return e_.link[work] != kNoEvent ? e_.begin[e_.link[work]] < begin_ : e_.begin[work] < begin_;
  }

  void act(const HostAction& action) {
    const Nanoseconds called = e_.begin[action.event];
    switch (action.what) {
      case HostCall::kLaunch:
      case HostCall::kCopy:
      case HostCall::kBlockingCopy:
        launch(action);
        return;
      case HostCall::kEventRecord:
        if (e_.correlation[action.event] != 0) {
          recorded_[e_.correlation[action.event]] = last_;
        }
        return;
      case HostCall::kStreamWait:
        wait_on_stream(action.event);
        return;
      case HostCall::kStreamSync:
      case HostCall::kDeviceSync:
      case HostCall::kEventSync:
        place_orphans(called, e_.end(action.event));
        synchronise(action.event, called, awaited_by(action));
        return;
      case HostCall::kMemory:
      case HostCall::kOther:
        return;
    }
  }

  void launch(const HostAction& action) {
    const Nanoseconds called = e_.begin[action.event];
    const Nanoseconds returned = e_.end(action.event);
    const auto work = order_.launched_by(action);
    std::vector<std::size_t> launched;
    for (const EventId w : work) {
      take_orphans(e_.lane[w], e_.begin[w], kNever);
      place_taken();
      launched.push_back(place(w, called));
    }
    if (launched.empty()) {
      return;  // its work was not recorded: the call is host time like any other
    }
    cursor_ = std::max(cursor_, called);
    Nanoseconds done = kNever;
    for (const EventId w : work) {
      done = std::max(done, e_.end(w));
    }
    const bool waited_for_copy =
        action.what == HostCall::kBlockingCopy ||
        (action.what == HostCall::kCopy && returned - called > kBlockingCopyCall &&
         done <= returned + microseconds(1));
    const Nanoseconds full = order_.queue_full_in(action.event);
    if (waited_for_copy) {
      synchronise(action.event, called, launched);
    } else if (full > Nanoseconds{0}) {
      step_.stripped += full.count();
      cursor_ += full;  // the rest of the call is host time
      ++assumptions_.full_queues;
    } else if (returned - called > 2 * order_.launch_call() && waiting_at(called) >= kFullQueue) {
      const Nanoseconds waited = returned - called - order_.launch_call();
      step_.stripped += waited.count();
      cursor_ += waited;
      ++assumptions_.full_queues;
    }
  }

  /// Pieces of work issued and not ended.
  std::size_t waiting_at(Nanoseconds t) const {
    std::size_t waiting = 0;
    for (std::size_t i = nodes_.size(); i > 0 && waiting < kFullQueue; --i) {
      const IssuedNode& n = nodes_[i - 1];
      if (n.lane != kCallsLane) {
        if (e_.end(n.event) <= t) {
          break;
        }
        ++waiting;
      }
    }
    return waiting;
  }

  std::size_t place(EventId work, Nanoseconds issued) {
    const std::uint16_t lane = e_.lane[work];
    add({.event = work, .lane = lane, .issued = issued},
        {.issue = std::max<std::int64_t>(0, (issued - cursor_).count()),
         .latency = latency_of(work, lane, issued),
         .duration = e_.duration[work].count()},
        pending_[lane]);
    cursor_ = std::max(cursor_, issued);
    pending_[lane].clear();
    if (guess_pending_) {
      guess_pending_ = false;
      guess_edge(nodes_.back());
    }
    before_last_[lane] = last_[lane];
    last_[lane] = nodes_.size() - 1;
    return last_[lane];
  }

  struct Times {
    std::int64_t issue = 0, latency = 0, duration = 0;
  };
  void add(IssuedNode node, const Times& times, const std::vector<std::size_t>& waits = {}) {
    node.first_wait = static_cast<std::uint32_t>(step_.waits.size());
    step_.waits.insert(step_.waits.end(), waits.begin(), waits.end());
    nodes_.push_back(node);
    step_.issue.push_back(times.issue);
    step_.latency.push_back(times.latency);
    step_.duration.push_back(times.duration);
  }

  /// From the call until the work could begin: its own where the stream was idle and nothing else
  /// held it, else the usual.
  [[nodiscard]] std::int64_t latency_of(EventId work, std::size_t lane, Nanoseconds issued) const {
    if (e_.link[work] == kNoEvent) {
      return 0;  // what it waited for, its stream aside, is a delay
    }
    const bool idle = last_[lane] == kNone || e_.end(nodes_[last_[lane]].event) <= issued;
    const bool free = idle && pending_[lane].empty() && !guess_pending_ &&
                      e_.category[work] != EventCategory::kCollective;
    const Nanoseconds own = e_.begin[work] - issued;
    const Nanoseconds latency = free ? own : std::min(own, order_.launch_latency());
    return std::max<std::int64_t>(0, (latency - order_.dispatch_gap()).count());
  }

  /// Keeps a gap before work that neither its launch, its stream nor a wait explains, and that is
  /// longer than those between pieces of work usually are; before work without a launch any.
  void keep_delays() {
    std::vector<std::size_t> before(rank_.lanes.size(), kNone);  // by lane
    step_.delay.resize(nodes_.size(), 0);
    const auto end_of = [this](std::size_t i) {
      return step_.carried.contains(i) ? begin_ + Nanoseconds(step_.duration[i])
                                       : e_.end(nodes_[i].event);
    };
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const IssuedNode& n = nodes_[i];
      if (n.lane == kCallsLane) {
        continue;
      }
      Nanoseconds could = n.issued + Nanoseconds(step_.latency[i]);
      for (const std::uint32_t w : step_.waits_of(i)) {
        could = nodes_[w].lane == kCallsLane ? could : std::max(could, end_of(w));
      }
      if (before[n.lane] != kNone) {
        could = std::max(could, end_of(before[n.lane]));
      }
      const Nanoseconds usual =
          e_.link[n.event] == kNoEvent ? order_.dispatch_gap() : order_.usual_gap();
      if (!step_.carried.contains(i) && e_.begin[n.event] - could > usual) {
        step_.delay[i] = (e_.begin[n.event] - could - order_.dispatch_gap()).count();
      }
      before[n.lane] = i;
    }
  }

  /// A wait without ids, of the last node: for the latest work issued to another stream.
  void guess_edge(const IssuedNode& node) {
    std::size_t source = kNone;
    for (std::size_t lane = 0; lane < last_.size(); ++lane) {
      if (lane != node.lane && last_[lane] != kNone && (source == kNone || last_[lane] > source)) {
        source = last_[lane];
      }
    }
    if (source == kNone) {
      return;
    }
    if (e_.end(nodes_[source].event) > e_.begin[node.event]) {
      ++assumptions_.refuted_edges;
      return;
    }
    ++assumptions_.inferred_edges;
    step_.waits.push_back(static_cast<std::uint32_t>(source));
  }

  /// Places work without a launch that began up to a time: as it began, held by nothing of the
  /// host. Before a call that waits: what had ended when the call returned.
  void place_orphans(Nanoseconds until, Nanoseconds ended = kNever) {
    for (std::size_t lane = 0; lane < rank_.lanes.size(); ++lane) {
      take_orphans(lane, until, ended);
    }
    std::stable_sort(taken_.begin(), taken_.end(),
                     [this](EventId a, EventId b) { return e_.begin[a] < e_.begin[b]; });
    place_taken();
  }

  void take_orphans(std::size_t lane, Nanoseconds until, Nanoseconds ended) {
    const auto& work = order_.work_of(lane);
    std::size_t& next = next_work_[lane];
    for (; next < work.size() && (e_.begin[work[next]] < until || e_.end(work[next]) <= ended);
         ++next) {
      if (e_.link[work[next]] == kNoEvent) {
        taken_.push_back(work[next]);
      }
    }
  }

  void place_taken() {
    for (const EventId work : taken_) {
      ++assumptions_.orphans;
      if (order_.actions().empty()) {
        follow_latest(work);
      }
      place(work, cursor_);
    }
    taken_.clear();
  }

  /// Lets work begin after what had ended last before it, on whatever stream. For recordings
  /// without calls, which tell nothing else of what it waited for.
  void follow_latest(EventId work) {
    const std::size_t own = e_.lane[work];
    std::size_t latest = last_[own];
    for (std::size_t lane = 0; lane < last_.size(); ++lane) {
      // The latest of a stream may still run; the one before has ended.
      for (const std::size_t node : {last_[lane], before_last_[lane]}) {
        if (node != kNone && e_.end(nodes_[node].event) <= e_.begin[work] &&
            (latest == kNone || e_.end(nodes_[node].event) > e_.end(nodes_[latest].event))) {
          latest = node;
        }
      }
    }
    if (latest != kNone && nodes_[latest].lane != own) {
      pending_[own].push_back(latest);
    }
  }

  void wait_on_stream(EventId call) {
    const SyncInfo* sync = order_.sync_of(call);
    if (sync == nullptr || sync->record_correlation < 0) {
      guess_pending_ = true;
      return;
    }
    const auto recorded = recorded_.find(sync->record_correlation);
    const std::size_t target = lane_of(sync->stream);
    const std::size_t source = lane_of(sync->source_stream);
    if (recorded != recorded_.end() && target != kNone && source != kNone &&
        recorded->second[source] != kNone) {
      pending_[target].push_back(recorded->second[source]);
    }
  }

  [[nodiscard]] std::size_t lane_of(std::int32_t stream) const {
    for (std::size_t lane = 0; lane < rank_.lanes.size(); ++lane) {
      if (rank_.lanes[lane].kind == Lane::Kind::kStream && rank_.lanes[lane].stream == stream) {
        return lane;
      }
    }
    return kNone;
  }

  [[nodiscard]] std::vector<std::size_t> awaited_by(const HostAction& action) const {
    const SyncInfo* sync = order_.sync_of(action.event);
    std::vector<std::size_t> all;
    if (action.what == HostCall::kStreamSync && sync != nullptr && sync->stream >= 0) {
      const std::size_t lane = lane_of(sync->stream);
      if (lane != kNone && last_[lane] != kNone) {
        all.push_back(last_[lane]);
      }
      return all;
    }
    if (action.what == HostCall::kEventSync && sync != nullptr && sync->record_correlation >= 0) {
      const auto recorded = recorded_.find(sync->record_correlation);
      const std::size_t lane = lane_of(sync->source_stream);
      if (recorded != recorded_.end() && lane != kNone) {
        if (recorded->second[lane] != kNone) {
          all.push_back(recorded->second[lane]);
        }
        return all;
      }
    }
    // Without a record of what it waited for: what had ended when the call returned.
    for (const std::size_t node : last_) {
      if (node != kNone && (action.what == HostCall::kDeviceSync ||
                            e_.end(nodes_[node].event) <= e_.end(action.event))) {
        all.push_back(node);
      }
    }
    return all;
  }

  void synchronise(EventId call, Nanoseconds called, const std::vector<std::size_t>& awaited) {
    Nanoseconds done = called;
    for (const std::size_t node : awaited) {
      done = std::max(done, e_.end(nodes_[node].event));
    }
    const Nanoseconds returned = e_.end(call);
    const std::int64_t waited =
        std::max<std::int64_t>(0, (std::min(returned, done) - called).count());
    if (called > cursor_) {
      add_call(called, (called - cursor_).count(), false);
    }
    step_.stripped += waited;
    add_call(returned, (returned - called).count() - waited, true, awaited);
    nodes_.back().event = call;
    cursor_ = returned;
  }

  void add_call(Nanoseconds issued, std::int64_t host_time, bool waits,
                const std::vector<std::size_t>& awaited = {}) {
    add({.host_waits = waits, .issued = issued}, {.issue = host_time}, awaited);
  }

  const RankRecording& rank_;
  const Events& e_;
  const HostOrder& order_;
  Nanoseconds begin_;
  GraphAssumptions& assumptions_;
  IssuedStep step_;
  std::vector<IssuedNode>& nodes_ = step_.nodes;
  std::vector<std::size_t> last_, before_last_;    ///< by lane: latest nodes
  std::vector<EventId> taken_;                     ///< orphans to be placed next
  std::vector<std::size_t> next_work_;             ///< by lane: for orphans
  std::vector<std::vector<std::size_t>> pending_;  ///< by lane: what its next work waits for
  std::map<std::int64_t, std::vector<std::size_t>> recorded_;  ///< by record call: last_ then
  bool guess_pending_ = false;
  Nanoseconds cursor_;  ///< host time accounted for
};

}  // namespace

RankGraph build_rank_graph(const Recording& recording, const RankRecording& rank,
                           const HostOrder& order, Nanoseconds begin,
                           const std::vector<Nanoseconds>& ends, GraphAssumptions& assumptions) {
  return rank_graph_of(recording, rank, order,
                       Builder(rank, order, begin, ends, assumptions).build());
}

}  // namespace stepcast::traces
