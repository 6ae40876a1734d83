#pragma once
#include <array>

#include "studies/predict/predict.h"

namespace stepcast::cli {

/// A part that a step's time falls into: its key in documents and its name for people.
struct StepPart {
  const char* key;
  const char* title;
  Seconds studies::TimeSplit::*of;
};
inline constexpr std::array<StepPart, 5> kStepParts{
    {{"compute", "compute", &studies::TimeSplit::compute},
     {"exposed_communication", "exposed communication", &studies::TimeSplit::exposed_communication},
     {"bubble", "bubble", &studies::TimeSplit::bubble},
     {"host", "host", &studies::TimeSplit::host},
     {"other", "other", &studies::TimeSplit::other}}};

}  // namespace stepcast::cli
