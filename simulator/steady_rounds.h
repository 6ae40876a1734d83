#pragma once
#include <optional>

#include "simulator/simulate.h"

namespace stepcast::simulator {

/// A step of many micro-batches, from a simulation without most of its rounds: to the tick what the
/// simulation of all gives, or nothing where that is not shown.
///
/// A round is d micro-batches, after which the schedule of every rank repeats itself. What is
/// simulated has so few rounds that some pass until a steady state, and then so many that no rank
/// is further ahead of another than they reach back. In those every op of every rank must begin, be
/// ready, end and be issued the same time L later than in the round before, and no op may last from
/// its issue to its end longer than L. What an op waits for then lies in these rounds or after
/// them, so the next round is again L later, and so on by induction: the engine computes with
/// differences of times alone. n rounds left out make the step n L longer.
///
/// d divides nothing: a pipeline whose pace is set by how many micro-batches are in flight repeats
/// itself after so many, and what is simulated first shows it.
///
/// Nothing for steps that do not repeat themselves (GPipe beside its micro-batches), that are
/// short, where hosts and compute share cores, or where ranks drift apart.
///
/// `observer` is told of what is simulated. Each rank then has a time in it that stands for the
/// rounds left out (RankSummary::repetition): as long as a round, from when all of its streams are
/// in steady rounds to when the first leaves them. Nothing where some rank has none. `few` gets the
/// result of a shorter step that was simulated in vain.
/// Tests: tests/studies/steady_rounds_test.cpp.
std::optional<SimulationResult> simulate_steady(const ExecutionGraph& graph, const StepCosts& costs,
                                                const SimulationOptions& options,
                                                Observer* observer = nullptr,
                                                std::optional<SimulationResult>* few = nullptr);

}  // namespace stepcast::simulator
