#pragma once
// Questions that tests ask of the graph of a transformer's step.
#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/graph/memory_use.h"
#include "core/graph/op.h"
#include "core/graph/program.h"
#include "tests/workloads/transformer_jobs.h"
#include "workloads/build_graph.h"

namespace stepcast::test {

inline double d(std::int64_t v) { return static_cast<double>(v); }

/// Error that building the job's graph gives, or "accepted".
inline std::string message_of(const Job& job) {
  try {
    workloads::build_graph(job);
  } catch (const InputError& e) {
    return e.what();
  }
  return "accepted";
}

/// Calls `use(op, call)` for each op that a rank executes in a step.
template <typename Use>
void each_executed(const Program& program, Use&& use) {
  for (const Call& call : program.calls) {
    for (const Op& op : program.ops_of(program.segments[call.segment])) {
      use(op, call);
    }
  }
}

/// Sum of `value(op, name)` over the executed ops of a rank.
template <typename Value>
double sum_over(const Program& program, Value&& value) {
  double sum = 0;
  each_executed(program, [&](const Op& op, const Call&) { sum += value(op, program.name(op)); });
  return sum;
}

inline MemoryUse use_of(const Job& job) {
  return memory_use(workloads::build_graph(job).programs.front());
}

/// Bytes that one more layer keeps of a micro-batch: temporaries and ends do not grow with the
/// layers.
inline double bytes_of_a_layer(Job job) {
  const auto activations = [&job](std::int64_t layers) {
    transformer_of(job).layers = layers;
    return use_of(job).activations.base();
  };
  return activations(5) - activations(4);
}

}  // namespace stepcast::test
