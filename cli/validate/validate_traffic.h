#pragma once
#include <string>

#include "cli/command.h"

namespace stepcast::cli {

/// Copies of hot rows on published histograms of lookups: the table of traffic cuts beside ours,
/// and plans at the memory of flat row-wise sharding. Returns the exit code: 1 where a share is
/// more than half a point off.
int validate_traffic(const std::string& data, OutputFormat format, const Context& context);

}  // namespace stepcast::cli
