#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "traces/events/names.h"

namespace stepcast::traces::internal {

/// A JSON value with the path by which it was reached, for errors.
class JsonNode {
 public:
  JsonNode(const std::string& file, const nlohmann::json& value, std::string path)
      : file_(file), value_(value), path_(std::move(path)) {}

  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(file_ + ": " + path_, what);
  }
  [[nodiscard]] bool has(const char* key) const {
    return value_.is_object() && value_.contains(key);
  }
  [[nodiscard]] JsonNode operator[](std::string_view key) const {
    const std::string name(key);
    const std::string path = path_.empty() ? name : path_ + "." + name;
    if (!value_.is_object() || !value_.contains(name)) {
      throw InputError(file_ + ": " + path, "is missing; is this a stepcast trace, whole?");
    }
    return {file_, value_[name], path};
  }
  [[nodiscard]] JsonNode operator[](std::size_t i) const {
    if (!value_.is_array() || i >= value_.size()) {
      fail(fmt::format("expected a list of more than {} entries", i));
    }
    return {file_, value_[i], fmt::format("{}[{}]", path_, i)};
  }
  [[nodiscard]] std::size_t size() const {
    if (!value_.is_array()) {
      fail("expected a list");
    }
    return value_.size();
  }
  template <typename T>
  [[nodiscard]] T whole(std::int64_t least = INT64_MIN, std::int64_t most = INT64_MAX) const {
    const bool fits = value_.is_number_integer() &&
                      !(value_.is_number_unsigned() && value_.get<std::uint64_t>() > INT64_MAX);
    const std::int64_t v = fits ? value_.get<std::int64_t>() : 0;
    if (!fits || v < least || v > most || !std::in_range<T>(v)) {
      fail(fmt::format("found {}; expected a whole number in range", value_.dump().substr(0, 40)));
    }
    return static_cast<T>(v);
  }
  [[nodiscard]] double number() const {
    if (!value_.is_number()) {
      fail(fmt::format("found {}; expected a number", value_.dump().substr(0, 40)));
    }
    return value_.get<double>();
  }
  [[nodiscard]] std::string text() const {
    if (!value_.is_string()) {
      fail("expected a text");
    }
    return value_.get<std::string>();
  }
  [[nodiscard]] bool truth() const {
    if (!value_.is_boolean()) {
      fail("expected true or false");
    }
    return value_.get<bool>();
  }
  [[nodiscard]] NameId name(const Names& names) const {
    const auto id = whole<std::int64_t>(-1, static_cast<std::int64_t>(names.size()) - 1);
    return id < 0 ? kNoName : static_cast<NameId>(id);
  }
  template <typename T>
  [[nodiscard]] std::vector<T> list() const {
    std::vector<T> out(size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = (*this)[i].whole<T>();
    }
    return out;
  }
  [[nodiscard]] const nlohmann::json& object() const {
    if (!value_.is_object()) {
      fail("expected an object");
    }
    return value_;
  }
  [[nodiscard]] JsonNode member(const std::string& key) const {
    return {file_, value_[key], path_ + "." + key};
  }

 private:
  const std::string& file_;
  const nlohmann::json& value_;
  std::string path_;
};

}  // namespace stepcast::traces::internal
