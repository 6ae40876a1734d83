#include "cli/validate/validate_embedding.h"

#include <fmt/format.h>

#include "cli/support/output_files.h"
#include "cli/support/progress.h"
#include "validation/embedding.h"

namespace stepcast::cli {

void add_measure_options(CLI::App& command, ValidateEmbeddingCommand& options) {
  command
      .add_option("--measure", options.measure,
                  "kernels: measure this machine's embedding kernels instead of reading --data")
      ->check(CLI::IsMember({"embedding"}));
  command
      .add_option("--rows", options.rows,
                  "Writes what --measure measured, in the columns of calibrate --rows")
      ->check(output_file());
  command.add_option("--seconds", options.seconds, "Time --measure may take")
      ->check(CLI::Range(5, 3600));
}

validation::ValidationSuite validate_embedding(const ValidateEmbeddingCommand& options,
                                               std::uint64_t seed) {
  Progress progress("measuring");
  runtime::calibration::EmbeddingSweepOptions sweep;
  sweep.seed = seed;
  sweep.cases_per_cell = 6;
  sweep.seconds = options.seconds;
  sweep.progress = [&](double done, const runtime::calibration::EmbeddingCase& next) {
    progress.update(done, 1, fmt::format("zipf {:g} dim {}", next.zipf, next.dim));
  };
  const auto samples = runtime::calibration::measure_embedding(sweep);
  if (!options.rows.empty()) {
    write_output(options.rows, validation::embedding_rows(samples));
  }
  return validation::validate_embedding(samples);
}

}  // namespace stepcast::cli
