#pragma once
#include <string>

#include "cli/command.h"
#include "validation/validation.h"

namespace stepcast::cli {

struct ValidateModelsCommand {
  std::string data, system, device, stack, holdout;
  bool form_only = false;
  std::size_t points = 1000;
  std::int64_t thin = 1;
};
void add_model_options(CLI::App& command, ValidateModelsCommand& options);
/// `suite` is "kernels" or "collectives". Writes one picture per op kind where a folder is named.
validation::ValidationSuite validate_models(const std::string& suite,
                                            const ValidateModelsCommand& options,
                                            const Context& context);

}  // namespace stepcast::cli
