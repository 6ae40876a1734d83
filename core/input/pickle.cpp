#include "core/input/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "core/error.h"

namespace stepcast {

/// The stack machine that a pickle is a program for.
class Pickle::Machine {
 public:
  Machine(Pickle& to, std::string label, std::string_view expected, bool calls)
      : to_(to), label_(std::move(label)), expected_(expected), calls_(calls), bytes_(to.bytes_) {}

  void run() {
    while (step(byte())) {
    }
    to_.root_ = top();
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(fmt::format("{}: byte {}", label_, at_), what);
  }

  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - at_) {
      fail("the file ends inside a value; was it cut?");
    }
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  unsigned char byte() { return static_cast<unsigned char>(take(1).front()); }
  /// Little-endian.
  std::uint64_t number(std::size_t size) {
    std::uint64_t value = 0;
    const std::string_view from = take(size);
    for (std::size_t i = 0; i < std::min<std::size_t>(size, 8); ++i) {
      value |= std::uint64_t{static_cast<unsigned char>(from[i])} << (8 * i);
    }
    return value;
  }

  Id make(Kind kind, std::int64_t value = 0, std::size_t size = 0) {
    if (to_.nodes_.size() >= UINT32_MAX || size > UINT32_MAX) {
      fail("holds more than any file of its kind");
    }
    to_.nodes_.push_back({kind, value, static_cast<std::uint32_t>(size)});
    return static_cast<Id>(to_.nodes_.size() - 1);
  }
  void push(Id id) { stack_.push_back(id); }
  Id top() const {
    if (stack_.empty()) {
      fail("takes a value that is not there; was the file edited?");
    }
    return stack_.back();
  }
  Id pop() {
    const Id id = top();
    stack_.pop_back();
    return id;
  }
  /// Values pushed since the last mark, which goes too.
  std::vector<Id> since_mark() {
    auto first = stack_.end();
    while (first != stack_.begin() && to_.nodes_[*(first - 1)].kind != Kind::kMark) {
      --first;
    }
    if (first == stack_.begin()) {
      fail("takes values to a mark that is not there; was the file edited?");
    }
    std::vector<Id> items(first, stack_.end());
    stack_.erase(first - 1, stack_.end());
    return items;
  }
  std::vector<Id> last(std::size_t count) {
    std::vector<Id> items(count);
    for (std::size_t i = count; i-- > 0;) {
      items[i] = pop();
    }
    return items;
  }
  void push_list(Kind kind, std::vector<Id> items) {
    push(make(kind, static_cast<std::int64_t>(to_.lists_.size())));
    to_.lists_.push_back(std::move(items));
  }
  void extend(Kind kind, const std::vector<Id>& items) {
    const Node& node = to_.nodes_[top()];
    if (node.kind != kind || (kind == Kind::kDict && items.size() % 2 != 0)) {
      fail("adds to a value that is no list or dictionary; was the file edited?");
    }
    auto& list = to_.lists_[static_cast<std::size_t>(node.value)];
    list.insert(list.end(), items.begin(), items.end());
  }
  void push_text(std::uint64_t size) {
    const std::string_view text = take(size);
    push(make(Kind::kText, text.data() - bytes_.data(), text.size()));
  }
  void recall(std::uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) {
      fail("recalls a value that is not there; was the file edited?");
    }
    push(found->second);
  }
  /// Module and name, a line each.
  void push_global() {
    const auto line_end = [this](std::size_t from) {
      return from < bytes_.size() ? std::min(bytes_.find('\n', from), bytes_.size())
                                  : bytes_.size();
    };
    push_text(line_end(line_end(at_) + 1) - at_);
    to_.nodes_.back().kind = Kind::kGlobal;
    take(1);
  }
  /// An OrderedDict is a dictionary.
  void push_call() {
    const auto function = to_.text(stack_.size() < 2 ? kNothing : stack_.end()[-2]);
    if (function == "collections\nOrderedDict" && to_.items(top()).empty()) {
      last(2);
      return push_list(Kind::kDict, {});
    }
    push_list(Kind::kCall, last(2));
  }
  [[noreturn]] void refuse(unsigned char code) const {
    fail(
        fmt::format("instruction 0x{:02x} is none of plain data: it would name or call code; "
                    "expected {}",
                    code, expected_));
  }
  /// Two's complement of any length; what does not fit becomes the largest.
  std::int64_t long_number(std::uint64_t size) {
    if (size > 8) {
      take(size);
      return INT64_MAX;
    }
    std::uint64_t value = number(size);
    if (size > 0 && size < 8 && (value >> (8 * size - 1)) != 0) {
      value |= ~std::uint64_t{0} << (8 * size);
    }
    return static_cast<std::int64_t>(value);
  }

  // clang-format off
  /// One instruction, by its letter in Python's pickletools; false at the end.
  bool step(unsigned char code) {
    switch (code) {
      case 0x80: take(1); return true;                                         // PROTO
      case 0x95: take(8); return true;                                         // FRAME
      case '.': return false;                                                  // STOP
      case '(': push(make(Kind::kMark)); return true;                          // MARK
      case '0': pop(); return true;                                            // POP
      case '1': since_mark(); return true;                                     // POP_MARK
      case '2': push(top()); return true;                                      // DUP
      case 'N': push(kNothing); return true;                                   // NONE
      case 0x88: push(make(Kind::kBool, 1)); return true;                      // NEWTRUE
      case 0x89: push(make(Kind::kBool, 0)); return true;                      // NEWFALSE
      case 'K': push(make(Kind::kInt, byte())); return true;                   // BININT1
      case 'M': push(make(Kind::kInt, static_cast<std::int64_t>(number(2)))); return true;
      case 'J': push(make(Kind::kInt, static_cast<std::int32_t>(number(4)))); return true;
      case 0x8a: push(make(Kind::kInt, long_number(byte()))); return true;     // LONG1
      case 0x8b: push(make(Kind::kInt, long_number(number(4)))); return true;  // LONG4
      case 'G': take(8); push(make(Kind::kFloat)); return true;                // BINFLOAT
      case 0x8c: case 'C': push_text(byte()); return true;                     // SHORT_BINUNICODE
      case 'X': case 'B': push_text(number(4)); return true;                   // BINUNICODE
      case 0x8d: case 0x8e: push_text(number(8)); return true;                 // BINUNICODE8
      case ']': case 0x8f: push_list(Kind::kList, {}); return true;            // EMPTY_LIST
      case ')': push_list(Kind::kTuple, {}); return true;                      // EMPTY_TUPLE
      case '}': push_list(Kind::kDict, {}); return true;                       // EMPTY_DICT
      case 't': case 0x91: push_list(Kind::kTuple, since_mark()); return true; // TUPLE
      case 0x85: case 0x86: case 0x87:                                         // TUPLE1 to TUPLE3
        push_list(Kind::kTuple, last(static_cast<std::size_t>(code) - 0x84)); return true;
      case 'a': extend(Kind::kList, last(1)); return true;                     // APPEND
      case 'e': case 0x90: extend(Kind::kList, since_mark()); return true;     // APPENDS
      case 's': extend(Kind::kDict, last(2)); return true;                     // SETITEM
      case 'u': extend(Kind::kDict, since_mark()); return true;                // SETITEMS
      case 'q': memo_[byte()] = top(); return true;                            // BINPUT
      case 'r': memo_[number(4)] = top(); return true;                         // LONG_BINPUT
      case 0x94: memo_[memo_.size()] = top(); return true;                     // MEMOIZE
      case 'h': recall(byte()); return true;                                   // BINGET
      case 'j': recall(number(4)); return true;                                // LONG_BINGET
      default: break;
    }
    if (!calls_) {
      refuse(code);
    }
    switch (code) {
      case 'c': push_global(); return true;                                    // GLOBAL
      case 'R': case 0x81: push_call(); return true;                           // REDUCE, NEWOBJ
      case 'b': push_list(Kind::kBuilt, last(2)); return true;                 // BUILD
      case 'Q': push_list(Kind::kOutside, last(1)); return true;               // BINPERSID
      default: refuse(code);
    }
  }
  // clang-format on

  Pickle& to_;
  const std::string label_;
  const std::string_view expected_;
  const bool calls_;
  std::string_view bytes_;
  std::size_t at_ = 0;
  std::vector<Id> stack_;
  std::unordered_map<std::uint64_t, Id> memo_;
};

Pickle::Pickle(std::string label, std::string_view bytes, std::string_view expected, bool calls)
    : bytes_(bytes), nodes_(1) {
  Machine(*this, std::move(label), expected, calls).run();
}

std::string_view Pickle::text(Id id) const {
  const Node& n = nodes_[id];
  return n.kind == Kind::kText || n.kind == Kind::kGlobal
             ? bytes_.substr(static_cast<std::size_t>(n.value), n.size)
             : std::string_view{};
}

std::int64_t Pickle::whole(Id id, std::int64_t otherwise) const {
  return nodes_[id].kind == Kind::kInt ? nodes_[id].value : otherwise;
}

const std::vector<Pickle::Id>& Pickle::items(Id id) const {
  static const std::vector<Id> kNone;
  const Node& n = nodes_[id];
  return n.kind >= Kind::kTuple && n.kind != Kind::kGlobal && n.kind != Kind::kMark
             ? lists_[static_cast<std::size_t>(n.value)]
             : kNone;
}

Pickle::Id Pickle::member(Id dict, std::string_view key) const {
  if (nodes_[dict].kind == Kind::kDict) {
    const std::vector<Id>& all = items(dict);
    for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
      if (text(all[i]) == key) {
        return all[i + 1];
      }
    }
  }
  return kNothing;
}

}  // namespace stepcast
