#pragma once
#include <string>
#include <string_view>

#include "core/graph/program.h"

namespace stepcast::models {

/// The columns of `stepcast calibrate --rows` that carry what a shape does not: enough to fit the
/// same constants from the rows as from the run itself.

/// Operands of an op as "bytes@distance ..." (models/kernels/kernel_form.h: OperandUse), both in
/// bytes, with an "s" behind those that were sent.
std::string operands_text(const Program& program, const Op& op);

/// The tables an embedding op works on: the optimizer its backward fuses, then for each shard
/// "; rows table_rows dim lookups bags LAW [state] [mean] [sequence]" with LAW = "uniform" or
/// "zipf EXPONENT". Empty for other ops, and for laws that are recordings.
std::string embedding_text(const Program& program, const Op& op);
/// Errors: InputError saying what is wrong with the text.
EmbeddingGroup embedding_from(std::string_view text, Format format);

/// Adds `op` to the program behind ops that touch its operands at the distances of `operands`, in a
/// segment of its own, so that OpFacts finds the same reuse. Returns its index.
std::uint32_t add_with_reuse(Program& program, Op op, std::string_view operands);

}  // namespace stepcast::models
