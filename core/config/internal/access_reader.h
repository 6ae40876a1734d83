#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/config/document.h"

namespace stepcast::config {

/// Reads `access`. Laws are shared by tables that ask for the same one: hundreds of tables often
/// have a handful of laws.
class AccessReader {
 public:
  /// Mean lookups per sample, where a recording with bags tells.
  std::optional<double> read(const Value& v, EmbeddingTable& table);

 private:
  std::shared_ptr<const Access> law(const Value& v, const std::string& name, EmbeddingTable& table);
  template <class Make>
  std::shared_ptr<const Access> shared(const std::string& key, Make&& make) {
    auto& law = laws_[key];
    if (!law) {
      law = std::make_shared<const Access>(make());
    }
    return law;
  }

  std::map<std::string, std::shared_ptr<const Access>> laws_;
};

/// `access` of a table as it was given.
OrderedJson access_json(const EmbeddingTable& table);

}  // namespace stepcast::config
