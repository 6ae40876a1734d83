#pragma once
#include <string>

#include "cli/command.h"
#include "validation/validation.h"

namespace stepcast::cli {

struct ValidatePublishedCommand {
  std::string data;
  std::string scalars;  ///< another table: its rows alone give the scalars of `data`; empty: none
  std::string calibrate;
  std::string paces;  ///< file to write the paces that the rows show to; empty: none
};
validation::ValidationSuite validate_published(const ValidatePublishedCommand& command,
                                               const Context& context);

}  // namespace stepcast::cli
