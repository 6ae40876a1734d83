#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/kernel_kind.h"
#include "core/graph/op.h"

namespace stepcast::traces {

/// Tells what a kernel does from the operator that launched it and from the words of its name, by
/// the ordered rules of a file (traces/kernel_kinds.json says how they read). Words, never parts of
/// words: "fbgemm_gpu::permute_2D_data_kernel" is no gemm.
///
///   KernelKinds::built_in().of("cudnn::bn_bw_1C11_kernel_new<float>(...)").kind  // kNorm
///
/// Accuracy: docs/accuracy/traces.md, tests/traces/kernel_kinds_test.cpp.
class KernelKinds {
 public:
  /// The rules that ship: traces/kernel_kinds.json as it was built.
  static const KernelKinds& built_in();
  /// Errors: InputError naming `label` and the rule, when the text is not such a file.
  KernelKinds(std::string_view json, const std::string& label);

  struct Kind {
    KernelKind kind = KernelKind::kOther;
    /// For communication: which collective; kCount where nothing tells.
    OpKind collective = OpKind::kCount;
  };
  /// `operation`: the framework's operator around the launch; empty where none was recorded.
  [[nodiscard]] Kind of(std::string_view kernel, std::string_view operation = {}) const;

 private:
  /// Neighbouring words, each with wildcards.
  using Phrase = std::vector<std::string>;
  struct Rule {
    Kind kind;
    std::vector<std::string> operators;
    std::vector<Phrase> words, with, inside, except;
  };
  std::vector<Rule> rules_;
};

}  // namespace stepcast::traces
