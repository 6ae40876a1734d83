#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "core/config/lookups/arrays.h"
#include "core/error.h"

// The part of Python's pickle format (protocol 2, docs.python.org/3/library/pickletools.html) that
// torch.save writes for tensors and collections of them (torch/_utils.py, torch/serialization.py).
// Objects are described, never built: only the names below mean anything.
namespace stepcast::config {
namespace {

constexpr std::size_t kMostObjects = 1U << 20;

struct Object;
using Ref = const Object*;

struct Object {
  enum class Kind {
    kNone,
    kNumber,
    kText,
    kTuple,
    kList,
    kDict,
    kGlobal,
    kStorage,
    kTensor,
    kMark
  };
  Kind kind = Kind::kNone;
  std::int64_t number = 0;
  std::string text;        // a text, a global's name, a storage's key
  std::vector<Ref> items;  // of a dictionary: key, value, key, value
  ElementType type;        // storage, tensor
  std::vector<std::int64_t> shape;
};
using Kind = Object::Kind;

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return "None";
    case Kind::kNumber:
      return "a number";
    case Kind::kText:
      return "a text";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kList:
      return "a list";
    case Kind::kDict:
      return "a dictionary";
    case Kind::kGlobal:
      return "a class";
    case Kind::kStorage:
      return "a storage";
    case Kind::kTensor:
      return "a tensor";
    case Kind::kMark:
      break;
  }
  return "nothing";
}

/// "torch LongStorage" -> int64; a storage that holds no integers has no bytes.
std::optional<ElementType> storage_type(const std::string& global) {
  static const std::map<std::string, ElementType> types{
      {"torch LongStorage", {8, true, "int64"}},
      {"torch IntStorage", {4, true, "int32"}},
      {"torch ShortStorage", {2, true, "int16"}},
      {"torch CharStorage", {1, true, "int8"}},
      {"torch ByteStorage", {1, false, "uint8"}},
      {"torch FloatStorage", {0, true, "float32"}},
      {"torch DoubleStorage", {0, true, "float64"}},
      {"torch HalfStorage", {0, true, "float16"}},
      {"torch BFloat16Storage", {0, true, "bfloat16"}},
      {"torch BoolStorage", {0, true, "bool"}}};
  const auto it = types.find(global);
  return it == types.end() ? std::nullopt : std::optional(it->second);
}

/// Runs the instructions of a pickle; what it reads lives as long as it does.
class Unpickler {
 public:
  Unpickler(std::string_view bytes, const std::string& label) : bytes_(bytes), label_(label) {}

  Ref read() {
    while (true) {
      const auto op = static_cast<unsigned char>(take(1)[0]);
      if (op == '.') {
        return pop();
      }
      step(op);
      if (++steps_ > 8 * kMostObjects || stack_.size() > kMostObjects) {
        reject("describes more objects than any file of ids");
      }
    }
  }

 private:
  [[noreturn]] void reject(std::string_view what) const { throw InputError(label_, what); }

  /// By "module class", or in words.
  [[noreturn]] void reject_object(std::string name) const {
    if (std::count(name.begin(), name.end(), ' ') == 1) {
      name[name.find(' ')] = '.';
    }
    reject(
        fmt::format("holds {}, expected tensors, or a tuple, list or dictionary of them; nothing "
                    "else is read: torch.save((indices, offsets, lengths), FILE)",
                    name.substr(0, 80)));
  }

  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - at_) {
      reject("the pickle ends early; the file is cut or damaged");
    }
    at_ += static_cast<std::size_t>(size);
    return bytes_.substr(at_ - static_cast<std::size_t>(size), static_cast<std::size_t>(size));
  }
  std::int64_t number(int size, bool has_sign) {
    std::uint64_t v = 0;
    const std::string_view b = take(static_cast<std::uint64_t>(size));
    for (int i = size; i-- > 0;) {
      v = v << 8U | static_cast<unsigned char>(b[static_cast<std::size_t>(i)]);
    }
    const int unused = 64 - 8 * size;
    return has_sign && size > 0 ? static_cast<std::int64_t>(v << unused) >> unused
                                : static_cast<std::int64_t>(v);
  }
  std::string line() {
    const std::size_t end = std::min(bytes_.find('\n', at_), bytes_.size());
    std::string text(take(end - at_));
    (void)take(1);
    return text;
  }

  Object& top() {
    if (stack_.empty()) {
      reject("the pickle is damaged: it uses an object that is not there");
    }
    return *stack_.back();
  }
  Ref pop() {
    const Ref last = &top();
    stack_.pop_back();
    return last;
  }
  Object& push(Kind kind) {
    stack_.push_back(&objects_.emplace_back());
    stack_.back()->kind = kind;
    return *stack_.back();
  }
  void push_number(std::int64_t value) { push(Kind::kNumber).number = value; }
  /// Pops the values above the last mark.
  std::vector<Ref> pop_to_mark() {
    const auto mark = std::find_if(stack_.rbegin(), stack_.rend(),
                                   [](const Object* o) { return o->kind == Kind::kMark; });
    if (mark == stack_.rend()) {
      reject("the pickle is damaged: a mark is missing");
    }
    std::vector<Ref> items(mark.base(), stack_.end());
    stack_.erase(mark.base() - 1, stack_.end());
    return items;
  }
  void push_tuple(std::vector<Ref> items) { push(Kind::kTuple).items = std::move(items); }
  void push_tuple(int size) {
    std::vector<Ref> items;
    for (int i = 0; i < size; ++i) {
      items.insert(items.begin(), pop());
    }
    push_tuple(std::move(items));
  }
  void extend(const std::vector<Ref>& items, Kind expected) {
    Object& into = top();
    if (into.kind != expected) {
      reject(fmt::format("found {} where {} is filled", name_of(into.kind), name_of(expected)));
    }
    into.items.insert(into.items.end(), items.begin(), items.end());
  }
  void remember(std::int64_t key) {
    (void)top();
    memo_[key] = stack_.back();
  }
  void recall(std::int64_t key) {
    const auto it = memo_.find(key);
    if (it == memo_.end()) {
      reject("the pickle is damaged: it refers to an object that is not there");
    }
    stack_.push_back(it->second);
  }

  void step(unsigned char op);
  void persistent();
  void call();
  void rebuild_tensor(const Object& arguments);

  std::string_view bytes_;
  const std::string& label_;
  std::size_t at_ = 0, steps_ = 0;
  std::deque<Object> objects_;  ///< all of them: a list may hold itself
  std::vector<Object*> stack_;
  std::map<std::int64_t, Object*> memo_;
};

void Unpickler::step(unsigned char op) {
  switch (op) {
    case 0x80:  // PROTO
      if (const auto version = number(1, false); version != 2) {
        reject(fmt::format("a pickle of protocol {}, expected 2: save with torch.save as it is",
                           version));
      }
      return;
    case 'c': {  // GLOBAL
      const std::string module = line();
      push(Kind::kGlobal).text = module + " " + line();
      return;
    }
    case 'q':
      return remember(number(1, false));
    case 'r':
      return remember(number(4, false));
    case 'h':
      return recall(number(1, false));
    case 'j':
      return recall(number(4, false));
    case 'Q':
      return persistent();
    case 'R':
      return call();
    case '(':
      push(Kind::kMark);
      return;
    case 't':
      return push_tuple(pop_to_mark());
    case ')':
      return push_tuple(0);
    case 0x85:
    case 0x86:
    case 0x87:
      return push_tuple(op - 0x84);
    case ']':
      push(Kind::kList);
      return;
    case '}':
      push(Kind::kDict);
      return;
    case 'a':
      return extend({pop()}, Kind::kList);
    case 'e':
      return extend(pop_to_mark(), Kind::kList);
    case 's': {
      const Ref value = pop();
      const Ref key = pop();
      return extend({key, value}, Kind::kDict);
    }
    case 'u': {
      const std::vector<Ref> items = pop_to_mark();
      if (items.size() % 2 != 0) {
        reject("the pickle is damaged: a dictionary has a key without a value");
      }
      return extend(items, Kind::kDict);
    }
    case 'X':  // BINUNICODE
      push(Kind::kText).text = take(static_cast<std::uint64_t>(number(4, false)));
      return;
    case 'J':
      return push_number(number(4, true));
    case 'K':
      return push_number(number(1, false));
    case 'M':
      return push_number(number(2, false));
    case 0x8a: {  // LONG1
      const auto size = number(1, false);
      if (size > 8) {
        reject("holds a number of more than 64 bits, which no size of a tensor has");
      }
      return push_number(number(static_cast<int>(size), true));
    }
    case 0x88:
    case 0x89:
      return push_number(op == 0x88 ? 1 : 0);
    case 'N':
      push(Kind::kNone);
      return;
    case 0x81:  // NEWOBJ: class, arguments
      (void)pop();
      reject_object(pop()->text);
    case 'b':  // BUILD: sets attributes
      reject_object("an object with attributes, such as the state_dict of a model");
    default:
      reject(
          fmt::format("found opcode 0x{:02x} of pickle, which tensors and tuples, lists and "
                      "dictionaries of them do not need; save only these: torch.save((indices, "
                      "offsets, lengths), FILE)",
                      op));
  }
}

/// ('storage', class, key, device, elements)
void Unpickler::persistent() {
  const Ref id = pop();
  const auto is = [&](std::size_t i, Kind kind) {
    return id->items.size() > i && id->items[i]->kind == kind;
  };
  if (id->kind != Kind::kTuple || !is(0, Kind::kText) || id->items[0]->text != "storage" ||
      !is(1, Kind::kGlobal) || !is(2, Kind::kText) || !is(4, Kind::kNumber)) {
    reject("refers to something that is no storage of a tensor; save only tensors");
  }
  const auto type = storage_type(id->items[1]->text);
  if (!type) {
    reject(
        fmt::format("holds a {}, expected tensors of integers", id->items[1]->text.substr(0, 80)));
  }
  Object& storage = push(Kind::kStorage);
  storage.text = id->items[2]->text;
  storage.type = *type;
  storage.number = id->items[4]->number;
}

void Unpickler::call() {
  const Ref arguments = pop();
  const Ref function = pop();
  if (function->kind != Kind::kGlobal || arguments->kind != Kind::kTuple) {
    reject("the pickle is damaged: a call without a function");
  }
  if (function->text == "torch._utils _rebuild_tensor_v2") {
    return rebuild_tensor(*arguments);
  }
  if (function->text == "collections OrderedDict" && arguments->items.empty()) {
    push(Kind::kDict);
    return;
  }
  reject_object(function->text);
}

/// (storage, offset, size, stride, requires_grad, hooks)
void Unpickler::rebuild_tensor(const Object& arguments) {
  const std::vector<Ref>& a = arguments.items;
  if (a.size() < 4 || a[0]->kind != Kind::kStorage || a[1]->kind != Kind::kNumber ||
      a[2]->kind != Kind::kTuple || a[3]->kind != Kind::kTuple ||
      a[2]->items.size() != a[3]->items.size() || a[2]->items.size() > 8) {
    reject("the pickle is damaged: a tensor without storage, size or stride");
  }
  Object& tensor = push(Kind::kTensor);
  tensor.text = a[0]->text;
  tensor.type = a[0]->type;
  tensor.number = a[1]->number;
  std::int64_t elements = 1;
  for (std::size_t i = a[2]->items.size(); i-- > 0;) {
    const Object& size = *a[2]->items[i];
    const Object& stride = *a[3]->items[i];
    if (size.kind != Kind::kNumber || stride.kind != Kind::kNumber || size.number < 0 ||
        (size.number > 0 && elements > kMostElements / size.number)) {
      reject("the pickle is damaged: a tensor of impossible size");
    }
    if (size.number > 1 && stride.number != elements) {
      reject("holds a tensor whose elements do not follow one another; save tensor.contiguous()");
    }
    elements *= std::max<std::int64_t>(size.number, 1);
    tensor.shape.insert(tensor.shape.begin(), size.number);
  }
  if (tensor.number < 0 || a[0]->number < 0 || tensor.number > kMostElements ||
      tensor.number + elements > std::max<std::int64_t>(a[0]->number, tensor.number + 1)) {
    reject("the pickle is damaged: a tensor reaches beyond its storage");
  }
}

}  // namespace

std::vector<Array> tensors_of_pickle(std::string_view pickle, const std::string& folder,
                                     const std::string& label) {
  Unpickler unpickler(pickle, label);
  const Ref root = unpickler.read();
  std::vector<Array> arrays;
  const auto add = [&](Ref o, const std::string& name) {
    if (o->kind != Kind::kTensor) {
      throw InputError(label, fmt::format("{} is {}, expected a tensor", name, name_of(o->kind)));
    }
    arrays.push_back(
        {name, folder + "data/" + o->text, o->type, o->shape,
         static_cast<std::uint64_t>(o->number) * static_cast<std::uint64_t>(o->type.bytes)});
  };
  switch (root->kind) {
    case Kind::kTensor:
      add(root, "");
      break;
    case Kind::kTuple:
    case Kind::kList:
      for (std::size_t i = 0; i < root->items.size(); ++i) {
        static const std::vector<std::string> fbgemm{"indices", "offsets", "lengths"};
        const bool jagged = root->items.size() == 2 || root->items.size() == 3;
        add(root->items[i], jagged ? fbgemm[i] : std::to_string(i));
      }
      break;
    case Kind::kDict:
      for (std::size_t i = 0; i + 1 < root->items.size(); i += 2) {
        const Object& key = *root->items[i];
        if (key.kind != Kind::kText && key.kind != Kind::kNumber) {
          throw InputError(label, fmt::format("a key of the dictionary is {}, expected a name",
                                              name_of(key.kind)));
        }
        add(root->items[i + 1], key.kind == Kind::kText ? key.text : std::to_string(key.number));
      }
      break;
    default:
      throw InputError(label, fmt::format("holds {}, expected a tensor, or a tuple, list or "
                                          "dictionary of tensors",
                                          name_of(root->kind)));
  }
  return arrays;
}

}  // namespace stepcast::config
