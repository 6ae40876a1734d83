#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/print/data_table.h"
#include "core/access/access.h"

namespace stepcast::cli {

/// `hitcurve --nodes ...`: what copies of hot rows save of the traffic between nodes.
struct TrafficOptions {
  std::vector<double> nodes;
  double per_node = 8;
  std::vector<double> sync_every{1};
  double row_bytes = 512;
  std::string system;
  std::string counted_on;  ///< another recording, on which the plan is counted
};
void add_traffic_options(CLI::App& command, TrafficOptions& options);

/// A line for each number of nodes and sync interval. With another recording (`ids` names rows as
/// the access does) the rows chosen on the first are counted on the second.
/// Errors: InputError where the system has no level between nodes.
DataTable traffic_table(const TrafficOptions& options, const Access& access,
                        const Context& context);

}  // namespace stepcast::cli
