#pragma once
#include <array>

#include "cli/print/terminal.h"
#include "studies/predict/predict.h"

namespace stepcast::cli {

/// A part that a step's time falls into: its key in documents and its name for people.
struct StepPart {
  const char* key;
  const char* title;
  Seconds studies::TimeSplit::*of;
  Meaning meaning = Meaning::kOther;
};
inline constexpr std::array<StepPart, 5> kStepParts{
    {{"compute", "compute", &studies::TimeSplit::compute, Meaning::kCompute},
     {"exposed_communication", "exposed comm", &studies::TimeSplit::exposed_communication,
      Meaning::kCommunication},
     {"bubble", "bubble", &studies::TimeSplit::bubble, Meaning::kBubble},
     {"host", "host", &studies::TimeSplit::host, Meaning::kHost},
     {"other", "other", &studies::TimeSplit::other, Meaning::kOther}}};

}  // namespace stepcast::cli
