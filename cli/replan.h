#pragma once
#include <cstdint>
#include <string>

#include "cli/command.h"
#include "cli/data_table.h"
#include "planner/migration.h"
#include "studies/replan.h"

namespace stepcast::cli {

/// `stepcast plan JOB --from PLAN [--max-migrate BYTES]`, to the standard output.
void print_replan(const studies::ReplanReport& report, OutputFormat format);

/// An amount of bytes on the command line: "10 GB", or a plain number of bytes.
std::int64_t bytes_option(const std::string& text, const char* option);

// What a move between two plans consists of; shared with `explain` and the drift report.
DataTable moved_tables(const planner::Migration& m);
DataTable moved_ranks(const planner::Migration& m);
DataTable moved_levels(const planner::Migration& m);

}  // namespace stepcast::cli
