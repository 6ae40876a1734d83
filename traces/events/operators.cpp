#include "traces/events/operators.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "core/access/access.h"
#include "traces/events/host_calls.h"

namespace stepcast::traces {
namespace {

using Shape = std::vector<std::int64_t>;

/// Elements of a tensor; 0 where a dimension is 0, or the numbers cannot be.
std::int64_t elements_of(const Shape& shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) {
    if (d <= 0 || __builtin_mul_overflow(n, d, &n)) {
      return 0;
    }
  }
  return n;
}

class Reading {
 public:
  explicit Reading(const OperatorCall& call) : call_(call) {}

  /// Numbers have no shape and types in capitals ("Int", "Scalar"); a tensor of one element has a
  /// type in small letters.
  [[nodiscard]] bool is_tensor(std::size_t i) const {
    return i < call_.shapes.size() &&
           (!call_.shapes[i].empty() ||
            (i < call_.types.size() && !call_.types[i].empty() &&
             std::islower(static_cast<unsigned char>(call_.types[i].front())) != 0 &&
             element_of(call_.types[i])));
  }
  [[nodiscard]] const Shape& shape(std::size_t i) const {
    static const Shape kNone;
    return i < call_.shapes.size() ? call_.shapes[i] : kNone;
  }
  [[nodiscard]] std::size_t inputs() const { return call_.shapes.size(); }
  [[nodiscard]] std::int64_t elements(std::size_t i) const {
    return is_tensor(i) ? elements_of(shape(i)) : 0;
  }
  [[nodiscard]] std::optional<Element> element(std::size_t i) const {
    return i < call_.types.size() ? element_of(call_.types[i]) : std::nullopt;
  }
  /// That of the first tensor; fp32 where the types do not say.
  [[nodiscard]] Element main_element() const {
    for (const std::string& type : call_.types) {
      if (const auto e = element_of(type)) {
        return *e;
      }
    }
    return {};
  }
  [[nodiscard]] std::optional<std::int64_t> integer(std::size_t i) const {
    std::int64_t value = 0;
    if (i >= call_.values.size()) {
      return std::nullopt;
    }
    const std::string& text = call_.values[i];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && end == text.data() + text.size() ? std::optional(value)
                                                                    : std::nullopt;
  }
  [[nodiscard]] bool is_true(std::size_t i) const {
    return i < call_.values.size() && (call_.values[i] == "True" || call_.values[i] == "true");
  }
  [[nodiscard]] std::string_view name() const { return call_.name; }

 private:
  const OperatorCall& call_;
};

OperatorWork plain(OpKind kind, Format format, std::initializer_list<std::int64_t> shape,
                   const OpAttributes& attributes = {}) {
  OperatorWork w;
  w.op.kind = kind;
  w.op.format = format;
  w.op.attributes = attributes;
  std::copy(shape.begin(), shape.end(), w.op.shape.begin());
  fill_work(w.op);
  return w;
}

using Work = std::optional<OperatorWork>;

/// C[.., m, n] = A[.., m, k] B[.., k, n]; the first matrix is input `first`.
Work product(const Reading& r, std::size_t first) {
  const Shape& a = r.shape(first);
  const Shape& b = r.shape(first + 1);
  const auto element = r.element(first);
  if (a.size() != b.size() || a.size() < 2 || a.size() > 3 || r.elements(first) == 0 ||
      r.elements(first + 1) == 0 || (element && element->bytes > 4)) {
    return std::nullopt;
  }
  const std::size_t n = a.size();
  if (a[n - 1] != b[n - 2] || (n == 3 && a[0] != b[0])) {
    return std::nullopt;
  }
  return plain(OpKind::kGemm, element.value_or(Element{}).format,
               {a[n - 2], b[n - 1], a[n - 1], n == 3 ? a[0] : 1});
}

Work mm(const Reading& r) { return product(r, 0); }
Work addmm(const Reading& r) { return product(r, 1); }

/// x[.., k] by weight[n, k].
Work linear(const Reading& r) {
  const Shape& x = r.shape(0);
  const Shape& w = r.shape(1);
  if (x.empty() || w.size() != 2 || x.back() != w[1] || r.elements(0) == 0 || w[0] <= 0) {
    return std::nullopt;
  }
  OperatorWork work =
      plain(OpKind::kGemm, r.main_element().format, {r.elements(0) / x.back(), w[0], x.back(), 1});
  work.op.flags = op_flags::kTransposeB;
  return work;
}

/// query, key, value from input `first` on; [batch, heads, length, dim], or with `heads_last`
/// [batch, length, heads, dim]. `causal`: position of the flag among the inputs.
Work attention(const Reading& r, OpKind kind, std::size_t first, bool heads_last,
               std::size_t causal) {
  const Shape& q = r.shape(first);
  const Shape& k = r.shape(first + 1);
  if (q.size() != 4 || k.size() != 4 || r.elements(first) == 0 || r.elements(first + 1) == 0) {
    return std::nullopt;
  }
  const std::size_t heads = heads_last ? 2 : 1;
  const std::size_t length = heads_last ? 1 : 2;
  OperatorWork w =
      plain(kind, r.main_element().format, {q[0], q[heads], k[heads], q[length], k[length], q[3]});
  w.op.flags = r.is_true(causal) ? op_flags::kCausal : 0;
  fill_work(w.op);
  w.composite = true;
  return w;
}

Work attention_forward(const Reading& r) {
  return attention(r, OpKind::kAttentionForward, 0, false, 4);
}
Work efficient_attention_forward(const Reading& r) {
  return attention(r, OpKind::kAttentionForward, 0, false, 6);  // after a bias, a flag, a dropout
}
Work attention_backward(const Reading& r) {
  return attention(r, OpKind::kAttentionBackward, 1, false, 11);
}
Work flash_forward(const Reading& r) { return attention(r, OpKind::kAttentionForward, 0, true, 8); }
Work flash_backward(const Reading& r) {
  return attention(r, OpKind::kAttentionBackward, 1, true, 11);
}

/// An elementwise kernel that reads the first `operands` tensors among the inputs (what follows is
/// the place of the result).
Work elementwise(const Reading& r, OpKind kind, const OpAttributes& attributes,
                 std::int64_t operands) {
  const Element e = r.main_element();
  std::int64_t largest = 0;
  std::size_t widest = 0;
  double read = 0;
  std::int64_t tensors = 0;
  for (std::size_t i = 0; i < r.inputs() && tensors < operands; ++i) {
    const std::int64_t n = r.elements(i);
    if (n > 0) {
      read += static_cast<double>(n) * r.element(i).value_or(e).bytes;
      ++tensors;
      if (n > largest) {
        largest = n;
        widest = i;
      }
    }
  }
  if (largest == 0) {
    return std::nullopt;
  }
  const std::int64_t width = r.shape(widest).empty() ? 1 : r.shape(widest).back();
  const bool one = kind == OpKind::kAdd && tensors < 2;  // the other operand is a number
  OperatorWork w =
      plain(one ? OpKind::kActivationForward : kind, e.format, {largest / width, width},
            one ? OpAttributes{ActivationAttributes{}} : attributes);
  w.op.bytes_read = Bytes(read);
  w.op.bytes_written = Bytes(static_cast<double>(largest) * e.bytes);
  return w;
}

template <std::int64_t operands>
Work add(const Reading& r) {
  return elementwise(r, OpKind::kAdd, {}, operands);
}
/// One kernel over two lists of tensors, end to end, or over one list and a number.
Work lists(const Reading& r) {
  std::int64_t n = 0;
  for (std::size_t i = 0; i < r.inputs(); ++i) {
    n += r.shape(i).empty() ? 0 : elements_of(r.shape(i));
  }
  return n == 0 ? std::nullopt : Work(plain(OpKind::kAdd, r.main_element().format, {1, n / 2}));
}
template <Activation kind>
Work activation(const Reading& r) {
  return elementwise(r, OpKind::kActivationForward, ActivationAttributes{kind}, 1);
}
template <Activation kind>
Work activation_backward(const Reading& r) {
  return elementwise(r, OpKind::kActivationBackward, ActivationAttributes{kind}, 2);
}

/// copy_(to, from): a copy, or a change of format.
Work copy(const Reading& r) {
  const std::int64_t n = r.elements(0);
  if (n == 0 || r.elements(1) != n) {
    return std::nullopt;
  }
  const Element to = r.element(0).value_or(Element{});
  const Element from = r.element(1).value_or(to);
  const std::int64_t width = r.shape(0).empty() ? 1 : r.shape(0).back();
  const bool same = to.bytes == from.bytes && to.format == from.format;
  OperatorWork w = same ? plain(OpKind::kCopyColumns, to.format, {n / width, width})
                        : plain(OpKind::kCast, to.format, {n});
  w.op.bytes_read = Bytes(static_cast<double>(n) * from.bytes);
  w.op.bytes_written = Bytes(static_cast<double>(n) * to.bytes);
  return w;
}

Work fill(const Reading& r) {
  const std::int64_t n = r.elements(0);
  if (n == 0) {
    return std::nullopt;
  }
  OperatorWork w = plain(OpKind::kFill, r.main_element().format, {n});
  w.op.bytes_written = Bytes(static_cast<double>(n) * r.main_element().bytes);
  return w;
}

/// All tensors of a list, end to end.
Work concatenate(const Reading& r) {
  std::int64_t n = 0;
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < r.inputs(); ++i) {
    if (!r.shape(i).empty()) {
      n += elements_of(r.shape(i));
      rows = std::max(rows, r.shape(i).front());
    }
  }
  return n == 0 || n % rows != 0
             ? std::nullopt
             : Work(plain(OpKind::kCopyColumns, r.main_element().format, {rows, n / rows}));
}

Work row_wise(const Reading& r, OpKind kind, const OpAttributes& attributes, std::size_t input) {
  const Shape& x = r.shape(input);
  if (x.empty() || r.elements(input) == 0) {
    return std::nullopt;
  }
  return plain(kind, r.element(input).value_or(Element{}).format,
               {r.elements(input) / x.back(), x.back()}, attributes);
}

Work layer_norm(const Reading& r) {
  return row_wise(r, OpKind::kNormForward, NormAttributes{Norm::kLayerNorm}, 0);
}
Work rms_norm(const Reading& r) {
  return row_wise(r, OpKind::kNormForward, NormAttributes{Norm::kRmsNorm}, 0);
}
Work layer_norm_backward(const Reading& r) {
  return row_wise(r, OpKind::kNormBackward, NormAttributes{Norm::kLayerNorm}, 1);
}
template <OpKind kind>
Work softmax(const Reading& r) {
  return row_wise(r, kind, {}, 0);
}

/// One kernel over a list of parameters, counted once for each of its lists of tensors.
template <OptimizerKind kind, std::int64_t lists>
Work optimizer(const Reading& r) {
  std::int64_t n = 0;
  for (std::size_t i = 0; i < r.inputs(); ++i) {
    n += r.shape(i).empty() ? 0 : elements_of(r.shape(i));
  }
  return n < lists ? std::nullopt
                   : Work(plain(OpKind::kOptimizer, r.main_element().format, {n / lists},
                                OptimizerAttributes{kind}));
}

/// weight[rows, dim] and ids, in either order.
template <bool backward>
Work token_embedding(const Reading& r) {
  const Shape& w = r.shape(0);
  const std::int64_t tokens = r.elements(1);
  if (w.empty() || tokens == 0 || elements_of(w) == 0) {
    return std::nullopt;
  }
  const std::int64_t rows = backward ? r.integer(2).value_or(0) : w.front();
  return rows <= 0 ? std::nullopt
                   : Work(plain(backward ? OpKind::kTokenEmbeddingBackward
                                         : OpKind::kTokenEmbeddingForward,
                                r.main_element().format, {tokens, w.back(), rows}));
}

/// Equal tables, uniform ids: what a profiler records of a lookup says no more.
Work bags(const Reading& r, OpKind kind, std::int64_t tables, std::int64_t rows, std::int64_t dim,
          std::int64_t bags, std::int64_t lookups, OptimizerKind optimizer) {
  if (tables <= 0 || rows <= 0 || dim <= 0 || bags <= 0 || lookups <= 0) {
    return std::nullopt;
  }
  const Element e = r.element(0).value_or(Element{});
  const auto real = [](std::int64_t v) { return static_cast<double>(v); };
  EmbeddingGroup group;
  group.format = e.format;
  group.optimizer = optimizer;
  EmbeddingShard shard;
  shard.rows = shard.table_rows = rows;
  shard.dim = dim;
  shard.bags = real(bags);
  shard.lookups = real(lookups) / real(tables);
  shard.has_state = optimizer != OptimizerKind::kSgd;
  const Access law = Access::uniform(rows);
  shard.access = std::make_shared<const Access>(law);
  for (std::int64_t t = 0; t < tables; ++t) {
    shard.table = static_cast<std::int32_t>(t);
    group.shards.push_back(shard);
  }
  OperatorWork w;
  w.op.kind = kind;
  w.op.format = e.format;
  w.op.attributes = EmbeddingAttributes{.order = 1, .optimizer = optimizer};
  w.op.shape = {lookups, tables * bags, tables * dim};
  w.op.flops = Flops(real(lookups) * real(dim));
  const double ids = 8 * real(lookups) + 4 * real(tables * bags);
  const double gathered = real(lookups) * real(dim) * e.bytes;
  const double unique = kind == OpKind::kEmbeddingForward
                            ? 0
                            : real(tables) * law.unique(shard.lookups).value * real(dim) * e.bytes;
  w.op.bytes_read = Bytes(gathered + ids + unique);
  w.op.bytes_written =
      Bytes(kind == OpKind::kEmbeddingForward ? real(tables * bags) * real(dim) * e.bytes : unique);
  w.tables = std::move(group);
  w.composite = true;
  return w;
}

/// aten::_embedding_bag(weight[rows, dim], indices[n], offsets[bags])
Work embedding_bag(const Reading& r) {
  const Shape& w = r.shape(0);
  return w.size() != 2 ? std::nullopt
                       : bags(r, OpKind::kEmbeddingForward, 1, w[0], w[1], r.elements(2),
                              r.elements(1), OptimizerKind::kSgd);
}

/// FBGEMM: (weights, weights_offsets[T], D_offsets[T + 1], total_D, max_D, hash_size_cumsum[T + 1],
/// hash_size_bits, indices[n], offsets[T B + 1], ...); the split kind has
/// three weights and the placements[T] first.
template <std::size_t weights, OptimizerKind kind>
Work table_batched(const Reading& r) {
  std::size_t offsets = weights;  // weights_offsets, or the placements before it
  while (offsets + 1 < r.inputs() && r.elements(offsets + 1) != r.elements(offsets) + 1) {
    ++offsets;
  }
  const std::int64_t tables = r.elements(offsets);
  const std::int64_t dims = r.integer(offsets + 2).value_or(0);
  const std::int64_t ends = r.elements(offsets + 7);
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < weights; ++i) {
    elements += r.elements(i);
  }
  if (tables <= 0 || dims < tables || ends <= tables) {
    return std::nullopt;
  }
  return bags(r, OpKind::kEmbeddingForward, tables, elements / dims, dims / tables,
              (ends - 1) / tables, r.elements(offsets + 6), kind);
}

struct Operator {
  std::string_view name;
  Work (*work)(const Reading&);
};
constexpr std::array kOperators{
    Operator{"mm", mm},
    Operator{"bmm", mm},
    Operator{"matmul", mm},
    Operator{"addmm", addmm},
    Operator{"_addmm_activation", addmm},
    Operator{"baddbmm", addmm},
    Operator{"linear", linear},
    Operator{"_scaled_dot_product_flash_attention", attention_forward},
    Operator{"_scaled_dot_product_efficient_attention", efficient_attention_forward},
    Operator{"_scaled_dot_product_cudnn_attention", efficient_attention_forward},
    Operator{"_scaled_dot_product_flash_attention_backward", attention_backward},
    Operator{"_scaled_dot_product_efficient_attention_backward", attention_backward},
    Operator{"_scaled_dot_product_cudnn_attention_backward", attention_backward},
    Operator{"_flash_attention_forward", flash_forward},
    Operator{"_flash_attention_backward", flash_backward},
    Operator{"add", add<2>},
    Operator{"sub", add<2>},
    Operator{"mul", add<2>},
    Operator{"div", add<2>},
    Operator{"addcmul", add<3>},
    Operator{"addcdiv", add<3>},
    Operator{"_foreach_add", lists},
    Operator{"_foreach_mul", lists},
    Operator{"relu", activation<Activation::kRelu>},
    Operator{"clamp_min", activation<Activation::kRelu>},
    Operator{"gelu", activation<Activation::kGelu>},
    Operator{"silu", activation<Activation::kNone>},
    Operator{"sigmoid", activation<Activation::kNone>},
    Operator{"tanh", activation<Activation::kNone>},
    Operator{"exp", activation<Activation::kNone>},
    Operator{"log", activation<Activation::kNone>},
    Operator{"neg", activation<Activation::kNone>},
    Operator{"sqrt", activation<Activation::kNone>},
    Operator{"pow", activation<Activation::kNone>},
    Operator{"remainder", activation<Activation::kNone>},
    Operator{"threshold_backward", activation_backward<Activation::kRelu>},
    Operator{"gelu_backward", activation_backward<Activation::kGelu>},
    Operator{"silu_backward", activation_backward<Activation::kNone>},
    Operator{"sigmoid_backward", activation_backward<Activation::kNone>},
    Operator{"tanh_backward", activation_backward<Activation::kNone>},
    Operator{"copy", copy},
    Operator{"fill", fill},
    Operator{"zero", fill},
    Operator{"cat", concatenate},
    Operator{"_cat", concatenate},
    Operator{"native_layer_norm", layer_norm},
    Operator{"native_layer_norm_backward", layer_norm_backward},
    Operator{"rms_norm", rms_norm},
    Operator{"_fused_rms_norm", rms_norm},
    Operator{"_softmax", softmax<OpKind::kSoftmaxForward>},
    Operator{"_log_softmax", softmax<OpKind::kCrossEntropyLoss>},
    Operator{"_fused_sgd", optimizer<OptimizerKind::kSgd, 2>},
    Operator{"_fused_adam", optimizer<OptimizerKind::kAdam, 4>},
    Operator{"_fused_adamw", optimizer<OptimizerKind::kAdam, 4>},
    Operator{"embedding", token_embedding<false>},
    Operator{"embedding_dense_backward", token_embedding<true>},
    Operator{"_embedding_bag", embedding_bag},
    Operator{"_embedding_bag_forward_only", embedding_bag},
    Operator{"dense_embedding_codegen_lookup_function", table_batched<1, OptimizerKind::kSgd>},
    Operator{"split_embedding_codegen_lookup_sgd_function", table_batched<3, OptimizerKind::kSgd>},
    Operator{"split_embedding_codegen_lookup_adagrad_function",
             table_batched<3, OptimizerKind::kAdagrad>},
    Operator{"split_embedding_codegen_lookup_rowwise_adagrad_function",
             table_batched<3, OptimizerKind::kRowwiseAdagrad>},
    Operator{"split_embedding_codegen_lookup_adam_function",
             table_batched<3, OptimizerKind::kAdam>},
};

}  // namespace

std::optional<Element> element_of(std::string_view type) {
  const auto bytes = element_bytes_of(type);
  if (!bytes) {
    return std::nullopt;
  }
  if (type.find("BFloat16") != std::string_view::npos) {
    return Element{Format::kBf16, 2};
  }
  if (type.find("Half") != std::string_view::npos) {
    return Element{Format::kFp16, 2};
  }
  if (*bytes == 1 && type.find("loat8") != std::string_view::npos) {
    return Element{Format::kFp8, 1};
  }
  return Element{Format::kFp32, static_cast<double>(*bytes)};
}

std::optional<OperatorWork> work_of(const OperatorCall& call) {
  std::string_view name = call.name;
  const std::size_t space = name.find("::");
  if (space == std::string_view::npos ||
      (name.substr(0, space) != "aten" && name.substr(0, space) != "fbgemm")) {
    return std::nullopt;
  }
  name.remove_prefix(space + 2);
  if (name.size() > 1 && name.back() == '_') {
    name.remove_suffix(1);  // in place
  }
  const auto found = std::find_if(kOperators.begin(), kOperators.end(),
                                  [name](const Operator& o) { return o.name == name; });
  return found == kOperators.end() ? std::nullopt : found->work(Reading(call));
}

}  // namespace stepcast::traces
