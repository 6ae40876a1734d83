#include "core/config/lookups/chosen_lookups.h"

#include "core/config/document.h"
#include "core/config/lookups/id_sink.h"
#include "core/config/lookups/text_ids.h"
#include "core/error.h"
#include "core/input/archive.h"
#include "core/input/input.h"

namespace stepcast::config {

std::string label_of(const LookupName& name) {
  std::string label = name.file.string();
  for (const std::string& part : name.parts) {
    label += ":" + part;
  }
  return label;
}

std::filesystem::path offsets_file(const LookupName& name) {
  std::filesystem::path offsets = name.file;
  return offsets += ".offsets";
}
bool has_offsets_file(const LookupName& name) {
  std::error_code error;
  return std::filesystem::exists(offsets_file(name), error);
}

std::vector<std::int64_t> elements(const ArrayFile& file, const Array& array, Elements which) {
  std::vector<std::int64_t> all;
  const TakeIds take = [&](std::span<const std::int64_t> some) {
    all.insert(all.end(), some.begin(), some.end());
  };
  IdSink to(label_of({file.file, {array.name}}), take);
  stream_elements(file, array, which, to);
  to.flush();
  return all;
}

namespace {

std::int64_t sum(const ArrayFile& file, const Array& array, Elements which) {
  std::int64_t total = 0;
  const TakeIds take = [&](std::span<const std::int64_t> some) {
    for (const std::int64_t v : some) {
      if (v > (std::int64_t{1} << 50) - total) {
        throw InputError(label_of({file.file, {array.name}}),
                         "sums to more ids than any file holds; expected lengths of bags");
      }
      total += v;
    }
  };
  IdSink to(label_of({file.file, {array.name}}), take);
  stream_elements(file, array, which, to);
  to.flush();
  return total;
}

/// The table that is meant, of `tables` (0: the file does not say how many).
TableOf table_meant(const LookupName& name, std::int64_t tables) {
  const std::string file = name.file.string();
  if (name.parts.empty()) {
    if (tables > 1) {
      throw InputError(file, fmt::format("holds the lookups of {} tables: say which, {}:0 to {}:{}",
                                         tables, file, file, tables - 1));
    }
    return {0, 1};
  }
  const std::string& part = name.parts.front();
  const auto number = part_number(part);
  if (tables > 0 && number && *number < tables) {
    return {*number, tables};
  }
  const auto several = table_of_several(part);
  if (several && (tables == 0 || tables == several->tables)) {
    return *several;
  }
  throw InputError(file, tables > 0
                             ? fmt::format("has no table \"{}\"; expected a number from 0 to {}",
                                           part.substr(0, 80), tables - 1)
                             : fmt::format("does not say of how many tables it holds lookups; "
                                           "found \"{}\", expected table and tables, such as "
                                           "{}:3of26 (or \"lengths\" of shape tables x samples in "
                                           "the file)",
                                           part.substr(0, 80), file));
}

/// (indices, offsets, lengths) of one or many tables, as FBGEMM, dlrm_datasets and TorchRec's
/// KeyedJaggedTensor have them: table t's bag b is offsets[t * samples + b].
void choose_jagged(ChosenLookups& c, const Array& ids, const Array* offsets, const Array* lengths) {
  const std::string file = c.name.file.string();
  const bool told = lengths != nullptr && lengths->shape.size() == 2;
  const TableOf t = table_meant(c.name, told ? lengths->shape[0] : 0);
  c.are_lengths = offsets == nullptr;
  c.bounds = c.are_lengths ? lengths : offsets;
  const std::int64_t bags = c.bounds->size() - (c.are_lengths ? 0 : 1);
  if (bags < t.tables || bags % t.tables != 0) {
    throw InputError(file, fmt::format("{} holds {} values, expected a whole number of bags for "
                                       "each of {} tables{}",
                                       c.bounds->name, c.bounds->size(), t.tables,
                                       c.are_lengths ? "" : " and one more value"));
  }
  const std::int64_t samples = bags / t.tables;
  c.bags = {t.table * samples, samples, 1};
  std::int64_t begin = 0;
  std::int64_t end = 0;
  if (c.are_lengths) {
    begin = sum(c.arrays, *c.bounds, {0, t.table * samples, 1});
    end = begin + sum(c.arrays, *c.bounds, c.bags);
  } else {
    begin = elements(c.arrays, *c.bounds, {c.bags.first, 1, 1}).front();
    end = elements(c.arrays, *c.bounds, {c.bags.first + samples, 1, 1}).front();
  }
  if (begin > end || end > ids.size()) {
    throw InputError(file, fmt::format("the bags of table {} take ids {} to {}, but {} holds {}",
                                       t.table, begin, end, ids.name, ids.size()));
  }
  c.ids = &ids;
  c.which = {begin, end - begin, 1};
}

/// One array: its column, its part by FILE.offsets, or all of it.
void choose_array(ChosenLookups& c, const Array& array, std::vector<std::string> parts) {
  c.ids = &array;
  c.which = {0, array.size(), 1};
  const std::string label = label_of(c.name);
  if (array.shape.empty() || array.shape.size() > 2) {
    throw InputError(label, fmt::format("is an array of {} dimensions, expected 1 (ids) or 2 "
                                        "(samples x columns)",
                                        array.shape.size()));
  }
  const std::int64_t columns = array.shape.size() == 2 ? array.shape[1] : 1;
  if (parts.empty()) {
    c.bag_size = array.shape.size() == 2 ? columns : 0;
    return;
  }
  const auto number = part_number(parts.front());
  c.part = table_of_several(parts.front());
  if (parts.size() > 1 || (!number && !c.part)) {
    throw InputError(c.name.file.string(),
                     fmt::format("found \"{}\", expected the number of a column, from 0",
                                 parts.back().substr(0, 80)));
  }
  if (c.part) {
    return;
  }
  if (array.shape.size() != 2 || *number >= columns) {
    throw InputError(label, array.shape.size() != 2
                                ? std::string("has no columns: the array has one dimension")
                                : fmt::format("has no such column, expected 0 to {}", columns - 1));
  }
  c.which = {*number, array.shape[0], columns};
}

void choose_in_arrays(ChosenLookups& c) {
  c.kind = ChosenLookups::Kind::kArray;
  const ArrayFile& f = c.arrays;
  std::vector<std::string> parts = c.name.parts;
  if (const Array* named = parts.empty() ? nullptr : f.find(parts.front())) {
    parts.erase(parts.begin());
    return choose_array(c, *named, parts);
  }
  const Array* ids = f.find("indices") != nullptr ? f.find("indices") : f.find("values");
  const Array* offsets = f.find("offsets");
  const Array* lengths = f.find("lengths");
  if (ids != nullptr && (offsets != nullptr || lengths != nullptr)) {
    return choose_jagged(c, *ids, offsets, lengths);
  }
  if (f.arrays.size() == 1) {
    return choose_array(c, f.arrays.front(), parts);
  }
  const std::string file = c.name.file.string();
  throw InputError(file, parts.empty()
                             ? fmt::format("holds several arrays: say which, such as {}:{} ({})",
                                           file, f.arrays.front().name, f.names())
                             : fmt::format("has no array \"{}\"; it holds {}",
                                           parts.front().substr(0, 80), f.names()));
}

/// Rejects formats of other programs that are not read here, and says how to convert them.
void reject_foreign(Input& input) {
  const std::string_view head = input.peek(32);
  const std::string& file = input.label();
  if (head.starts_with("PAR1") || head.starts_with("ARROW1")) {
    const bool parquet = head.starts_with("PAR1");
    throw InputError(
        file, fmt::format("is a {} file, which is not read; write its column of ids as .npy: "
                          "python3 -c \"import numpy, pandas; numpy.save('ids.npy', "
                          "pandas.read_{}('{}')['COLUMN'].explode().to_numpy('int64'))\"",
                          parquet ? "Parquet" : "Feather", parquet ? "parquet" : "feather", file));
  }
  if (head.starts_with("\x89HDF\r\n")) {
    throw InputError(file,
                     "is an HDF5 file, which is not read; write its array of ids as .npy: "
                     "numpy.save('ids.npy', h5py.File(FILE)['NAME'][:])");
  }
  if (head.starts_with(std::string_view("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.", 15))) {
    throw InputError(file,
                     "was saved by PyTorch before 1.6, whose format is not read; load and "
                     "save it again: torch.save(torch.load(FILE), FILE)");
  }
}

/// Plain ids cover several tables only where FILE.offsets holds the offsets of all of them.
void choose_part(ChosenLookups& c) {
  if (c.name.parts.empty()) {
    return;
  }
  c.part = c.name.parts.size() == 1 ? table_of_several(c.name.parts.front()) : std::nullopt;
  if (!c.part) {
    throw InputError(
        c.name.file.string(),
        fmt::format("holds plain ids; found \"{}\" behind its name, expected table "
                    "and tables, such as :3of26, with their offsets in {}",
                    c.name.parts.front().substr(0, 80), offsets_file(c.name).string()));
  }
}

}  // namespace

ChosenLookups choose_lookups(const std::filesystem::path& name, std::string_view where) {
  ChosenLookups c;
  c.name = lookup_name(name);
  (void)open_file(c.name.file, where);
  Input input = Input::of_file(c.name.file);
  reject_foreign(input);
  if (is_npy(input) || is_zip(input)) {
    c.arrays = is_npy(input) ? arrays_of_npy(c.name.file) : arrays_of_zip(c.name.file);
    choose_in_arrays(c);
    return c;
  }
  constexpr std::size_t kHead = 4096;
  const std::string_view head = input.peek(kHead);
  if (head.empty()) {
    throw InputError(c.name.file.string(),
                     "the file is empty, expected row ids: int64, or one per line");
  }
  if (looks_like_text(head)) {
    c.kind = ChosenLookups::Kind::kText;
    if (c.name.parts.size() > 1) {
      throw InputError(c.name.file.string(), "a text has columns; name one of them");
    }
    const std::string part = c.name.parts.empty() ? "" : c.name.parts.front();
    c.part = has_offsets_file(c.name) ? table_of_several(part) : std::nullopt;
    return c;
  }
  choose_part(c);
  return c;
}

}  // namespace stepcast::config
