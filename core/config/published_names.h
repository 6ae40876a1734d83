#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config.h"

namespace stepcast::config {

/// Overrides of a job, as `--set` takes them, that a name in a table of published runs stands for.
struct NamedSettings {
  std::string name;                   ///< ours
  std::vector<std::string> aliases;   ///< as sources spell it
  std::vector<std::string> settings;  ///< "formats.compute=\"fp16\"", in order
};

/// A kernel of fused attention: its time over that of the kernels devices were measured with.
struct AttentionKernel {
  std::string name;
  double ratio = 1, fp8_devices = 1, nvfp4_devices = 1;  ///< the narrowest format a device has
  std::string source;
};

/// Settings of a job by the shape of its plan.
struct ShapedSettings {
  std::vector<std::string> always, tensor, pipelined, experts;
  /// Those for a plan with that many tensor ranks, stages and ranks with different experts.
  [[nodiscard]] std::vector<std::string> of(std::int64_t tensor_ranks, std::int64_t stages,
                                            std::int64_t expert_ranks) const;
};

/// A release of a training framework: what it does with a plan.
struct Framework {
  std::string name;                     ///< "nemo@26.02"
  std::string product;                  ///< "megatron-core": its releases share an efficiency
  std::vector<std::string> aliases;     ///< how tables of runs begin its name
  std::vector<std::string> default_of;  ///< families of plans that run on it unless said otherwise
  ShapedSettings settings;
  std::string evidence;  ///< where the settings are documented
};

/// A publication: the framework it ran and what it set otherwise. The first that fits a row counts.
struct PublishedSource {
  std::string source;               ///< short name, for groups
  std::string begins;               ///< what a row's `source` begins with
  std::string row_framework;        ///< what a row's `framework` is; empty: any
  std::vector<std::string> models;  ///< which of a row's `model`, where recipes differ; empty: any
  std::vector<std::string> gpus;    ///< prefixes of a row's `gpu`
  std::string framework;
  ShapedSettings settings;  ///< after the framework's
  /// Host seconds to issue one op; 0: what the device says. Where it is given, the scalar that a
  /// regime calibrates multiplies it, not the step.
  double host_issue = 0;
  std::string evidence;
};

/// Settings of a job of a framework, or of a row of a publication.
struct FrameworkRecipe {
  std::string source;  ///< the publication; empty for a framework alone
  const Framework* framework = nullptr;
  ShapedSettings settings;  ///< of the framework, then of the publication
  double host_issue = 0;
  /// Overrides for a plan of that shape, in order.
  [[nodiscard]] std::vector<std::string> of(std::int64_t tensor_ranks, std::int64_t stages,
                                            std::int64_t expert_ranks) const {
    return settings.of(tensor_ranks, stages, expert_ranks);
  }
};

/// Training frameworks (`root`/models/stacks/stacks.json), and how published tables name GPUs,
/// number formats and the software they ran (`root`/workloads/published/names.json).
struct PublishedNames {
  std::vector<NamedSettings> gpus, precisions;
  std::vector<NamedSettings> notes;     ///< by what a row's notes hold
  std::vector<NamedSettings> releases;  ///< year and month, by what a publication's name holds
  std::vector<PublishedSource> sources;
  std::vector<Framework> frameworks;  ///< of one name in the order of their releases
  std::vector<AttentionKernel> attention_kernels;

  /// Null where no alias is `name`.
  [[nodiscard]] const NamedSettings* gpu(std::string_view name) const;
  /// The first one of whose aliases begins words of `name` in a row, whatever the case, separators
  /// and what stands in parentheses: "amp_bf16/DEFAULT" is bf16, "FP8-CS (FP8-MX)" is fp8,
  /// "bf16_with_mxfp8_mixed" is mxfp8. Narrower formats come first: products are done in them.
  [[nodiscard]] const NamedSettings* precision(std::string_view name) const;
  /// Recipe of a row: its publication's; else the framework whose longest alias begins `framework`;
  /// else the one that plans of that family run on.
  [[nodiscard]] FrameworkRecipe recipe(std::string_view source, std::string_view framework,
                                       std::string_view model, std::string_view gpu,
                                       std::string_view family) const;
  /// A framework by its name, whatever the case, or a publication by its source ("NeMo 24.07"; of
  /// recipes for some models and for all, that for all). Errors: InputError at `where` listing the
  /// stacks.
  [[nodiscard]] FrameworkRecipe named(std::string_view name, const std::string& where) const;
  /// The framework that plans of a family run on; null where none is said to.
  [[nodiscard]] const Framework* default_framework(std::string_view family) const;
  /// "nemo@25.04", or "nemo": its newest release; whatever the case.
  [[nodiscard]] const Framework* find_framework(std::string_view name) const;
  /// "nemo" of its newest release, else "nemo@25.04".
  [[nodiscard]] std::string shortest_name(const Framework& framework) const;
  /// Errors: InputError at `where` listing the kernels.
  [[nodiscard]] const AttentionKernel& attention_kernel(std::string_view name,
                                                        const std::string& where) const;
};

/// Errors: InputError naming file and JSON path.
PublishedNames read_published_names(const Source& names, const Source& frameworks);
PublishedNames load_published_names(const Library& library);

}  // namespace stepcast::config
