#include "tests/runtime/cuda/device_op_check.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <random>

#include "core/graph/epilogue.h"
#include "runtime/op_operands.h"

namespace stepcast::runtime::test {

ExecutionGraph only(const ExecutionGraph& graph, std::uint32_t op) {
  ExecutionGraph cut = graph;
  Program& program = cut.programs.front();
  program.segments.clear();
  program.calls.clear();
  const auto add = [&program](std::uint32_t index) {
    program.segments.push_back({"one", index, 1});
    program.calls.push_back({static_cast<std::uint32_t>(program.segments.size() - 1), 0});
  };
  for (std::uint32_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].kind == OpKind::kLoadBatch && i != op) {
      add(i);
    }
  }
  add(op);
  return cut;
}

namespace {

template <class Ids>
bool contains(const Ids& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// Whether the op reads what stood in an output before.
bool adds_to(const Program& program, const Op& op, TensorId id) {
  const bool gradient = program.tensors[id].role == TensorRole::kGradient;
  const bool product = op.kind == OpKind::kGemm && id == program.outputs(op)[0];
  const bool by_group =  // a row of the output gets the gradients of several rows
      op.kind == OpKind::kModulateBackward || op.kind == OpKind::kGateBackward;
  return (op.flags & op_flags::kAccumulate) != 0 || (by_group && id != program.outputs(op)[0]) ||
         (gradient && !product && op.kind != OpKind::kFill) || op.kind == OpKind::kOptimizer ||
         contains(program.inputs(op), id);
}

/// Multiples of 1/64 in [-1, 1]: exact in every format. Sums of exponentials and squares, which an
/// op divides by or takes the root of, are positive.
std::vector<float> random_values(const Program& program, TensorId id, std::mt19937& random) {
  const Tensor& t = program.tensors[id];
  const bool positive = t.role == TensorRole::kOptimizerState || t.name == "loss.sums";
  std::vector<float> values(static_cast<std::size_t>(t.elements()));
  for (float& v : values) {
    const int step = static_cast<int>(random() % 129);
    v = static_cast<float>(positive ? step + 1 : step - 64) / 64.0F;
  }
  return values;
}

void write_both(BothBackends& both, const Program& program, TensorId id,
                const std::vector<float>& values) {
  both.gpu->write(id, 0, values);
  if (const std::int32_t master = program.tensors[id].master;
      master >= 0) {  // the CPU has no narrow weights
    both.gpu->write(static_cast<TensorId>(master), 0, values);
  }
  std::copy(values.begin(), values.end(), both.cpu.tensor(id, 0).data);
}

/// `room`: an op on routed copies leaves rows that no copy has as they were, poisoned.
void check_equal(BothBackends& both, const Program& program, TensorId id, double tolerance,
                 bool room = false) {
  const auto here = both.cpu.tensor(id, 0);
  const std::vector<float> there = both.gpu->read(id, 0);
  double largest = 1e-3;
  const auto untouched = [&](std::size_t i) {
    return room && std::isnan(here.data[i]) && std::isnan(there[i]);
  };
  for (std::size_t i = 0; i < there.size(); ++i) {
    largest = untouched(i) ? largest : std::max(largest, std::abs(double{here.data[i]}));
  }
  double worst = 0;
  std::size_t bad = 0;
  for (std::size_t i = 0; i < there.size(); ++i) {
    if (untouched(i)) {
      continue;
    }
    const double error = std::abs(double{there[i]} - double{here.data[i]});
    bad += std::isfinite(error) && std::isfinite(here.data[i]) ? 0U : 1U;
    worst = std::max(worst, error);
  }
  INFO(program.tensors[id].name << ": worst " << worst << ", largest value " << largest << ", "
                                << bad << " of " << there.size() << " not finite");
  CHECK(bad == 0);
  CHECK(worst <= tolerance * largest);
}

/// Which numbers are positive, a bit each, as core/graph/epilogue.h has it. At most 24 columns:
/// then the words are exact as floats.
std::vector<float> mask_of(const Tensor& of, const std::vector<float>& values) {
  REQUIRE(of.columns <= 24);
  std::vector<float> words(static_cast<std::size_t>(of.rows * mask_words(of.columns)), 0.0F);
  for (std::int64_t i = 0; i < of.rows; ++i) {
    std::uint32_t word = 0;
    for (std::int64_t j = 0; j < of.columns; ++j) {
      const bool positive = values[static_cast<std::size_t>(i * of.columns + j)] > 0;
      word |= positive ? std::uint32_t{1} << j : 0U;
    }
    words[static_cast<std::size_t>(i * mask_words(of.columns))] = static_cast<float>(word);
  }
  return words;
}

}  // namespace

void check_op(const cuda::Module& module, const Job& job, const ExecutionGraph& graph,
              std::uint32_t index, const cuda::Options& options) {
  const ExecutionGraph cut = only(graph, index);
  const Program& program = cut.programs.front();
  const Op& op = program.ops[index];
  INFO(name_of(op.kind) << " '" << program.name(op) << "', " << name_of(job.formats.compute));
  BothBackends both(module, cut, options);
  std::mt19937 random(index);
  for (const TensorId id : program.inputs(op)) {
    write_both(both, program, id, random_values(program, id, random));
  }
  for (const TensorId id : program.outputs(op)) {
    if (program.tensors[id].format ==
        Format::kInt32) {  // a mask: padding bits may stay as they are
      const auto words = static_cast<std::size_t>(program.tensors[id].elements());
      both.gpu->write(id, 0, std::vector<float>(words, 0.0F));
    } else if (!contains(program.inputs(op), id)) {
      const auto values = random_values(program, id, random);
      write_both(both, program, id,
                 adds_to(program, op, id)
                     ? values
                     : std::vector<float>(values.size(), std::numeric_limits<float>::quiet_NaN()));
    }
  }
  std::vector<TensorId> tables;  // an embedding's backward names them by its group
  if (op.kind == OpKind::kEmbeddingBackward) {
    for (const EmbeddingShard& shard : program.group_of(op)->shards) {
      tables.push_back(shard.weights);
      if (shard.has_state) {
        tables.push_back(shard.state);
      }
    }
  }
  // From a state of zero an optimizer that divides by its root would turn the rounding of a
  // gradient that cancels into a whole step.
  for (const TensorId id : tables) {
    write_both(both, program, id, random_values(program, id, random));
  }
  const bool reads_mask = op.as<GemmAttributes>().epilogue == Epilogue::kReluBackward;
  if (reads_mask) {
    const TensorId y = program.inputs(op)[2];
    both.gpu->write(program.inputs(op)[3], 0, mask_of(program.tensors[y], both.gpu->read(y, 0)));
  }
  const HostBatch batch = both.batch(0);
  const double expected = both.cpu.run_step(0, batch, -1);
  const double loss = both.gpu->run_step(0, batch, -1);
  const double tolerance = tolerance_of(job.formats.compute);
  CHECK(loss == Approx(expected).epsilon(tolerance));
  for (const TensorId id : program.outputs(op)) {
    if (program.tensors[id].format == Format::kInt32) {  // the CPU looks at y itself
      const TensorId y = program.outputs(op)[0];
      CHECK(both.gpu->read(id, 0) == mask_of(program.tensors[y], both.gpu->read(y, 0)));
      continue;
    }
    // Between the rows of a GELU's input nothing is written.
    const bool gaps = op.kind == OpKind::kGemm && id == program.outputs(op).back() &&
                      keeps_gelu_input(op.as<GemmAttributes>().epilogue);
    check_equal(both, program, id, tolerance, op.routing >= 0 || gaps);
  }
  for (const TensorId id : tables) {
    check_equal(both, program, id, tolerance);
  }
}

}  // namespace stepcast::runtime::test
