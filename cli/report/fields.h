#pragma once
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "core/error.h"

namespace stepcast::cli::report {

/// A value of a document with its path, so that a document that is not whole says where.
class Field {
 public:
  using Json = nlohmann::ordered_json;
  Field(const Json& json, std::string place) : json_(&json), place_(std::move(place)) {}

  [[nodiscard]] Field at(const std::string& key) const {
    if (!json_->is_object() || !json_->contains(key)) {
      throw InputError(place_ + key,
                       "is missing; expected the document as the command printed it with "
                       "--format json");
    }
    return {(*json_)[key], place_ + key + "."};
  }
  /// A member of a member: "time_s/compute".
  [[nodiscard]] Field find(const std::string& path) const {
    const std::size_t slash = path.find('/');
    return slash == std::string::npos ? at(path)
                                      : at(path.substr(0, slash)).find(path.substr(slash + 1));
  }
  [[nodiscard]] bool has(const std::string& key) const {
    return json_->is_object() && json_->contains(key) && !(*json_)[key].is_null();
  }
  [[nodiscard]] double number() const {
    if (!json_->is_number() || !std::isfinite(json_->get<double>())) {
      reject("a number");
    }
    return json_->get<double>();
  }
  [[nodiscard]] std::string string() const {
    if (!json_->is_string()) {
      reject("a text");
    }
    return json_->get<std::string>();
  }
  [[nodiscard]] bool flag() const {
    if (!json_->is_boolean()) {
      reject("true or false");
    }
    return json_->get<bool>();
  }
  [[nodiscard]] bool is_object() const { return json_->is_object(); }
  [[nodiscard]] bool is_list() const { return json_->is_array(); }
  [[nodiscard]] bool is_number() const { return json_->is_number(); }
  /// A text as it is, other values as JSON.
  [[nodiscard]] std::string shown() const {
    return json_->is_string() ? json_->get<std::string>() : json_->dump();
  }
  template <class Visit>  // void(Field)
  void each(Visit visit) const {
    if (!json_->is_array()) {
      reject("a list");
    }
    for (std::size_t i = 0; i < json_->size(); ++i) {
      visit(Field((*json_)[i], fmt::format("{}[{}].", place_.substr(0, place_.size() - 1), i)));
    }
  }
  template <class Visit>  // void(const std::string& key, Field)
  void each_member(Visit visit) const {
    if (!json_->is_object()) {
      reject("an object");
    }
    for (const auto& [key, value] : json_->items()) {
      visit(key, Field(value, place_ + key + "."));
    }
  }

  /// Errors: InputError with the place, what was found and `expected`.
  [[noreturn]] void reject(const char* expected) const {
    throw InputError(place_.substr(0, place_.size() - 1),
                     fmt::format("found {}, expected {}", json_->dump().substr(0, 60), expected));
  }

 private:
  const Json* json_;
  std::string place_;  ///< ends with ": " at the root, with "." below it
};

}  // namespace stepcast::cli::report
