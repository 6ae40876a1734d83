#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stepcast {

/// Data out of a file that Python's pickle wrote, protocols 2 to 5: None, truth values, whole and
/// other numbers, texts, bytes, lists, tuples, sets and dictionaries. Reading runs no code: what
/// names a class or calls something is refused, or with `calls` described.
class Pickle {
 public:
  enum class Kind : std::uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kTuple,
    kList,
    kDict,
    kGlobal,   ///< a class or function: its text is module, end of line, name
    kCall,     ///< its items: what is called or made, arguments
    kBuilt,    ///< an object whose attributes were set: its items are it and these
    kOutside,  ///< a reference to something outside the pickle: its item says which
    kMark
  };
  using Id = std::uint32_t;

  /// `bytes` must outlive this; `expected` says what they should be. Errors: InputError naming
  /// `label` and the byte for anything else, and what is cut or damaged.
  Pickle(std::string label, std::string_view bytes, std::string_view expected, bool calls = false);

  [[nodiscard]] Id root() const { return root_; }
  [[nodiscard]] Kind kind(Id id) const { return nodes_[id].kind; }
  [[nodiscard]] std::string_view text(Id id) const;
  [[nodiscard]] std::int64_t whole(Id id, std::int64_t otherwise) const;
  /// Items of a list, a tuple or a set; keys and values in turn of a dictionary; those of calls; of
  /// others none.
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

}  // namespace stepcast
