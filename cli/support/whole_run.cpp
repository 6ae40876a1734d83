#include "cli/support/whole_run.h"

#include <fmt/ostream.h>

#include "cli/support/checks.h"
#include "cli/support/console.h"
#include "core/config/quantity.h"
#include "core/error.h"

namespace stepcast::cli {
namespace {

constexpr double kMostTokens = 1e18;

}  // namespace

studies::RunTerms WholeRunOptions::terms() const {
  if (!asked() && (price > 0 || !mtbf.empty())) {
    throw InputError(mtbf.empty() ? "--price" : "--mtbf",
                     "applies to a whole run; give its length: --tokens, --samples or --steps");
  }
  studies::RunTerms terms;
  terms.price = price;
  if (!mtbf.empty()) {
    terms.device_mtbf = config::parse_quantity<Seconds>(mtbf, "--mtbf");
    if (!(terms.device_mtbf > Seconds{})) {
      throw InputError("--mtbf", "expected a time above 0, such as \"50000 h\"");
    }
  }
  if (!restart.empty()) {
    if (mtbf.empty()) {
      throw InputError("--restart", "requires --mtbf, the mean time between failures");
    }
    terms.restart = config::parse_quantity<Seconds>(restart, "--restart");
  }
  return terms;
}

void add_whole_run_options(CLI::App& command, WholeRunOptions& options) {
  auto* length = command.add_option_group("length", "How long a whole run takes; one of");
  length->add_option("--tokens", options.length.tokens, "Tokens to train on, such as 15T or 3e11")
      ->transform(positive_count());
  length->add_option("--samples", options.length.samples, "Samples to train on, such as 4B")
      ->transform(positive_count());
  length->add_option("--steps", options.length.steps, "Steps to train for")
      ->transform(positive_count());
  length->require_option(0, 1);
  command
      .add_option("--price", options.price,
                  "With one of these: price of a device-hour, in any currency")
      ->check(positive_number());
  command.add_option("--mtbf", options.mtbf,
                     "With one of these: mean time between failures of one device, such as "
                     "\"50000 h\"; adds the work that failures lose since the last checkpoint (a "
                     "flow of the state)");
  command.add_option("--restart", options.restart,
                     "With --mtbf: time from a failure until training goes on, such as \"10 min\"");
}

void doubt_length(const WholeRunOptions& options) {
  if (options.length.tokens > kMostTokens) {
    fmt::print(notes(),
               "stepcast: warning: --tokens: {:.3g} is far beyond any run (15e12 is a large "
               "one); is the number meant?\n",
               options.length.tokens);
  }
}

}  // namespace stepcast::cli
