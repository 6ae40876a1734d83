#pragma once
#include <initializer_list>
#include <optional>
#include <string>

#include "interop/formats.h"

namespace stepcast::interop {

/// Embedding tables of a file of another system, in our words.
struct Described {
  Json workload = Json::object();
  Json job = Json::object();  ///< batch, devices, formats, constraints
};

/// A key that is there and not null.
std::optional<Value> given(const Value& v, const char* key);
/// Rejects each of the keys that is given: `why`.
void must_be_absent(const Value& v, std::initializer_list<const char*> keys, const char* why);
/// "SUM", "PoolingType.SUM", "sum" -> "sum".
std::string last_word(const Value& v, const char* expected);
/// "sum" or "mean".
std::string pooling_mode(const Value& v);
/// Names, in the workload, a key or column (`kind`) that nobody reads. Errors: InputError at
/// `place` where it may be a misspelling of one that is read.
void pass_over(const std::string& place, const char* kind, const std::string& name,
               const std::vector<std::string>& read, Json& workload);
/// Formats of mixed precision in HugeCTR: weights stay fp32; what travels and is computed with is
/// fp16.
Json mixed_precision();
/// A DLRM without tables yet, named as the document says.
Described begun(const Value& v, const char* usual_name);
/// Samples of a step over all devices.
void add_batch(std::int64_t global, Described& d);
/// The dense part, under the keys of the file: its own numbers where the file has them, else one
/// narrow layer on either side, so that nearly all of a step is embeddings.
void add_dense(const Value& v, const char* features, const char* bottom, const char* top,
               const char* cross_layers, const char* cross_rank, Json& w);

/// True if this root may be such a file rather than one of ours.
bool describes_tables(const Json& root);
/// The document with what was found in it as a workload, or as a job, for its root. Errors:
/// InputError where a workload has no place for what the file says.
Document as_workload(Document d, Described found);
Document as_job(Document d, Described found);

/// The format of files of JSON that `describe` reads.
template <Described (*describe)(const Value&)>
ForeignFormat tables_format(std::string_view what, bool (*told)(const Json& root)) {
  return {.what = what,
          .inferred_by_keys = told,
          .job_of =
              [](Document d, const std::vector<std::string>&) {
                Described found = describe(Value::root_of(d));
                return as_job(std::move(d), std::move(found));
              },
          .workload_of =
              [](Document d) {
                Described found = describe(Value::root_of(d));
                return as_workload(std::move(d), std::move(found));
              }};
}

}  // namespace stepcast::interop
