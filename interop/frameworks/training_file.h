#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "interop/formats.h"

namespace stepcast::interop {

/// Reads the configuration of a training framework by dotted paths ("training.seq_len") and
/// remembers what it read.
class TrainingFile {
 public:
  using Paths = std::initializer_list<std::string_view>;
  explicit TrainingFile(const Document& d) : root_(Value::root_of(d)) {}

  /// The first of several spellings that the file has and that is not null.
  std::optional<Value> find(Paths paths);
  std::optional<std::int64_t> integer(Paths paths, std::int64_t low = 1);
  std::int64_t integer_or(Paths paths, std::int64_t otherwise, std::int64_t low = 1);
  /// "true" in quotes is true; a word such as "auto" is `otherwise`.
  bool flag(Paths paths, bool otherwise = false);
  /// A text; also of a number or a flag.
  std::string word(Paths paths, std::string otherwise = "");
  /// Words of a list, or one word.
  std::vector<std::string> words(Paths paths);
  std::int64_t required(Paths paths, const char* what);

  /// Notes what the file says and the job does not.
  void approximate(std::string phrase) { approximated_.push_back(std::move(phrase)); }
  /// Takes over what a file that this one names left out.
  void approximate_as(const TrainingFile& other) {
    approximated_.insert(approximated_.end(), other.approximated_.begin(),
                         other.approximated_.end());
  }
  /// Notes the numbers and flags that nothing has read, but for those under `harmless`: prefixes of
  /// paths, a blank between two.
  void note_unread(std::string_view harmless);
  /// The document with the job in place of the file; the job names what was approximated.
  [[nodiscard]] Document finished(Document d, Json job) const;
  [[nodiscard]] const Value& root() const { return root_; }

 private:
  Value root_;
  std::set<std::string, std::less<>> seen_;
  std::vector<std::string> approximated_;
};

/// The value that an override gives to a key of the job; empty where none does.
std::string override_of(const std::vector<std::string>& overrides, std::string_view key);

/// Product of counts, at most 2^40: what a job then rejects.
std::int64_t product(std::initializer_list<std::int64_t> counts);

/// Devices that the job is for: an override's, else `said` where the file says all degrees, else a
/// machine of 8 or `least`, which the degrees need, which the file notes.
std::int64_t devices_of(TrainingFile& file, const std::vector<std::string>& overrides,
                        std::optional<std::int64_t> said, std::int64_t least);

/// A model by its name, for `workload`. Errors: InputError where the file names none.
void name_model(TrainingFile& file, TrainingFile::Paths paths,
                const std::vector<std::string>& overrides, Json& job);

/// The workload that config.json of a Hugging Face model describes.
Json hugging_face_workload(const Value& config, std::string type);

/// True if a line of the text begins, after blanks, with one of these keys and a colon.
bool has_yaml_key(std::string_view text, std::initializer_list<std::string_view> keys);

/// Reads what a DeepSpeed configuration says in addition to model, batch and degrees: `parallel` of
/// the job holds these.
void read_deepspeed(TrainingFile& f, Json& job);

}  // namespace stepcast::interop
