#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/config/lookups/id_sink.h"
#include "core/input/input.h"

namespace stepcast::config {

constexpr std::int64_t kMostElements = std::int64_t{1} << 50;  ///< of an array

/// How one element is stored, always little-endian; `bytes` 0: not as an integer.
struct ElementType {
  int bytes = 0;
  bool has_sign = true;
  std::string name;  ///< as the file spells it
};

/// An array in a file: whole, in C order, from byte `offset` of its member.
struct Array {
  std::string name;    ///< empty where it has none
  std::string member;  ///< of a zip archive; empty: the file itself
  ElementType type;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;
  [[nodiscard]] std::int64_t size() const;  ///< elements
};

/// The arrays of a .npy file, of a .npz archive, or the tensors that torch.save wrote.
struct ArrayFile {
  std::filesystem::path file;
  std::vector<Array> arrays;
  [[nodiscard]] const Array* find(std::string_view name) const;
  [[nodiscard]] std::string names() const;  ///< for messages
};

/// Told by the first bytes.
bool is_npy(Input& input);

/// Reads what describes the arrays, not their elements. Errors: InputError naming file and array.
ArrayFile arrays_of_npy(const std::filesystem::path& file);
ArrayFile arrays_of_zip(const std::filesystem::path& file);

/// Elements first, first + step, ... (`count` of them) of an array, in order.
/// Errors: InputError where they are no integers or the file ends before them.
struct Elements {
  std::int64_t first = 0, count = 0, step = 1;
};
void stream_elements(const ArrayFile& file, const Array& array, Elements which, IdSink& to);

/// Header that precedes the elements of a .npy file or member; consumes it.
Array npy_header(Input& input);
/// The tensors that a pickle of torch.save names, in its order: of a tensor, or a tuple, list or
/// dictionary of tensors. Everything else is rejected by name, nothing is executed. A tuple or list
/// of two or three is (indices, offsets, lengths), as FBGEMM and dlrm_datasets have it.
/// `folder` is that of the pickle's member. Errors: InputError with `label`.
std::vector<Array> tensors_of_pickle(std::string_view pickle, const std::string& folder,
                                     const std::string& label);

/// Little-endian int64, one after the other. Errors: InputError where the file holds a part of one,
/// or looks like int32.
void stream_raw_ids(Input& input, IdSink& to);

}  // namespace stepcast::config
