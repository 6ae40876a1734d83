#pragma once
// From the costs of single stages, base only, to lines over the number of layers.
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
    &PassCosts::overlapped,   &PassCosts::forward_exposed, &PassCosts::backward_exposed,
    &PassCosts::temporaries};
constexpr std::array kStateFields{
    &StateCosts::parameters, &StateCosts::gradients,   &StateCosts::optimizer,
    &StateCosts::buffers,    &StateCosts::temporaries, &StateCosts::begin,
    &StateCosts::first,      &StateCosts::exchange,    &StateCosts::after_ends,
    &StateCosts::update,     &StateCosts::ops,         &StateCosts::transfers};

/// Each field of `one`, a chunk of so many layers of the first kind, and of `two`, with `more` of
/// them, as a line.
template <class T, std::size_t N>
void to_lines(T& one, const T& two, const std::array<Line T::*, N>& fields, double layers = 1,
              double more = 1) {
  for (const auto field : fields) {
    Line& line = one.*field;
    line.layer[0] = ((two.*field).base - line.base) / more;
    line.base -= line.layer[0] * layers;
  }
}

/// Costs of stages {first, middle, middle + a layer, last}, all else of `layers`, by role.
template <class T, std::size_t N>
ByRole<T> by_role(std::vector<T> stages, const std::array<Line T::*, N>& fields, double layers) {
  ByRole<T> role;
  to_lines(stages[1], stages[2], fields, layers);
  const auto take_layer = [&](T& end) {  // the same layer under another role
    for (const auto field : fields) {
      (end.*field).layer = (stages[1].*field).layer;
      (end.*field).base -= layers * (stages[1].*field).layer[0];
    }
  };
  take_layer(stages[0]);
  take_layer(stages[3]);
  role[static_cast<std::size_t>(ChunkRole::kMiddle)] = stages[1];
  role[static_cast<std::size_t>(ChunkRole::kFirst)] = stages[0];
  role[static_cast<std::size_t>(ChunkRole::kLast)] = stages[3];
  return role;
}

/// Adds what a layer of another kind adds, from lines of a model of that kind alone.
template <class T, std::size_t N>
void take_kind(ByRole<T>& all, const ByRole<T>& alike, std::size_t kind,
               const std::array<Line T::*, N>& fields) {
  for (std::size_t role = 0; role < kChunkRoles; ++role) {
    for (const auto field : fields) {
      (all[role].*field).layer[kind] = (alike[role].*field).layer[0];
    }
  }
}

}  // namespace stepcast::planner
