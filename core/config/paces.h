#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config.h"
#include "core/job/efficiency.h"

namespace stepcast::config {

/// Efficiencies as `stepcast validate published --out-pace FILE` writes them; those that ship are
/// `root`/models/stacks/paces.json. Errors: InputError naming file and JSON path.
EfficiencyTable read_efficiencies(const Source& source);
EfficiencyTable load_efficiencies(const Library& library);
/// Efficiencies of recommenders on one framework, as `stepcast validate dlrm --out-pace FILE` writes them:
/// `root`/models/stacks/recommender_paces.json has a table by framework. Nothing of other ones.
std::optional<EfficiencyTable> load_recommender_efficiencies(const Library& library,
                                                             const std::string& framework);
std::string efficiencies_to_json(const std::map<std::string, EfficiencyTable>& by_framework);
std::string efficiencies_to_json(const EfficiencyTable& table);

/// Generations of devices and makers of frameworks: `root`/models/stacks/origins.json.
struct Origins {
  std::map<std::string, std::vector<std::string>> generations;  ///< how names of devices begin
  std::map<std::string, std::vector<std::string>> makers;       ///< frameworks by who makes them
  /// "Hopper"; empty where the file knows no device of that name.
  [[nodiscard]] std::string generation_of(std::string_view device) const;
  /// "NVIDIA"; the framework itself where nobody is said to make it.
  [[nodiscard]] std::string maker_of(std::string_view framework) const;
};
Origins load_origins(const Library& library);

}  // namespace stepcast::config
