#pragma once
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "simulator/reports/framework_memory.h"
#include "validation/published/rows.h"
#include "validation/suite.h"

namespace stepcast::validation {

/// A row and the models' prediction of it, before any scalar.
struct PublishedPrediction {
  const PublishedRow* row = nullptr;
  std::string skipped;  ///< why it cannot be predicted; then the rest is not filled
  /// Kind of that reason where it is the row's, not the prediction's: "task lora is not modelled",
  /// "listed twice"; empty: rejected.
  std::string left_out;
  std::string source, framework, plan, device,
      format;                     ///< plan: family of plans (core/job/efficiency.h)
  std::string family;             ///< kind of training, the same
  std::string generation, maker;  ///< of the device, of the framework (core/config/paces.h)
  std::string release;            ///< of the framework: "26.02"; else its year: "2021"
  double measured = 0;            ///< seconds
  double facts = 0;               ///< seconds from hardware facts only; 0 where not asked for
  double kernels = 0;             ///< seconds without what its publication says of the host
  double flops = 0, peak = 0;     ///< of the model; of a device in its format, 0 not known
  double at_peak = 0;             ///< seconds of the model FLOPs at peak: a constant MFU divides it
  double device_seconds = 0;      ///< measured, per model FLOP: how good a plan is
  double memory = 0, capacity = 0;  ///< bytes of the fullest device, its memory
  double over = 0;                  ///< simulator::memory_overestimate of the device
  double memory_error = 0;          ///< simulator::memory_error_of_runs
  [[nodiscard]] simulator::Fit fit() const {
    return simulator::fit_of(Bytes(memory), Bytes(capacity), over);
  }
  [[nodiscard]] bool fits() const { return fit() != simulator::Fit::kNo; }
  /// It ran, so it did fit: where the ledger is farther off than is usual of runs, the job was
  /// another one, and the row gives no efficiency.
  [[nodiscard]] bool plausible() const {
    return simulator::fit_of(Bytes(memory), Bytes(capacity), memory_error) != simulator::Fit::kNo;
  }
  bool in_range = false;

  /// Times of the host's issue cost that `curve` holds a step time for.
  static constexpr std::array<double, 7> kHostScales{0.25, 0.5, 0.7071, 1, 1.4142, 2, 4};
  /// Seconds by kHostScales where the scalar of the framework is the host's; else one entry.
  std::vector<double> curve;
  /// Seconds with the scalar of its framework: of the step, or of the host's issue cost (linear
  /// between the points of the curve: a step is piecewise linear in it).
  [[nodiscard]] double seconds(double scalar) const;
  [[nodiscard]] bool scales_host() const { return curve.size() > 1; }
  /// Year of the release; 0 where none is known.
  [[nodiscard]] int year() const;
};

struct PublishedPredictOptions {
  bool facts = false;  ///< also from hardware facts only
  int threads = 1;
  std::function<void(double)> progress;  ///< share done, from the calling thread's workers
};

/// Predicts every row; equal jobs once. The result does not depend on the number of threads. Later
/// lines that list the measurement of an earlier one again are skipped.
std::vector<PublishedPrediction> predict_published(const std::vector<PublishedRow>& rows,
                                                   const config::PublishedNames& names,
                                                   const config::Library& library,
                                                   const PublishedPredictOptions& options);

/// Predictions that are looked at together; they live elsewhere.
using Predictions = std::vector<const PublishedPrediction*>;
Predictions pointers(const std::vector<PublishedPrediction>& of);

/// The scalar that centres the predictions of `of` on their measurements: exp(median ln(measured /
/// predicted)) of steps; of host costs the one of least mean |ln|. 1 for no rows.
double published_scalar(const Predictions& of);

}  // namespace stepcast::validation
