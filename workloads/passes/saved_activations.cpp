#include "workloads/passes/saved_activations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace stepcast::workloads {
namespace {

/// The op with another size of its result, `axis` 0 rows or 1 columns. What it writes may be wider
/// than its format and grows with its size.
void resize_product(Op& op, std::size_t axis, std::int64_t size) {
  const Bytes written(op.bytes_written.base() / static_cast<double>(op.shape[axis]) *
                      static_cast<double>(size));
  op.shape[axis] = size;
  fill_work(op);
  op.bytes_written = written;
}

}  // namespace

CopiedOp copied(const Program& program, std::uint32_t op) {
  const Op& of = program.ops[op];
  const auto in = program.inputs(of);
  const auto out = program.outputs(of);
  return {of, {in.begin(), in.end()}, {out.begin(), out.end()}, op};
}

SavedActivations::SavedActivations(Program& program, const DependencyInfo& order,
                                   const std::vector<const DependencyInfo::Part*>& instances)
    : p_(program), order_(order), layer_(*instances.front()) {
  choose_products();
  keep_products();
  keep_attention();
  keep_sums();
  keep_exchanges();
  write_kept(instances);
}

/// Matrices count from one; the odd ones are kept.
void SavedActivations::choose_products() {
  std::size_t count = 0;
  for (const DependencyInfo::Product& product : order_.products) {
    if (product.first < layer_.begin.op || product.end > layer_.end) {
      continue;
    }
    Choice& choice = choices_.emplace_back();
    choice.product = &product;
    for (const auto& matrix : product.matrices) {
      (++count % 2 == 1 ? choice.kept : choice.again).push_back(&matrix);
    }
  }
}

void SavedActivations::keep_products() {
  for (const Choice& choice : choices_) {
    const auto gemm =
        std::find_if(p_.ops.begin() + choice.product->first, p_.ops.begin() + choice.product->end,
                     [](const Op& op) { return op.kind == OpKind::kGemm; });
    const TensorId result = p_.outputs(*gemm).front();
    if (choice.whole() && order_.values.contains(result)) {
      kept_.insert(result);
    } else if (!choice.kept.empty()) {
      std::vector<std::string_view> names;
      std::int64_t columns = 0;
      for (const auto* matrix : choice.kept) {
        names.push_back(matrix->name);
        columns += matrix->columns;
      }
      const Tensor like = p_.tensors[result];
      beside_.push_back(
          declare(fmt::format("{}", fmt::join(names, "_and_")), like.rows, columns, like));
    }
  }
}

void SavedActivations::keep_attention() {
  for (const DependencyInfo::Part& part : order_.parts) {
    if (part.name.part != LayerPart::kAttentionCore || part.begin.op < layer_.begin.op ||
        part.end > layer_.end) {
      continue;
    }
    for (std::uint32_t i = part.begin.op; i < part.end; ++i) {
      attention_.insert(i);
      for (const TensorId t : p_.outputs(p_.ops[i])) {
        if (order_.values.contains(t)) {
          kept_.insert(t);
        }
      }
    }
  }
}

/// A sum stays where the op that reads it writes a value of the layer, which takes no more; else in
/// a tensor of its own.
void SavedActivations::keep_sums() {
  bool summed = false;
  TensorId sum = 0;
  for (std::uint32_t i = layer_.begin.op; i < layer_.end; ++i) {
    const Op& op = p_.ops[i];
    const auto in = p_.inputs(op);
    if (op.kind == OpKind::kReduceScatter && op.routing < 0) {
      sums_.insert(i);
      sum = p_.outputs(op).front();
      summed = true;
    } else if (summed && std::find(in.begin(), in.end(), sum) != in.end()) {
      const TensorId written = p_.outputs(op).front();
      if (order_.values.contains(written)) {
        kept_.insert(written);
        sum_kept_in_[i] = sum;
      } else {
        const Tensor like = p_.tensors[sum];
        beside_.push_back(declare("sums", like.rows, like.columns, like));
      }
      summed = false;
    }
  }
}

/// Copies of tokens as they arrive, at the experts and back; gathers of them are made again.
void SavedActivations::keep_exchanges() {
  std::set<TensorId> arrived;  // in parts
  for (std::uint32_t i = layer_.begin.op; i < layer_.end; ++i) {
    const Op& op = p_.ops[i];
    if (op.routing < 0 || !is_collective(op.kind) || op.kind == OpKind::kAllGather) {
      continue;
    }
    exchanges_.insert(i);
    const TensorId made = p_.outputs(op).front();
    if (order_.values.contains(made)) {
      kept_.insert(made);
    } else if (arrived.insert(made).second) {
      const Tensor like = p_.tensors[made];
      beside_.push_back(
          declare(fmt::format("copies.{}", arrived.size()), like.rows, like.columns, like));
    }
  }
}

TensorId SavedActivations::declare(const std::string& what, std::int64_t rows, std::int64_t columns,
                                   const Tensor& like) {
  p_.tensors.push_back({.name = fmt::format("layer.{}.{}", layer_.name.layer, what),
                        .role = TensorRole::kActivation,
                        .format = like.format,
                        .rows = rows,
                        .columns = columns,
                        .per_microbatch = true,
                        .pieces = {}});
  return static_cast<TensorId>(p_.tensors.size() - 1);
}

void SavedActivations::write_kept(const std::vector<const DependencyInfo::Part*>& instances) {
  for (const DependencyInfo::Part* part : instances) {
    for (std::uint32_t i = part->begin.op; i < part->end; ++i) {
      Op& op = p_.ops[i];
      if (op.kind != OpKind::kRopeForward) {
        continue;
      }
      const CopiedOp as_it_was = copied(p_, i);
      op.first_operand = static_cast<std::uint32_t>(p_.operands.size());
      op.outputs = static_cast<std::uint16_t>(op.outputs + beside_.size());
      for (const std::vector<TensorId>* ids :
           {&as_it_was.in, &as_it_was.out, &std::as_const(beside_)}) {
        p_.operands.insert(p_.operands.end(), ids->begin(), ids->end());
      }
    }
  }
}

const SavedActivations::Choice* SavedActivations::choice_of(std::uint32_t op) const {
  const auto at = std::find_if(choices_.begin(), choices_.end(), [op](const Choice& c) {
    return c.product->first <= op && op < c.product->end;
  });
  return at == choices_.end() ? nullptr : &*at;
}

/// True if what the op makes is there already, or read by nothing but a product that is kept.
bool SavedActivations::is_kept(std::uint32_t op) const {
  if (attention_.contains(op) || sums_.contains(op) || exchanges_.contains(op)) {
    return true;
  }
  if (const Choice* choice = choice_of(op)) {
    return choice->whole();
  }
  if (p_.ops[op].kind != OpKind::kAllGather) {
    return false;
  }
  const auto next = std::find_if(choices_.begin(), choices_.end(),
                                 [op](const Choice& c) { return c.product->first > op; });
  return next != choices_.end() && next->whole() &&
         p_.inputs(p_.ops[next->product->first]).front() == p_.outputs(p_.ops[op]).front();
}

std::vector<CopiedOp> SavedActivations::rest() const {
  std::vector<CopiedOp> ops;
  for (std::uint32_t i = layer_.begin.op; i < layer_.end; ++i) {
    if (is_kept(i)) {
      continue;
    }
    const Choice* choice = choice_of(i);
    CopiedOp copy =
        choice != nullptr && !choice->kept.empty() ? narrowed(i, *choice) : copied(p_, i);
    if (copy.op.kind == OpKind::kRopeForward) {
      copy.out.resize(copy.out.size() - beside_.size());
      copy.in.insert(copy.in.end(), beside_.begin(), beside_.end());
    }
    if (const auto sum = sum_kept_in_.find(i); sum != sum_kept_in_.end()) {
      std::replace(copy.in.begin(), copy.in.end(), sum->second, copy.out.front());
    }
    ops.push_back(std::move(copy));
  }
  join_pieces(ops);
  const auto makes_value = [this](const CopiedOp& op) {
    return std::any_of(op.out.begin(), op.out.end(), [&](TensorId t) {
      return order_.values.contains(t) && std::find(op.in.begin(), op.in.end(), t) == op.in.end();
    });
  };
  while (!ops.empty() && !makes_value(ops.back())) {
    ops.pop_back();
  }
  return ops;
}

/// A product of the matrices alone that are recomputed.
CopiedOp SavedActivations::narrowed(std::uint32_t op, const Choice& choice) const {
  CopiedOp copy = copied(p_, op);
  const auto gemm =
      std::find_if(p_.ops.begin() + choice.product->first, p_.ops.begin() + choice.product->end,
                   [](const Op& o) { return o.kind == OpKind::kGemm; });
  const std::string rest = p_.name(copy.op).substr(p_.name(*gemm).size());  // of casts before it
  copy.op.name = name(choice.product->block + "." + choice.again.front()->name + rest);
  if (copy.op.kind == OpKind::kGemm) {
    copy.op.attributes = GemmAttributes{};
    std::int64_t columns = 0;
    for (const auto* matrix : choice.again) {
      columns += matrix->columns;
    }
    resize_product(copy.op, 1, columns);
  }
  return copy;
}

/// A product that was cut up for the sum of its parts is one again where the sum is kept.
void SavedActivations::join_pieces(std::vector<CopiedOp>& ops) const {
  for (const Choice& choice : choices_) {
    const auto inside = [&choice](std::uint32_t op) {
      return choice.product->first <= op && op < choice.product->end;
    };
    if (std::none_of(sums_.begin(), sums_.end(), inside)) {
      continue;
    }
    CopiedOp* whole = nullptr;
    for (auto op = ops.begin(); op != ops.end();) {
      if (op->op.kind != OpKind::kGemm || !inside(op->from)) {
        ++op;
      } else if (whole == nullptr) {
        whole = &*op++;
      } else {
        resize_product(whole->op, 0, whole->op.shape[0] + op->op.shape[0]);
        op = ops.erase(op);
      }
    }
  }
}

std::uint32_t SavedActivations::name(const std::string& text) const {
  const auto at = std::find(p_.names.begin(), p_.names.end(), text);
  const auto index = static_cast<std::uint32_t>(at - p_.names.begin());
  if (at == p_.names.end()) {
    p_.names.push_back(text);
  }
  return index;
}

}  // namespace stepcast::workloads
