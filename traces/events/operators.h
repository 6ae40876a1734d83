#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/program.h"

namespace stepcast::traces {

/// One call of a framework's operator as a profiler recorded it, whatever its format.
struct OperatorCall {
  std::string_view name;                          ///< "aten::addmm"
  std::vector<std::vector<std::int64_t>> shapes;  ///< of the inputs, lists of tensors flattened
  std::vector<std::string> types;   ///< of the inputs: "float", "Scalar", "TensorList"
  std::vector<std::string> values;  ///< concrete values; "" where not recorded
};

/// Work of an operator, as one of our ops.
struct OperatorWork {
  Op op;                                 ///< kind, shape, format, flags, variant, FLOPs and bytes
  std::optional<EmbeddingGroup> tables;  ///< of embedding kinds: popularity taken as uniform
  /// Its kernels may be launched by other operators inside it (attention, embedding lookups).
  bool composite = false;
};

/// The op of an operator of PyTorch ("aten::", "fbgemm::"): matrix products, attention, norms,
/// softmax, elementwise kernels, copies and fills, optimizer steps, embeddings and embedding bags.
/// nullopt where the operator is none of them, or what was recorded does not give its shape.
///
/// Elementwise operators: the tensors they read, by their own sizes, and the largest one written.
/// Softmax counts as the loss kernel that reads and writes as much. Integers count as as many bytes
/// of fp32. Layouts of matrices are not recorded: products count as row-major.
/// Source: signatures in PyTorch's native_functions.yaml and FBGEMM's lookup functions.
std::optional<OperatorWork> work_of(const OperatorCall& call);

/// How many bytes an element of a tensor has, and the format that stands for it.
struct Element {
  Format format = Format::kFp32;
  double bytes = 4;
};
/// By the type as a profiler writes it ("float", "c10::BFloat16"); nullopt for what is no tensor.
std::optional<Element> element_of(std::string_view type);

/// The items of a flat JSON list as texts without their quotes; a list inside counts as one item.
std::vector<std::string> items_of(std::string_view text);

}  // namespace stepcast::traces
