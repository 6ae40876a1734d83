#include "core/config/lookups/id_sink.h"

#include "core/error.h"

namespace stepcast::config {

IdSink::IdSink(std::string file, const TakeIds& take) : file_(std::move(file)), take_(take) {
  ids_.reserve(kMost);
}

void IdSink::flush() {
  if (!ids_.empty()) {
    take_(ids_);
    passed_ += ids_.size();
    ids_.clear();
  }
}

void IdSink::reject(std::int64_t id) const {
  throw InputError(file_, fmt::format("id {} at position {} is negative, expected row ids from 0",
                                      id, passed()));
}

}  // namespace stepcast::config
