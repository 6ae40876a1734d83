#pragma once
#include <string>

#include "core/baseline.h"

namespace stepcast::cli {

/// Times per step in the Bencher Metric Format: a benchmark per op that is judged alone and per
/// total, measure "latency" in nanoseconds; the value is the median over runs, the bounds are the
/// least and the largest run. One run stands for several: blocks of its steps.
std::string bencher_json(const Baseline& runs);

}  // namespace stepcast::cli
