#pragma once
#include <string>

#include "cli/command.h"
#include "validation/validation.h"

namespace stepcast::cli {

struct ValidateEmbeddingCommand {
  std::string measure;  ///< "embedding", or empty: nothing is measured
  std::string rows;     ///< where the measured rows are written; empty: nowhere
  double seconds = 150;
};
void add_measure_options(CLI::App& command, ValidateEmbeddingCommand& options);
/// Measures the embedding kernels of this machine on one core and scores the models on exponents
/// and dims they have not seen.
validation::ValidationSuite validate_embedding(const ValidateEmbeddingCommand& options,
                                               std::uint64_t seed);

}  // namespace stepcast::cli
