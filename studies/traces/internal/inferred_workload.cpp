#include "studies/traces/internal/inferred_workload.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "traces/events/operators.h"
#include "traces/graph/step_marks.h"

namespace stepcast::studies {
namespace {

using traces::EventCategory;
using traces::EventId;
using traces::kNoDetail;
using traces::kNoEvent;
using traces::NameId;

constexpr std::string_view kOptimizer = "Optimizer.step#";
constexpr std::string_view kAutograd = "autograd::engine::evaluate_function";
constexpr std::string_view kLookupGradient = "torch::autograd::CppNode<SplitLookupFunction";

/// "Tensor(float)" of execution traces -> "float".
std::string plain_type(std::string type) {
  constexpr std::string_view kTensor = "Tensor(";
  if (type.starts_with(kTensor) && type.ends_with(')')) {
    type = type.substr(kTensor.size(), type.size() - kTensor.size() - 1);
  }
  return type;
}

class Reader {
 public:
  Reader(const traces::Recording& recording, const traces::RankRecording& rank)
      : recording_(recording), rank_(rank), e_(rank.events), parent_(e_.size(), kNoEvent) {
    find_parents();
    find_backward_lanes();
  }

  /// Reads what was called from a place in the order of calls on, up to another.
  SeenRank read(std::int64_t from, std::int64_t to) {
    SeenRank seen;
    seen.rank = rank_.rank;
    std::vector<EventId> calls;
    for (EventId i = 0; i < e_.size(); ++i) {
      if (!traces::on_device(e_.category[i]) && order(i) >= from && order(i) < to) {
        calls.push_back(i);
      }
    }
    std::stable_sort(calls.begin(), calls.end(),
                     [this](EventId a, EventId b) { return order(a) < order(b); });
    add_ops(calls, seen);
    for (const EventId i : calls) {
      const std::string_view name = name_of(i);
      if (name.starts_with(kOptimizer)) {
        const std::string_view rest = name.substr(kOptimizer.size());
        seen.optimizer = std::string(rest.substr(0, rest.find('.')));
      }
    }
    add_collectives(from, to, seen);
    return seen;
  }

  /// Times of a timeline, node numbers of a graph.
  [[nodiscard]] std::int64_t order(EventId i) const {
    return timeline() ? e_.begin[i].count() : e_.external[i];
  }
  [[nodiscard]] bool timeline() const { return rank_.timing == traces::Timing::kTimeline; }

  /// In a graph: where the optimizer stepped.
  [[nodiscard]] std::vector<std::int64_t> optimizer_steps() const {
    std::vector<std::int64_t> at;
    for (EventId i = 0; i < e_.size(); ++i) {
      if (name_of(i).starts_with(kOptimizer)) {
        at.push_back(order(i));
      }
    }
    std::sort(at.begin(), at.end());
    return at;
  }

 private:
  [[nodiscard]] std::string_view name_of(EventId i) const {
    return recording_.names.view(e_.name[i]);
  }

  void find_parents() {
    std::vector<EventId> open;
    for (const traces::Lane& lane : rank_.lanes) {
      open.clear();
      for (EventId i = lane.first; i < lane.first + lane.count; ++i) {
        if (!timeline()) {
          const auto around = rank_.dependencies.of(i);
          parent_[i] = around.empty() ? kNoEvent : around.front();
          continue;
        }
        while (!open.empty() && e_.end(open.back()) <= e_.begin[i]) {
          open.pop_back();
        }
        parent_[i] = open.empty() ? kNoEvent : open.back();
        open.push_back(i);
      }
    }
    // A file may name parents in a circle: one of them is left out.
    std::vector<EventId> seen(e_.size(), kNoEvent);  // from which event
    for (EventId i = 0; i < e_.size(); ++i) {
      for (EventId p = i; p != kNoEvent && seen[p] == kNoEvent; p = parent_[p]) {
        seen[p] = i;
        if (parent_[p] != kNoEvent && seen[parent_[p]] == i) {
          parent_[p] = kNoEvent;
        }
      }
    }
  }

  /// Threads whose outermost operators are mostly autograd's.
  void find_backward_lanes() {
    std::vector<std::int64_t> more(rank_.lanes.size(), 0);
    for (EventId i = 0; i < e_.size(); ++i) {
      const bool outermost = parent_[i] == kNoEvent || !is_op(parent_[i]);
      if (is_op(i) && outermost) {
        more[e_.lane[i]] += name_of(i).starts_with(kAutograd) ? 1 : -1;
      }
    }
    for (const std::int64_t m : more) {
      backward_.push_back(m > 0);
    }
  }
  [[nodiscard]] bool is_op(EventId i) const { return e_.category[i] == EventCategory::kCpuOp; }

  [[nodiscard]] bool is_backward(EventId i) const {
    for (EventId p = i; p != kNoEvent; p = parent_[p]) {
      if (is_op(p) && name_of(p).starts_with(kAutograd)) {
        return true;
      }
    }
    return backward_[e_.lane[i]];
  }

  [[nodiscard]] std::vector<std::vector<std::int64_t>> shapes(EventId i) const {
    const NameId text = e_.detail[i] == kNoDetail
                            ? traces::kNoName
                            : rank_.ops[static_cast<std::size_t>(e_.detail[i])].shapes;
    return text == traces::kNoName ? std::vector<std::vector<std::int64_t>>{}
                                   : traces::shapes_of(recording_.names.view(text));
  }

  /// Columns of all tables of FBGEMM's lookups, where their values were not recorded: those of the
  /// gradient that comes back to as many samples.
  [[nodiscard]] std::optional<traces::OperatorWork> lookup(EventId i) const {
    if (name_of(i).find("embedding_codegen_lookup") == std::string_view::npos) {
      return std::nullopt;
    }
    const std::vector<std::vector<std::int64_t>> inputs = shapes(i);
    for (EventId g = 0; g < e_.size(); ++g) {
      if (e_.category[g] != EventCategory::kCpuOp || !name_of(g).starts_with(kLookupGradient)) {
        continue;
      }
      const auto gradient = shapes(g);
      if (gradient.empty() || gradient.front().size() != 2) {
        continue;
      }
      const std::vector<std::string> values(inputs.size(), std::to_string(gradient.front()[1]));
      const auto found =
          traces::work_of({.name = name_of(i), .shapes = inputs, .types = {}, .values = values});
      if (found && found->tables &&
          std::llround(found->tables->shards.front().bags) == gradient.front()[0]) {
        return found;
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<traces::OperatorWork> work(EventId i) const {
    if (e_.category[i] != EventCategory::kCpuOp || e_.detail[i] == kNoDetail) {
      return std::nullopt;
    }
    const traces::OpInfo& info = rank_.ops[static_cast<std::size_t>(e_.detail[i])];
    const auto text = [this](NameId id) {
      return id == traces::kNoName ? std::string_view{} : recording_.names.view(id);
    };
    std::vector<std::string> types = traces::items_of(text(info.types));
    std::transform(types.begin(), types.end(), types.begin(), plain_type);
    const auto found = traces::work_of({.name = name_of(i),
                                        .shapes = traces::shapes_of(text(info.shapes)),
                                        .types = std::move(types),
                                        .values = traces::items_of(text(info.inputs))});
    return found ? found : lookup(i);
  }

  void add_ops(const std::vector<EventId>& calls, SeenRank& seen) {
    constexpr std::size_t kNone = SIZE_MAX;
    std::vector<std::size_t> row(e_.size(), kNone);
    std::vector<bool> whole(e_.size(), false), dropped;
    for (const EventId i : calls) {
      const auto found = work(i);
      constexpr std::int64_t kMost = std::int64_t{1} << 31U;  // products of two stay exact
      if (!found || std::any_of(found->op.shape.begin(), found->op.shape.end(),
                                [](std::int64_t d) { return d > kMost; })) {
        continue;
      }
      bool inside = false;
      for (EventId p = parent_[i]; p != kNoEvent && !inside; p = parent_[p]) {
        inside = whole[p];
        if (!inside && row[p] != kNone && seen.ops[row[p]].op.kind == found->op.kind) {
          dropped[row[p]] = true;
        }
      }
      if (!inside) {
        row[i] = seen.ops.size();
        whole[i] = found->composite;
        dropped.push_back(false);
        seen.ops.push_back({found->op, found->tables, is_backward(i)});
        order_.push_back(order(i));
      }
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < seen.ops.size(); ++i) {
      if (!dropped[i]) {
        std::swap(seen.ops[kept], seen.ops[i]);
        order_[kept++] = order_[i];
      }
    }
    seen.ops.resize(kept);
    order_.resize(kept);
  }

  void add_collectives(std::int64_t from, std::int64_t to, SeenRank& seen) const {
    for (EventId i = 0; i < e_.size(); ++i) {
      std::int32_t detail = kNoDetail;
      EventId call = i;
      if (timeline() && e_.category[i] == EventCategory::kCollective) {
        detail = e_.detail[i];
        call = e_.link[i] == kNoEvent ? i : e_.link[i];
      } else if (!timeline() && e_.category[i] == EventCategory::kCpuOp &&
                 e_.detail[i] != kNoDetail) {
        detail = rank_.ops[static_cast<std::size_t>(e_.detail[i])].collective;
      }
      if (detail == kNoDetail || order(call) < from || order(call) >= to) {
        continue;
      }
      const traces::CollectiveInfo& info = rank_.collectives[static_cast<std::size_t>(detail)];
      SeenCollective c;
      c.kind = info.kind;
      c.bytes = info.bytes;
      c.size = info.group >= 0 ? rank_.groups[static_cast<std::size_t>(info.group)].size : 0;
      c.backward = (call != i || !timeline()) && is_backward(call);
      const std::string_view type =
          info.dtype == traces::kNoName ? std::string_view{} : recording_.names.view(info.dtype);
      c.integers = type.find("nt") != std::string_view::npos || type.starts_with("l") ||
                   type.starts_with("L");  // int, Int, long, Long
      c.halves = type.find("alf") != std::string_view::npos ||
                 type.find("loat16") != std::string_view::npos;
      c.after = static_cast<std::size_t>(
          std::lower_bound(order_.begin(), order_.end(), order(call)) - order_.begin());
      seen.collectives.push_back(c);
    }
    std::stable_sort(seen.collectives.begin(), seen.collectives.end(),
                     [](const auto& a, const auto& b) { return a.after < b.after; });
  }

  const traces::Recording& recording_;
  const traces::RankRecording& rank_;
  const traces::Events& e_;
  std::vector<EventId> parent_;
  std::vector<bool> backward_;       ///< by lane
  std::vector<std::int64_t> order_;  ///< of `ops`
};

}  // namespace

std::vector<SeenRank> inferred_workload(const traces::Recording& recording, std::string_view mark) {
  std::vector<SeenRank> ranks;
  const bool timeline = recording.ranks.front().timing == traces::Timing::kTimeline;
  const traces::StepMarks marks =
      timeline ? traces::step_marks(recording, mark) : traces::StepMarks{};
  for (std::size_t r = 0; r < recording.ranks.size(); ++r) {
    Reader reader(recording, recording.ranks[r]);
    std::int64_t from = std::numeric_limits<std::int64_t>::min();
    std::int64_t to = std::numeric_limits<std::int64_t>::max();
    if (timeline && !marks.ranks[r].empty()) {
      from = marks.ranks[r].back().begin.count();
      to = marks.ranks[r].back().end.count();
    } else if (const auto steps = reader.optimizer_steps(); steps.size() > 1) {
      from = steps[steps.size() - 2] + 1;
      to = steps.back() + 1;
    }
    ranks.push_back(reader.read(from, to));
  }
  return ranks;
}

}  // namespace stepcast::studies
