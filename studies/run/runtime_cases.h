#pragma once
#include <cstdint>
#include <string>

#include "core/job/job.h"

namespace stepcast::studies {

/// Resource that a drawn training job is meant to be bound by; decides the ranges it is drawn from,
/// nothing else. Whether it really is so is for the prediction (and the run) to say.
enum class Bound : std::uint8_t { kHost, kEmbedding, kMatrix, kCommunication };
std::string_view name_of(Bound bound);

enum class CaseKind : std::uint8_t { kDlrm, kTransformer, kExperts };
std::string_view name_of(CaseKind kind);

/// Processors that a job is sized for: ranks that have a core of a processor each, or a GPU each. A
/// step of the former is a thousandth of a second's work for a GPU, all of it the host's.
enum class CaseSize : std::uint8_t { kCore, kDevice };

/// Deterministic source of draws: the same on every platform.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits();
  double uniform(double low, double high);
  std::int64_t integer(std::int64_t low, std::int64_t high);  ///< both included
  double log_uniform(double low, double high);
  std::int64_t log_integer(double low, double high);  ///< rounded log-uniform
  template <std::size_t N>
  std::int64_t one_of(const std::int64_t (&values)[N]) {
    return values[static_cast<std::size_t>(integer(0, static_cast<std::int64_t>(N) - 1))];
  }

 private:
  std::uint64_t state_;
};

/// A random small training job for `ranks` ranks of `system`: DLRMs with 4..40 tables of 1e3..1e7
/// rows, zipf 0..1.2, every sharding and interaction, weights plus optimizer state at most 2 GB;
/// GPT- and Llama-style transformers split by tensor, pipeline or data; such with 2 to 8 experts
/// for each rank, even and skewed, split by data, experts or tensor. In
/// fp32; those for devices in tf32 and bf16 too, with at most 1.5 million lookups (which the host
/// draws) and 200 million parameters a rank. Used by calibration (its seeds) and by `validate
/// runtime` (other seeds): the two never share a job.
Job draw_case(CaseKind kind, Bound bound, const System& system, std::int64_t ranks, Draw& draw,
              CaseSize size = CaseSize::kCore);

/// One line that says what a drawn job is: "dlrm 12 tables dot row_wise batch 512".
std::string describe(const Job& job);

}  // namespace stepcast::studies
