#pragma once
#include <cstdint>

#include "studies/traces/show_trace.h"
#include "traces/measured_step.h"

namespace stepcast::studies {

/// What bounds a captured run of any program: the same picture as of our own traces, step by step,
/// then means over the steps. What was idle though nothing kept it is `host` where the next work
/// was not launched yet, `other` where it was (launch latency, waits between streams), `bubble`
/// where a collective waited for other ranks. Steps are those of StepTimes: each counts what runs
/// from the end of the one before to its own, whoever launched it; ops count for the step that
/// launched them.
///
/// Steps before `skip` are left out. Errors: InputError when no step remains.
RecordedStep recorded_step(const traces::MeasuredRun& run, std::int32_t skip = 0);

}  // namespace stepcast::studies
