#pragma once
#include <string>

#include "cli/report/fields.h"

/// Chapters for measured runs, measured against predicted, and differences between runs.
namespace stepcast::cli::report {

std::string replay(const Field& d);
std::string validation(const Field& d);
std::string explanation(const Field& d);
std::string comparison(const Field& d);
std::string training(const Field& d);
std::string cache_curve(const Field& d);
std::string guarded(const Field& d);   ///< replay --baseline
std::string recorded(const Field& d);  ///< show TRACE
std::string tables(const Field& d);    ///< lists of rows, as they are

}  // namespace stepcast::cli::report
