#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/document.h"

namespace stepcast::config {

// Forms of a key's value, as JSON Schema (draft 2020-12) says them.

OrderedJson integer_form(std::int64_t low, std::int64_t high);
OrderedJson number_form(double low, double high);
OrderedJson boolean_form();
/// Any text; `what` says of what: "a path".
OrderedJson text_form(std::string_view what);
/// An amount with its unit: `example` is "80 GB".
OrderedJson amount_form(std::string_view example);
OrderedJson choice_form(const std::vector<std::string>& names);
template <class T>
OrderedJson choice_form(const std::vector<std::pair<std::string, T>>& names) {
  std::vector<std::string> all;
  for (const auto& [name, value] : names) {
    all.push_back(name);
  }
  return choice_form(all);
}
OrderedJson list_form(OrderedJson item, std::size_t least = 0, std::size_t most = SIZE_MAX);
OrderedJson any_form(std::vector<OrderedJson> forms);
/// Entry of the schema's `$defs` under this name.
OrderedJson named_form(std::string_view definition);
/// An object whose keys are names of the user's, all with values of one form.
OrderedJson map_form(OrderedJson value);

/// Workloads, or jobs of them, to which a key applies.
struct Scope {
  std::string_view text;  ///< "transformers"
  bool (*holds)(const Job& job);
};
extern const Scope kTransformers;
extern const Scope kWithTables;  ///< recommendation models
extern const Scope kWithoutTables;

/// A key of an object: what messages, the schema and the reference say of it.
struct KeyFacts {
  std::string_view name = {};
  OrderedJson form = {};
  std::string_view help = {};  ///< one line
  OrderedJson usual = {};      ///< its value where it is not given; null: `otherwise` says it
  std::string_view otherwise = "none";  ///< "devices / (tensor context pipeline)"
  std::string_view needed = {};  ///< what is expected where it must be given; empty: it need not
  const Scope* scope = nullptr;  ///< null: all jobs
  bool searched = false;         ///< `plan` looks for its value where it is not given or "auto"
};
using KeyTable = std::vector<KeyFacts>;
/// Expected value of keys whose reader states it.
constexpr std::string_view kNeeded = "a value";

// Rows of objects that are read by hand.
inline KeyFacts needed_fact(std::string_view name, OrderedJson form, std::string_view help,
                            std::string_view expected = kNeeded) {
  return {.name = name, .form = std::move(form), .help = help, .needed = expected};
}
inline KeyFacts usual_fact(std::string_view name, OrderedJson form, std::string_view help,
                           OrderedJson usual) {
  return {.name = name, .form = std::move(form), .help = help, .usual = std::move(usual)};
}
inline KeyFacts open_fact(std::string_view name, OrderedJson form, std::string_view help,
                          std::string_view otherwise = "none") {
  return {.name = name, .form = std::move(form), .help = help, .otherwise = otherwise};
}

/// The schema of an object with these keys and no others.
OrderedJson object_form(const KeyTable& keys);
/// Rejects keys of `v` that are not in the table.
void expect_keys(const Value& v, const KeyTable& keys);

}  // namespace stepcast::config
