#pragma once
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "core/input/input.h"

namespace stepcast::traces::internal {

/// Plain data out of a file that Python's pickle wrote, protocols 2 to 5: None, truth values, whole
/// and other numbers, texts, bytes, lists, tuples, sets and dictionaries. Instructions that name a
/// class or call something are refused: reading runs no code.
class Pickle {
 public:
  enum class Kind : std::uint8_t { kNone, kBool, kInt, kFloat, kText, kList, kDict, kMark };
  using Id = std::uint32_t;

  /// `bytes` must outlive this.
  /// Errors: InputError naming file and byte for anything else, and what is cut or damaged.
  Pickle(const Input& input, std::string_view bytes);

  [[nodiscard]] Id root() const { return root_; }
  [[nodiscard]] Kind kind(Id id) const { return nodes_[id].kind; }
  [[nodiscard]] std::string_view text(Id id) const;
  [[nodiscard]] std::int64_t whole(Id id, std::int64_t otherwise) const;
  /// Items of a list, a tuple or a set; keys and values in turn of a dictionary; else none.
  [[nodiscard]] const std::vector<Id>& items(Id id) const;
  /// The value of a key that is a text; None where there is none.
  [[nodiscard]] Id member(Id dict, std::string_view key) const;

 private:
  struct Node {
    Kind kind = Kind::kNone;
    std::int64_t value = 0;  ///< a number; place of a text; index into `lists_`
    std::uint32_t size = 0;  ///< of a text
  };
  class Machine;
  static constexpr Id kNothing = 0;

  std::string_view bytes_;
  std::vector<Node> nodes_;  ///< the first is None
  std::vector<std::vector<Id>> lists_;
  Id root_ = kNothing;
};

}  // namespace stepcast::traces::internal
