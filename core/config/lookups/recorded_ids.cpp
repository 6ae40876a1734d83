#include <algorithm>
#include <optional>

#include "core/config/access_files.h"
#include "core/config/internal/document.h"
#include "core/config/lookups/arrays.h"
#include "core/config/lookups/id_sink.h"
#include "core/config/lookups/lookup_name.h"
#include "core/config/lookups/raw_ids.h"
#include "core/config/lookups/text_ids.h"
#include "core/error.h"
#include "core/input/input.h"

namespace stepcast::config {
namespace {

constexpr std::uint64_t kMostKept = std::uint64_t{1} << 31;  // ids, 16 GB of them

/// The ids of one table, and where its bags begin.
struct Chosen {
  enum class Kind { kRaw, kText, kArray };
  Kind kind = Kind::kRaw;
  LookupName name;
  ArrayFile arrays = {};
  const Array* ids = nullptr;        ///< of kArray
  Elements which = {};               ///< of `ids`
  const Array* bounds = nullptr;     ///< offsets or lengths of bags in the same file
  bool are_lengths = false;          ///< what `bounds` holds
  Elements bags = {};                ///< of `bounds`, without the end of the last
  std::int64_t bag_size = 0;         ///< above 0: of every bag
  std::optional<TableOf> part = {};  ///< of a file whose .offsets hold those of several tables
};

/// "FILE: ids" for messages.
std::string label_of(const LookupName& name) {
  std::string label = name.file.string();
  for (const std::string& part : name.parts) {
    label += ":" + part;
  }
  return label;
}

std::filesystem::path offsets_beside(const LookupName& name) {
  std::filesystem::path beside = name.file;
  return beside += ".offsets";
}
bool has_offsets_beside(const LookupName& name) {
  std::error_code error;
  return std::filesystem::exists(offsets_beside(name), error);
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
void choose_jagged(Chosen& c, const Array& ids, const Array* offsets, const Array* lengths) {
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
void choose_array(Chosen& c, const Array& array, std::vector<std::string> parts) {
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

void choose_in_arrays(Chosen& c) {
  c.kind = Chosen::Kind::kArray;
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

/// What others write that is not read here, and how to convert it.
void refuse_foreign(Input& input) {
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

/// A name without parts may have the offsets of several tables beside it.
void choose_part(Chosen& c) {
  if (c.name.parts.empty()) {
    return;
  }
  c.part = c.name.parts.size() == 1 ? table_of_several(c.name.parts.front()) : std::nullopt;
  if (!c.part) {
    throw InputError(
        c.name.file.string(),
        fmt::format("holds plain ids; found \"{}\" behind its name, expected table "
                    "and tables, such as :3of26, with their offsets in {}",
                    c.name.parts.front().substr(0, 80), offsets_beside(c.name).string()));
  }
}

Chosen choose(const std::filesystem::path& name, std::string_view where) {
  Chosen c;
  c.name = lookup_name(name);
  (void)open_file(c.name.file, where);
  Input input = Input::of_file(c.name.file);
  refuse_foreign(input);
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
    c.kind = Chosen::Kind::kText;
    if (c.name.parts.size() > 1) {
      throw InputError(c.name.file.string(), "a text has columns; name one of them");
    }
    const std::string part = c.name.parts.empty() ? "" : c.name.parts.front();
    c.part = has_offsets_beside(c.name) ? table_of_several(part) : std::nullopt;
    return c;
  }
  choose_part(c);
  return c;
}

/// All ids of the file, or of the array or column that is meant.
void stream_chosen(const Chosen& c, IdSink& to, std::int64_t rows) {
  if (c.kind == Chosen::Kind::kArray) {
    stream_elements(c.arrays, *c.ids, c.which, to);
  } else {
    Input input = Input::of_file(c.name.file);
    if (c.kind == Chosen::Kind::kText) {
      stream_text_ids(input, {c.part || c.name.parts.empty() ? "" : c.name.parts.front(), rows},
                      to);
    } else {
      stream_raw_ids(input, to);
    }
  }
  to.flush();
  if (to.passed() == 0) {
    throw InputError(label_of(c.name), "no ids in it, expected at least one");
  }
}

/// Where the table's bags begin in the file and, last, where the last of them ends.
std::vector<std::int64_t> bounds_beside(const Chosen& c, std::string_view where) {
  std::vector<std::int64_t> bounds;
  const std::filesystem::path beside = offsets_beside(c.name);
  if (!c.part) {
    stream_indices(beside, where, [&](std::span<const std::int64_t> some) {
      bounds.insert(bounds.end(), some.begin(), some.end());
    });
    return bounds;
  }
  std::uint64_t count = 0;  // one pass to count, so that only those of one table are kept
  stream_indices(beside, where, [&](std::span<const std::int64_t> some) { count += some.size(); });
  const auto tables = static_cast<std::uint64_t>(c.part->tables);
  if (count < tables + 1 || (count - 1) % tables != 0) {
    throw InputError(beside.string(),
                     fmt::format("holds {} offsets, expected a whole number for each of {} tables "
                                 "and one more: tables x samples + 1",
                                 count, tables));
  }
  const std::uint64_t samples = (count - 1) / tables;
  const std::uint64_t first = static_cast<std::uint64_t>(c.part->table) * samples;
  std::uint64_t at = 0;
  stream_indices(beside, where, [&](std::span<const std::int64_t> some) {
    for (const std::int64_t o : some) {
      if (at >= first && at <= first + samples) {
        bounds.push_back(o);
      }
      ++at;
    }
  });
  return bounds;
}

/// Bags that begin where they should and follow each other; `lookups` ids are theirs.
std::vector<std::int64_t> checked_bags(std::vector<std::int64_t> begins, std::int64_t lookups,
                                       const std::string& file, const std::string& ids) {
  std::int64_t before = 0;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const bool first = i == 0;
    if (first ? begins[i] != 0 : begins[i] < before || begins[i] > lookups) {
      throw InputError(file, fmt::format("bag {} begins at {}, expected {}", i, begins[i],
                                         first ? std::string("0: the first id of the first bag")
                                               : fmt::format("{} to {}: bags follow each other, "
                                                             "and {} holds {} ids",
                                                             before, lookups, ids, lookups)));
    }
    before = begins[i];
  }
  if (begins.empty()) {
    throw InputError(file, "no bags in it, expected where each bag of ids begins");
  }
  return begins;
}

}  // namespace

void stream_indices(const std::filesystem::path& name, std::string_view where, const TakeIds& sink,
                    std::int64_t rows) {
  const Chosen c = choose(name, where);
  if (!c.part) {
    IdSink to(label_of(c.name), sink);
    stream_chosen(c, to, rows);
    return;
  }
  const std::vector<std::int64_t> bounds = bounds_beside(c, where);
  const std::int64_t first = bounds.front();
  const std::int64_t last = bounds.back();
  std::int64_t at = 0;
  const TakeIds within = [&](std::span<const std::int64_t> some) {
    const auto size = static_cast<std::int64_t>(some.size());
    const std::int64_t from = std::clamp<std::int64_t>(first - at, 0, size);
    const std::int64_t to = std::clamp<std::int64_t>(last - at, from, size);
    at += size;
    if (to > from) {
      sink(some.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from)));
    }
  };
  IdSink to(label_of(c.name), within);
  stream_chosen(c, to, rows);
  if (first >= last || last > at) {
    throw InputError(offsets_beside(c.name).string(),
                     fmt::format("the bags of table {} take ids {} to {}, but {} holds {}",
                                 c.part->table, first, last, c.name.file.string(), at));
  }
}

std::vector<std::int64_t> read_indices(const std::filesystem::path& name, std::string_view where,
                                       std::int64_t rows) {
  std::vector<std::int64_t> ids;
  stream_indices(
      name, where,
      [&](std::span<const std::int64_t> some) {
        if (ids.size() + some.size() > kMostKept) {
          throw InputError(name.string(),
                           fmt::format("holds more than the {} ids that are kept in memory; make "
                                       "a histogram of it with stepcast hitcurve --sketch",
                                       kMostKept));
        }
        ids.insert(ids.end(), some.begin(), some.end());
      },
      rows);
  return ids;
}

std::vector<std::int64_t> recorded_bags(const std::filesystem::path& name, std::int64_t lookups,
                                        std::string_view where) {
  const Chosen c = choose(name, where);
  const std::string ids = label_of(c.name);
  if (c.bag_size > 0) {
    std::vector<std::int64_t> begins;
    for (std::int64_t at = 0; at < lookups; at += c.bag_size) {
      begins.push_back(at);
    }
    return begins;
  }
  if (c.bounds != nullptr) {
    std::vector<std::int64_t> begins = elements(c.arrays, *c.bounds, c.bags);
    std::int64_t before = 0;
    for (std::int64_t& b : begins) {
      if (c.are_lengths) {
        before += std::exchange(b, before);
      } else {
        b -= c.which.first;
      }
    }
    return checked_bags(std::move(begins), lookups, label_of({c.name.file, {c.bounds->name}}), ids);
  }
  if (!has_offsets_beside(c.name) || (!c.name.parts.empty() && !c.part)) {
    return {};
  }
  std::vector<std::int64_t> begins = bounds_beside(c, where);
  if (c.part) {
    begins.pop_back();
    const std::int64_t first = begins.front();
    for (std::int64_t& b : begins) {
      b -= first;
    }
  } else if (begins.size() > 1 && begins.back() == lookups) {
    begins.pop_back();  // the last entry only closes the last bag
  }
  return checked_bags(std::move(begins), lookups, offsets_beside(c.name).string(), ids);
}

std::optional<double> recorded_pooling(const std::filesystem::path& name, std::int64_t lookups,
                                       std::string_view where) {
  const std::vector<std::int64_t> bags = recorded_bags(name, lookups, where);
  if (bags.empty()) {
    return std::nullopt;
  }
  return static_cast<double>(lookups) / static_cast<double>(bags.size());
}

}  // namespace stepcast::config
