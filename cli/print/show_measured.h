#pragma once
#include "cli/print/show_tables.h"
#include "studies/traces/show_measured.h"

namespace stepcast::cli {

/// What bounds a run that another tool recorded, as tables.
Tables measured_tables(const studies::MeasuredShow& show);

}  // namespace stepcast::cli
