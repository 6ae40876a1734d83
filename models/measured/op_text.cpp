#include "models/measured/op_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/access/access.h"
#include "core/error.h"
#include "core/graph/op_traits.h"
#include "core/portable.h"
#include "models/kernels/kernel_form.h"

namespace stepcast::models {
namespace {

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(at), text.size());
    if (end > 0) {
      parts.push_back(text.substr(0, end));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

double number_in(std::string_view text) {
  double value = 0;
  const auto [end, error] = read_decimal(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) ||
      value < 0 || value > 1e18) {
    throw InputError("", fmt::format("found \"{}\", expected a number from 0", text));
  }
  return value;
}

std::int64_t count_in(std::string_view text) {
  const double value = number_in(text);
  if (value < 1 || value != std::floor(value)) {
    throw InputError("", fmt::format("found \"{}\", expected an integer from 1", text));
  }
  return static_cast<std::int64_t>(value);
}

EmbeddingShard shard_from(std::string_view text) {
  const auto words = split(text, ' ');
  const bool zipf = words.size() > 6 && words[5] == "zipf";
  if (words.size() < 6 || (!zipf && words[5] != "uniform")) {
    throw InputError("", fmt::format("found \"{}\", expected rows table_rows dim lookups bags, "
                                     "then uniform or zipf EXPONENT",
                                     text));
  }
  EmbeddingShard s;
  s.rows = count_in(words[0]);
  s.table_rows = count_in(words[1]);
  s.dim = count_in(words[2]);
  s.lookups = number_in(words[3]);
  s.bags = number_in(words[4]);
  if (s.rows > s.table_rows) {
    throw InputError("",
                     fmt::format("{} rows of a table of {}; mend the row", s.rows, s.table_rows));
  }
  const Access whole =
      zipf ? Access::zipf(s.table_rows, number_in(words[6])) : Access::uniform(s.table_rows);
  s.access =
      std::make_shared<const Access>(s.rows == s.table_rows ? whole : whole.random_subset(s.rows));
  for (std::size_t i = zipf ? 7 : 6; i < words.size(); ++i) {
    s.has_state = s.has_state || words[i] == "state";
    s.mean = s.mean || words[i] == "mean";
    s.sequence = s.sequence || words[i] == "sequence";
  }
  return s;
}

OptimizerKind optimizer_from(std::string_view name) {
  for (const OptimizerKind k : {OptimizerKind::kSgd, OptimizerKind::kAdam,
                                OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdagrad}) {
    if (name_of(k) == name) {
      return k;
    }
  }
  throw InputError("", fmt::format("unknown optimizer \"{}\"; one of sgd, adam, rowwise_adagrad, "
                                   "adagrad",
                                   name));
}

}  // namespace

std::string operands_text(const Program& program, const Op& op) {
  std::string text;
  for (const OperandUse& use : OpFacts(program, op).operands) {
    text += fmt::format("{}{:.9g}@{:.9g}{}", text.empty() ? "" : " ", use.bytes, use.distance,
                        use.sent ? "s" : "");
  }
  return text;
}

std::string embedding_text(const Program& program, const Op& op) {
  const EmbeddingGroup* group = looks_up(op.kind) ? program.group_of(op) : nullptr;
  if (group == nullptr) {
    return {};
  }
  std::string text(name_of(group->optimizer));
  for (const EmbeddingShard& s : group->shards) {
    if (s.access->kind() != AccessKind::kUniform && s.access->kind() != AccessKind::kZipf) {
      return {};
    }
    text += fmt::format(
        "; {} {} {} {:.9g} {:.9g} {}{}{}{}", s.rows, s.table_rows, s.dim, s.lookups, s.bags,
        s.access->kind() == AccessKind::kUniform ? "uniform"
                                                 : fmt::format("zipf {:.9g}", s.access->exponent()),
        s.has_state ? " state" : "", s.mean ? " mean" : "", s.sequence ? " sequence" : "");
  }
  return text;
}

EmbeddingGroup embedding_from(std::string_view text, Format format) {
  const auto parts = split(text, ';');
  if (parts.size() < 2) {
    throw InputError("", fmt::format("found \"{}\", expected an optimizer and its tables", text));
  }
  EmbeddingGroup group;
  group.format = format;
  group.optimizer = optimizer_from(parts[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    group.shards.push_back(shard_from(parts[i]));
    group.shards.back().table = static_cast<std::int32_t>(i) - 1;
  }
  return group;
}

std::uint32_t add_with_reuse(Program& program, Op op, std::string_view operands) {
  struct Use {
    double distance;
    TensorId tensor;
    bool sent;
  };
  std::vector<Use> uses;
  const auto tensor_of = [&program](double size) {
    Tensor t;
    t.format = Format::kInt8;
    t.rows = 1;
    t.columns = std::llround(size);
    program.tensors.push_back(t);
    return static_cast<TensorId>(program.tensors.size() - 1);
  };
  for (const std::string_view word : split(operands, ' ')) {
    const std::size_t at = word.find('@');
    if (at == std::string_view::npos) {
      throw InputError("", fmt::format("found \"{}\", expected bytes@distance", word));
    }
    const bool sent = word.back() == 's';
    const std::string_view distance = word.substr(at + 1, word.size() - at - 1 - (sent ? 1 : 0));
    uses.push_back({number_in(distance), tensor_of(number_in(word.substr(0, at))), sent});
  }
  std::vector<Use> by_distance = uses;
  std::stable_sort(by_distance.begin(), by_distance.end(),
                   [](const Use& a, const Use& b) { return a.distance > b.distance; });
  Segment segment;
  segment.first_op = static_cast<std::uint32_t>(program.ops.size());
  // Bytes between two touches were moved by the earlier one; before the op, by a filler.
  const double own = (op.bytes_read + op.bytes_written).base();
  const auto add = [&program](double moved, const Use* use) {
    Op filler;
    const bool sent = use != nullptr && use->sent;
    filler.kind = sent ? OpKind::kAllGather : OpKind::kFill;
    filler.bytes_written = Bytes(std::max(0.0, moved));
    filler.first_operand = static_cast<std::uint32_t>(program.operands.size());
    if (use != nullptr) {
      (sent ? filler.inputs : filler.outputs) = 1;
      program.operands.push_back(use->tensor);
    }
    program.ops.push_back(filler);
  };
  for (std::size_t i = 0; i < by_distance.size(); ++i) {
    const double before = i == 0 ? by_distance[0].distance : by_distance[i - 1].distance;
    add(before - by_distance[i].distance, &by_distance[i]);
  }
  if (!by_distance.empty() && by_distance.back().distance > own) {
    add(by_distance.back().distance - own, nullptr);
  }
  op.first_operand = static_cast<std::uint32_t>(program.operands.size());
  op.inputs = static_cast<std::uint16_t>(uses.size());
  op.outputs = 0;
  for (const Use& use : uses) {
    program.operands.push_back(use.tensor);
  }
  const auto index = static_cast<std::uint32_t>(program.ops.size());
  program.ops.push_back(op);
  segment.op_count = index + 1 - segment.first_op;
  program.calls.push_back({static_cast<std::uint32_t>(program.segments.size()), 0});
  program.segments.push_back(segment);
  return index;
}

}  // namespace stepcast::models
