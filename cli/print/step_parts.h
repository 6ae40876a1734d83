#pragma once
#include <array>
#include <utility>

#include "core/job/plan.h"
#include "studies/predict/predict.h"

namespace stepcast::cli {

/// A part that a step's time falls into: its key in documents and its name for people.
struct StepPart {
  const char* key;
  const char* title;
  Seconds studies::TimeSplit::*of;
  const char* whole_title;  ///< where nothing around it says what it is of
};
inline constexpr std::array<StepPart, 5> kStepParts{
    {{"compute", "compute", &studies::TimeSplit::compute, "compute"},
     {"exposed_communication", "exposed communication", &studies::TimeSplit::exposed_communication,
      "exposed communication"},
     {"bubble", "bubble", &studies::TimeSplit::bubble, "pipeline bubble"},
     {"host", "host", &studies::TimeSplit::host, "host"},
     {"other", "other", &studies::TimeSplit::other, "other"}}};

/// What a ledger counts, by its key in plans.
inline constexpr std::array<std::pair<const char*, double LedgerLine::*>, 7> kLedgerParts{
    {{"weights", &LedgerLine::weights},
     {"optimizer", &LedgerLine::optimizer},
     {"gradients", &LedgerLine::gradients},
     {"cache", &LedgerLine::cache},
     {"remap", &LedgerLine::remap},
     {"buffers", &LedgerLine::buffers},
     {"dense", &LedgerLine::dense}}};

}  // namespace stepcast::cli
