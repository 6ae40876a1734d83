#pragma once
#include <initializer_list>
#include <optional>
#include <string>

#include "core/config/internal/document.h"

namespace stepcast::config {

/// What a file of another system says about embedding tables, in our words.
struct Described {
  Json workload = Json::object();
  Json job = Json::object();  ///< batch, devices, formats, constraints
};

Described described_by_torchrec(const Value& v);
/// A configuration of DeepRecSys: told by "arch_embedding_size".
Described described_by_deeprecsys(const Value& v);

constexpr std::int64_t kMostTableRows = std::int64_t{1} << 40;

/// A key that is there and not null.
std::optional<Value> given(const Value& v, const char* key);
/// Refuses each of the keys that is given: `why`.
void must_be_absent(const Value& v, std::initializer_list<const char*> keys, const char* why);
/// "SUM", "PoolingType.SUM", "sum" -> "sum".
std::string last_word(const Value& v, const char* expected);
/// "sum" or "mean".
std::string pooling_mode(const Value& v);
/// A DLRM without tables yet, named as the document says.
Described begun(const Value& v, const char* usual_name);
/// Samples of a step over all devices.
void add_batch(std::int64_t global, Described& d);
/// The dense part, under the keys of the file: its own numbers where the file has them, else one
/// narrow layer on either side, so that nearly all of a step is embeddings.
void add_dense(const Value& v, const char* features, const char* bottom, const char* top,
               const char* cross_layers, const char* cross_rank, Json& w);

}  // namespace stepcast::config
