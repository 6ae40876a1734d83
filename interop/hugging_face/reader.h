#pragma once
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "interop/formats.h"
#include "interop/hugging_face/model_class.h"
#include "interop/layer_list.h"

namespace stepcast::interop {

constexpr std::int64_t kLargestCount = std::int64_t{1} << 40;

/// Reads one config.json of Hugging Face transformers and remembers what it read.
class ConfigReader {
 public:
  explicit ConfigReader(const Value& v) : v_(v) {}

  std::optional<Value> find(std::string_view key) {
    seen_.insert(std::string(key));
    const auto it = v_.json().find(std::string(key));
    return it == v_.json().end() || it->is_null() ? std::nullopt : v_.find(key);
  }
  /// The first of several spellings.
  std::optional<Value> find(std::initializer_list<const char*> keys) {
    std::optional<Value> found;
    for (const char* key : keys) {
      const auto v = find(key);
      found = found ? found : v;
    }
    return found;
  }
  std::int64_t integer(std::initializer_list<const char*> keys) {
    const auto found = find(keys);
    return found ? found->integer(1, kLargestCount)
                 : v_.at(*keys.begin(), "a number of a model of text").integer(1, 1);
  }
  std::int64_t integer_or(std::initializer_list<const char*> keys, std::int64_t otherwise) {
    const auto v = find(keys);
    return v ? v->integer(0, kLargestCount) : otherwise;
  }
  bool flag_or(const char* key, bool otherwise) {
    const auto v = find(key);
    return v ? v->boolean() : otherwise;
  }
  /// Notes a feature of the model that a workload cannot say.
  void approximate(const std::string& what) { approximated_.push_back(what); }
  [[nodiscard]] const std::vector<std::string>& approximated() const { return approximated_; }
  /// Notes the keys that nothing has read and that may change what a step costs.
  void name_unread();
  [[nodiscard]] const Value& value() const { return v_; }

 private:
  const Value& v_;
  std::set<std::string> seen_;
  std::vector<std::string> approximated_;
};

/// Layers of a model by its file: which have a window, a state or a convolution instead of
/// attention, which have experts. Reads the sizes of these mixers into `w`, which has `layers`,
/// `hidden` and what `read_experts` read. Errors: InputError where a workload cannot say a layer.
std::vector<FileLayer> layers_of(ConfigReader& r, Json& w, const ModelClass& c);
/// `workload.sparse` of a file.
Json indexer_of(ConfigReader& r);

}  // namespace stepcast::interop
