#include "traces/graph/phases.h"

#include <cctype>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace stepcast::traces {
namespace {

constexpr std::string_view kNode = "autograd::engine::evaluate_function: ";

/// Phase that an annotation of the program says by its words: "## backward ##", "optimizer_step".
std::optional<Phase> phase_said(std::string_view text) {
  if (text.starts_with("Optimizer.step#") || text.starts_with("Optimizer.zero_grad#")) {
    return Phase::kOptimizer;
  }
  std::optional<Phase> said;
  std::string word;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ' ';
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (word == "backward" || word == "bwd") {
      said = Phase::kBackward;
    } else if (word == "forward" || word == "fwd") {
      said = Phase::kForward;
    } else if (word == "optimizer" || word == "optim") {
      said = Phase::kOptimizer;
    } else if (word == "dataloader") {
      said = Phase::kInput;
    }
    word.clear();
  }
  return said;
}

class Reading {
 public:
  Reading(const Names& names, const RankRecording& rank) : names_(names), rank_(rank) {}

  /// nullopt: says nothing of its own.
  std::optional<Phase> said_by(EventId i) {
    const Events& e = rank_.events;
    if (e.category[i] == EventCategory::kCpuOp && e.detail[i] != kNoDetail &&
        rank_.ops[static_cast<std::size_t>(e.detail[i])].forward_thread > 0) {
      return by_name(i) == Phase::kRecompute ? Phase::kRecompute : Phase::kBackward;
    }
    return by_name(i);
  }

 private:
  std::optional<Phase> by_name(EventId i) {
    const Events& e = rank_.events;
    const auto key = std::pair(e.name[i], e.category[i] == EventCategory::kUserRange);
    const auto [at, fresh] = known_.try_emplace(2 * std::uint64_t{key.first} + key.second);
    if (fresh && e.name[i] != kNoName) {
      const std::string_view text = names_.view(e.name[i]);
      if (key.second || text.starts_with("Optimizer.")) {  // 2021: ranges were operators
        at->second = phase_said(text);
      } else if (text.starts_with(kNode) || text.starts_with("torch::autograd::")) {
        at->second = Phase::kBackward;
      }
      if (!key.second && text.find("CheckpointFunctionBackward") != std::string_view::npos) {
        at->second = Phase::kRecompute;
      }
    }
    return at->second;
  }

  const Names& names_;
  const RankRecording& rank_;
  std::unordered_map<std::uint64_t, std::optional<Phase>> known_;
};

}  // namespace

Phases::Phases(const Names& names, const RankRecording& rank)
    : rank_(rank), of_host_(rank.events.size(), Phase::kForward) {
  const Events& e = rank.events;
  Reading reading(names, rank);
  struct Open {
    EventId event;
    std::optional<Phase> phase;
  };
  std::vector<Open> open;
  for (const Lane& lane : rank.lanes) {
    if (lane.kind != Lane::Kind::kHostThread) {
      continue;
    }
    open.clear();
    std::vector<EventId> untold;
    std::size_t outermost = 0, of_autograd = 0;
    for (EventId i = lane.first; i < lane.first + lane.count; ++i) {
      while (!open.empty() && e.end(open.back().event) <= e.begin[i]) {
        open.pop_back();
      }
      std::optional<Phase> phase;
      if (!open.empty()) {
        phase = open.back().phase;
      }
      if (e.category[i] == EventCategory::kCpuOp || e.category[i] == EventCategory::kUserRange) {
        const std::optional<Phase> said = reading.said_by(i);
        if (open.empty() && e.category[i] == EventCategory::kCpuOp) {
          ++outermost;
          of_autograd += said == Phase::kBackward || said == Phase::kRecompute ? 1 : 0;
        }
        phase = said ? said : phase;
        open.push_back({i, phase});
      }
      if (phase) {
        of_host_[i] = *phase;
      } else {
        untold.push_back(i);
      }
    }
    if (2 * of_autograd > outermost) {
      for (const EventId i : untold) {
        of_host_[i] = Phase::kBackward;
      }
    }
  }
}

Phase Phases::of(EventId device_work) const {
  const EventId call = rank_.events.link[device_work];
  return call == kNoEvent ? Phase::kForward : of_host_[call];
}

}  // namespace stepcast::traces
