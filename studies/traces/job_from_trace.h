#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/units.h"
#include "traces/events/recording.h"

namespace stepcast::studies {

struct JobFromTraceOptions {
  std::string system;  ///< zoo name or file; empty: the machine of the device the trace names
  std::string mark;    ///< the name of the ranges that are steps
  config::Library library;
};

/// A key of the job, its value as JSON, and what says so, or why nothing does.
struct InferredKey {
  std::string key, value, reason;
};

/// A recorded step and the step predicted for the job.
struct RecordedAndPredicted {
  Seconds recorded, predicted;
  Seconds recorded_compute, predicted_compute;  ///< of the rank that computes most
  Seconds recorded_exposed, predicted_exposed;  ///< communication
  Seconds host_per_op;
  bool met_by_host = false;  ///< the step is mostly host time, which was taken from the record
};

struct JobFromTrace {
  std::string job;                ///< JSON, loads as it stands
  std::vector<InferredKey> told;  ///< by the trace
  std::vector<InferredKey> open;  ///< not told; the value is assumed, empty where the default holds
  std::optional<RecordedAndPredicted> comparison;  ///< of timelines
  std::vector<std::string> warnings;               ///< of the recorded run
};

/// The job that a recorded run of PyTorch was: model, batch, groups, formats and optimizer, from
/// the shapes of its operators and its process groups. Told are
/// - recommenders: chains of products before and after the interaction (bottom and top MLP),
/// batched
///   products between them (dot) or pairs down to a rank and up again (DCN v2), embedding lookups
///   with tables, sizes, pooling and the ranks that hold them;
/// - decoder-only transformers, dense or of experts: the products around attention, its heads and
///   lengths, the router, the products of the experts, vocabulary and layers.
/// Axes of groups follow from what they move: activations in the forward pass are tensor-parallel,
/// exchanges there expert-parallel, sums in the backward pass data-parallel, sends pipelined.
///
/// The host's time between launches is no property of the model: the job carries it (host.issue) as
/// the longest of the ranks' own time in a step, waits taken out, over the ops of the job, so that
/// it goes along to another system or plan.
///
/// Errors: InputError when operators have no shapes, when neither model is recognised, when a step
/// holds several models or computes three times as much or as little as the one found, and when
/// nothing says what it was recorded on.
JobFromTrace job_from_trace(const traces::Recording& recording, const JobFromTraceOptions& options);

}  // namespace stepcast::studies
