#pragma once
#include <optional>
#include <string_view>
#include <vector>

namespace stepcast::interop {

/// Effect on the step's cost of an option of Megatron-LM that the import does not turn into a key
/// of a job. step's cost.
enum class OptionEffect {
  kNone,      ///< data, logging, checkpoints, learning rate: the step is the same
  kLeftOut,   ///< costs something that a job cannot say; a prediction names it
  kOtherStep  ///< another kind of step or model: the job would be a wrong one
};
struct MegatronOption {
  OptionEffect effect = OptionEffect::kNone;
  /// kLeftOut: "what (what it changes)"; kOtherStep: what is trained instead.
  std::string_view note;
};
/// Looks up an option, without dashes and words joined by '-', and its value; nullopt for one not
/// in the table. Source: Megatron-LM, megatron/training/arguments.py and megatron/core/transformer/
/// transformer_config.py, at d98e8a64.
std::optional<MegatronOption> megatron_option(std::string_view name, std::string_view value);
/// Those of the table that stand there in full.
std::vector<std::string_view> megatron_option_names();

/// Entries of a tokenizer's vocabulary by the name of its type, model or file; nullopt for one that
/// the table does not have. Sources: GPT-2's encoder.json; `vocab_size` of the named models'
/// config.json. `files`: options --vocab-file and --merge-file are given, which only BPE has.
std::optional<long> tokenizer_size(std::string_view type, std::string_view model, bool files);

}  // namespace stepcast::interop
