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
};
inline constexpr std::array<StepPart, 5> kStepParts{
    {{"compute", "compute", &studies::TimeSplit::compute},
     {"exposed_communication", "exposed communication", &studies::TimeSplit::exposed_communication},
     {"bubble", "bubble", &studies::TimeSplit::bubble},
     {"host", "host", &studies::TimeSplit::host},
     {"other", "other", &studies::TimeSplit::other}}};

/// Parts that a ledger counts, by their keys in plans.
inline constexpr std::array<std::pair<const char*, double LedgerLine::*>, 7> kLedgerParts{
    {{"weights", &LedgerLine::weights},
     {"optimizer", &LedgerLine::optimizer},
     {"gradients", &LedgerLine::gradients},
     {"cache", &LedgerLine::cache},
     {"remap", &LedgerLine::remap},
     {"buffers", &LedgerLine::buffers},
     {"dense", &LedgerLine::dense}}};

}  // namespace stepcast::cli
