#pragma once
#include "cli/print/show_tables.h"
#include "studies/traces/show_measured.h"

namespace stepcast::cli {

/// Tables of what bounds a run that another tool recorded.
Tables measured_tables(const studies::MeasuredShow& show);

}  // namespace stepcast::cli
