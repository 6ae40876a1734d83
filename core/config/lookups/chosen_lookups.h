#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/config/lookups/arrays.h"
#include "core/config/lookups/lookup_name.h"

namespace stepcast::config {

/// The ids of one table, and where its bags begin.
struct ChosenLookups {
  enum class Kind { kRaw, kText, kArray };
  Kind kind = Kind::kRaw;
  LookupName name;
  ArrayFile arrays = {};
  const Array* ids = nullptr;        ///< of kArray
  Elements which = {};               ///< of `ids`
  const Array* bounds = nullptr;     ///< offsets or lengths of bags in the same file
  bool are_lengths = false;          ///< what `bounds` holds
  Elements bags = {};                ///< of `bounds`, without the end of the last
  std::int64_t bag_size = 0;         ///< above 0: of every bag
  std::optional<TableOf> part = {};  ///< of a file whose .offsets hold those of several tables
};

/// Meaning of FILE or FILE:PART, from the first bytes of the file and what describes its arrays.
/// `where` names the place that asked. Errors: InputError naming the file and what it holds.
ChosenLookups choose_lookups(const std::filesystem::path& name, std::string_view where);

/// "FILE:PART", for messages.
std::string label_of(const LookupName& name);
/// FILE.offsets, and whether there is one.
std::filesystem::path offsets_file(const LookupName& name);
bool has_offsets_file(const LookupName& name);
/// Elements of an array, kept.
std::vector<std::int64_t> elements(const ArrayFile& file, const Array& array, Elements which);

}  // namespace stepcast::config
