#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/graph/op.h"
#include "validation/models.h"

namespace stepcast::validation {

/// A bar a group of held-out rows is held to; a part that is absent is not asked for.
struct Bar {
  std::optional<double> median, mean, p90, worst;
  [[nodiscard]] bool met(const studies::ErrorStatistics& e) const;
  [[nodiscard]] std::string text() const;  ///< "median <= 3 %, p90 <= 10 %"
};

/// What the rows of a group have in common.
struct GroupKey {
  OpKind kind = OpKind::kGemm;
  Format format = Format::kFp32;
  std::string model;  ///< most specific key of the fitted models: "activation_forward.gelu"
  std::string device, stack, variant;
  bool across_machines = false;  ///< collectives
  auto operator<=>(const GroupKey&) const = default;
  [[nodiscard]] std::string name() const;
};

/// The bars on held-out rows that the project has set itself; nullopt where a group is only
/// reported. Those of collectives inside one machine are on all kinds of a system and stack
/// together.
std::optional<Bar> bar_of(const GroupKey& key, const ValidateModelsOptions& options);
std::optional<Bar> bar_of_machine(const std::string& stack, const ValidateModelsOptions& options);

/// The rows of a group as they are scored.
struct ScoredGroup {
  GroupKey key;
  std::string note;  ///< added to the group's name: where transferred constants come from
  std::vector<ValidationRow> rows;
  struct Detail {
    bool in_range = false;
    double naive = 0;  ///< roofline of hardware facts, seconds
  };
  std::vector<Detail> details;  ///< of the rows that are not skipped, in their order
  void add(std::string id, double measured, double predicted, Detail detail);
  void skip(std::string id, double measured, std::string reason);
};

/// Statistics and bar of a group into the suite. Rows with the same id up to its place
/// ("shape @ file:line") are repeats: their spread is the noise.
void add_group(ScoredGroup group, const ValidateModelsOptions& options, ValidationSuite& to);
/// One line over several groups, before they are added themselves.
void add_summary(const std::string& name, const std::vector<const ScoredGroup*>& groups,
                 const std::optional<Bar>& bar, ValidationSuite& to);
/// After the last group: the suite's bound and whether it passed.
void close_suite(const ValidateModelsOptions& options, ValidationSuite& to);

}  // namespace stepcast::validation
