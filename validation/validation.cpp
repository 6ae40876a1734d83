#include "validation/validation.h"

namespace stepcast::validation {

ValidationGroup group_of(std::string name, const std::vector<ValidationRow>& rows) {
  std::vector<double> errors;
  errors.reserve(rows.size());
  for (const ValidationRow& row : rows) {
    errors.push_back(row.error());
  }
  ValidationGroup group;
  group.name = std::move(name);
  group.errors = studies::statistics_of(errors);
  if (!rows.empty()) {
    group.worst_row = rows[group.errors.worst_index].id;
  }
  return group;
}

}  // namespace stepcast::validation
