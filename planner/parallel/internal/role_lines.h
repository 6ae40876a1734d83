#pragma once
// From the costs of single stages to lines over the number of layers.
#include <array>
#include <cstddef>
#include <vector>

#include "planner/parallel/chunk_costs.h"

namespace stepcast::planner {

constexpr std::array kPassFields{
    &PassCosts::forward,      &PassCosts::backward,        &PassCosts::weights,
    &PassCosts::forward_ops,  &PassCosts::backward_ops,    &PassCosts::weights_ops,
    &PassCosts::kept,         &PassCosts::kept_to_weights, &PassCosts::gradients_kept,
    &PassCosts::forward_only, &PassCosts::backward_only,   &PassCosts::weights_only,
    &PassCosts::overlapped,   &PassCosts::forward_exposed, &PassCosts::backward_exposed};
constexpr std::array kStateFields{
    &StateCosts::parameters, &StateCosts::gradients,   &StateCosts::optimizer,
    &StateCosts::buffers,    &StateCosts::temporaries, &StateCosts::begin,
    &StateCosts::first,      &StateCosts::exchange,    &StateCosts::after_ends,
    &StateCosts::update,     &StateCosts::ops,         &StateCosts::transfers};

/// Each field of `one`, a chunk of so many layers, and of `two`, with one more, as a line.
inline void to_lines(StateCosts& one, const StateCosts& two, double layers) {
  for (const auto field : kStateFields) {
    Line& line = one.*field;
    line.layer[0] = (two.*field).base - line.base;
    line.base -= line.layer[0] * layers;
  }
}

/// Costs of the only stage, or of the first, one in the middle and the last, with so many layers
/// each and with one more, by role.
inline ByRole<StateCosts> lines_of(std::vector<StateCosts> stages,
                                   const std::vector<StateCosts>& more, double layers) {
  for (std::size_t i = 0; i < stages.size(); ++i) {
    to_lines(stages[i], more[i], layers);
  }
  ByRole<StateCosts> role;
  role.fill(stages.front());
  if (stages.size() > 1) {
    role[static_cast<std::size_t>(ChunkRole::kMiddle)] = stages[1];
    role[static_cast<std::size_t>(ChunkRole::kLast)] = stages.back();
  }
  return role;
}

/// Costs of stages {first, middle, middle + a layer, last}, all else of `layers`, by role.
inline ByRole<StateCosts> by_role(std::vector<StateCosts> stages, double layers) {
  to_lines(stages[1], stages[2], layers);
  for (StateCosts* end : {&stages.front(), &stages.back()}) {  // the same layer under another role
    for (const auto field : kStateFields) {
      (end->*field).layer = (stages[1].*field).layer;
      (end->*field).base -= layers * (stages[1].*field).layer[0];
    }
  }
  ByRole<StateCosts> role;
  role[static_cast<std::size_t>(ChunkRole::kMiddle)] = stages[1];
  role[static_cast<std::size_t>(ChunkRole::kFirst)] = stages.front();
  role[static_cast<std::size_t>(ChunkRole::kLast)] = stages.back();
  return role;
}

/// Adds what a layer of another kind adds, from lines of a model of that kind alone.
inline void take_kind(ByRole<StateCosts>& all, const ByRole<StateCosts>& alike, std::size_t kind) {
  for (std::size_t role = 0; role < kChunkRoles; ++role) {
    for (const auto field : kStateFields) {
      (all[role].*field).layer[kind] = (alike[role].*field).layer[0];
    }
  }
}

}  // namespace stepcast::planner
