#include <algorithm>
#include <map>

#include "core/config/lookups/arrays.h"
#include "core/error.h"
#include "core/input/pickle.h"

// Tensors and collections of them as torch.save writes them (torch/_utils.py,
// torch/serialization.py): only the names below mean anything.
namespace stepcast::config {
namespace {

using Id = Pickle::Id;
using Kind = Pickle::Kind;

/// "torch LongStorage" -> int64; a storage that holds no integers has no bytes.
const ElementType* storage_type(std::string_view global) {
  static const std::map<std::string_view, ElementType> types{
      {"torch\nLongStorage", {8, true, "int64"}},
      {"torch\nIntStorage", {4, true, "int32"}},
      {"torch\nShortStorage", {2, true, "int16"}},
      {"torch\nCharStorage", {1, true, "int8"}},
      {"torch\nByteStorage", {1, false, "uint8"}},
      {"torch\nFloatStorage", {0, true, "float32"}},
      {"torch\nDoubleStorage", {0, true, "float64"}},
      {"torch\nHalfStorage", {0, true, "float16"}},
      {"torch\nBFloat16Storage", {0, true, "bfloat16"}},
      {"torch\nBoolStorage", {0, true, "bool"}}};
  const auto it = types.find(global);
  return it == types.end() ? nullptr : &it->second;
}

class TensorReader {
 public:
  TensorReader(const Pickle& data, const std::string& folder, const std::string& label)
      : data_(data), folder_(folder), label_(label) {}

  std::vector<Array> read() {
    const Id root = data_.root();
    const std::vector<Id>& items = data_.items(root);
    switch (data_.kind(root)) {
      case Kind::kTuple:
      case Kind::kList:
        for (std::size_t i = 0; i < items.size(); ++i) {
          static const std::vector<std::string> fbgemm{"indices", "offsets", "lengths"};
          const bool jagged = items.size() == 2 || items.size() == 3;
          add(items[i], jagged ? fbgemm[i] : std::to_string(i));
        }
        break;
      case Kind::kDict:
        for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
          if (data_.kind(items[i]) != Kind::kText && data_.kind(items[i]) != Kind::kInt) {
            reject(fmt::format("a key of the dictionary is {}, expected a name", name(items[i])));
          }
          add(items[i + 1], data_.kind(items[i]) == Kind::kText
                                ? std::string(data_.text(items[i]))
                                : std::to_string(data_.whole(items[i], 0)));
        }
        break;
      default:
        add(root, "");
    }
    return std::move(arrays_);
  }

 private:
  [[noreturn]] void reject(std::string_view what) const { throw InputError(label_, what); }

  /// Name of what is found in place of a tensor.
  [[nodiscard]] std::string name(Id id) const {
    switch (data_.kind(id)) {
      case Kind::kNone:
        return "None";
      case Kind::kText:
        return "a text";
      case Kind::kTuple:
        return "a tuple";
      case Kind::kList:
        return "a list";
      case Kind::kDict:
        return "a dictionary";
      case Kind::kGlobal: {
        std::string text(data_.text(id).substr(0, 80));
        std::replace(text.begin(), text.end(), '\n', '.');
        return text;
      }
      case Kind::kCall:
        return name(data_.items(id)[0]);
      case Kind::kBuilt:
        return data_.kind(data_.items(id)[0]) == Kind::kCall
                   ? name(data_.items(id)[0])
                   : "an object with attributes, such as the state_dict of a model";
      case Kind::kOutside:
        return "a storage";
      default:
        return "a number";
    }
  }
  [[nodiscard]] const std::vector<Id>& tuple(Id id) const {
    static const std::vector<Id> kNone;
    return data_.kind(id) == Kind::kTuple ? data_.items(id) : kNone;
  }

  /// A call of _rebuild_tensor_v2 with (storage, offset, size, stride, requires_grad, hooks); the
  /// storage is ('storage', class, key, device, elements).
  void add(Id id, const std::string& called) {
    const std::vector<Id>& call = data_.items(id);
    if (data_.kind(id) != Kind::kCall ||
        data_.text(call[0]) != "torch._utils\n_rebuild_tensor_v2") {
      const bool plain = data_.kind(id) <= Kind::kDict || data_.kind(id) == Kind::kOutside;
      if (plain && !called.empty()) {
        reject(fmt::format("{} is {}, expected a tensor", called, name(id)));
      }
      reject(
          fmt::format("holds {}, expected tensors, or a tuple, list or dictionary of them; "
                      "nothing else is read: torch.save((indices, offsets, lengths), FILE)",
                      name(id)));
    }
    const std::vector<Id>& a = tuple(call[1]);
    if (a.size() < 4 || data_.kind(a[0]) != Kind::kOutside || data_.whole(a[1], -1) < 0 ||
        tuple(a[2]).size() != tuple(a[3]).size() || tuple(a[2]).size() > 8) {
      reject("the pickle is damaged: a tensor without storage, size or stride");
    }
    const std::vector<Id>& storage = tuple(data_.items(a[0])[0]);
    if (storage.size() < 5 || data_.text(storage[0]) != "storage") {
      reject("refers to something that is no storage of a tensor; save only tensors");
    }
    const ElementType* type = storage_type(data_.text(storage[1]));
    if (type == nullptr) {
      reject(fmt::format("holds a {}, expected tensors of integers", name(storage[1])));
    }
    Array array{called, folder_ + "data/" + std::string(data_.text(storage[2])), *type, {}, 0};
    std::int64_t elements = 1;
    for (std::size_t i = tuple(a[2]).size(); i-- > 0;) {
      const std::int64_t size = data_.whole(tuple(a[2])[i], -1);
      if (size < 0 || (size > 0 && elements > kMostElements / size)) {
        reject("the pickle is damaged: a tensor of impossible size");
      }
      if (size > 1 && data_.whole(tuple(a[3])[i], -1) != elements) {
        reject("holds a tensor whose elements do not follow one another; save tensor.contiguous()");
      }
      elements *= std::max<std::int64_t>(size, 1);
      array.shape.insert(array.shape.begin(), size);
    }
    const std::int64_t offset = data_.whole(a[1], -1);
    if (offset > kMostElements ||
        offset + elements > std::max(data_.whole(storage[4], -1), offset + 1)) {
      reject("the pickle is damaged: a tensor reaches beyond its storage");
    }
    array.offset = static_cast<std::uint64_t>(offset) * static_cast<std::uint64_t>(type->bytes);
    arrays_.push_back(std::move(array));
  }

  const Pickle& data_;
  const std::string& folder_;
  const std::string& label_;
  std::vector<Array> arrays_;
};

}  // namespace

std::vector<Array> tensors_of_pickle(std::string_view pickle, const std::string& folder,
                                     const std::string& label) {
  constexpr std::string_view kProtocol = "\x80\x02";
  if (pickle.starts_with(kProtocol[0]) && !pickle.starts_with(kProtocol)) {
    throw InputError(label, fmt::format("a pickle of protocol {}, expected 2: save with torch.save "
                                        "as it is",
                                        pickle.size() > 1 ? int{pickle[1]} : 0));
  }
  return TensorReader(
             Pickle(label, pickle,
                    "tensors, or a tuple, list or dictionary of them: torch.save((indices, "
                    "offsets, lengths), FILE)",
                    true),
             folder, label)
      .read();
}

}  // namespace stepcast::config
