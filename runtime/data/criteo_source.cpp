#include "runtime/data/criteo_source.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/input/criteo.h"

namespace stepcast::runtime {
namespace {

/// The next tab-separated field; `left` loses it.
std::string_view next_field(std::string_view& left) {
  const auto end = std::min(left.find('\t'), left.size());
  const std::string_view field = left.substr(0, end);
  left.remove_prefix(std::min(end + 1, left.size()));
  return field;
}

}  // namespace

CriteoSource::CriteoSource(const StepInputs& inputs, SampleRange range, const std::string& file)
    : inputs_(inputs), range_(range), name_(file), file_(file) {
  if (inputs.dense_features != static_cast<std::int64_t>(kCriteoIntegers) ||
      inputs.tables.size() > kCriteoCategories) {
    throw InputError(file, fmt::format("Criteo data has {} dense features and {} categories, but "
                                       "the workload has {} and {} tables",
                                       kCriteoIntegers, kCriteoCategories, inputs.dense_features,
                                       inputs.tables.size()));
  }
  const std::string_view text = file_.text();
  for (std::size_t start = 0; start < text.size();) {
    lines_.push_back(start);
    start = std::min(text.find('\n', start), text.size() - 1) + 1;
  }
}

void CriteoSource::draw(std::int64_t step, HostBatch& batch) {
  const auto samples = static_cast<std::size_t>(range_.count);
  const std::size_t tables = inputs_.tables.size();
  batch.dense.resize(samples * kCriteoIntegers);
  batch.labels.resize(samples);
  batch.lookups.resize(tables);
  batch.offsets.resize(tables);
  batch.ranks.clear();
  for (std::size_t t = 0; t < tables; ++t) {
    batch.lookups[t].resize(samples);
    batch.offsets[t].resize(samples + 1);
    for (std::size_t s = 0; s <= samples; ++s) {
      batch.offsets[t][s] = static_cast<std::int64_t>(s);
    }
  }
  const auto first = static_cast<std::size_t>(step * range_.global + range_.first);
  for (std::size_t s = 0; s < samples; ++s) {
    parse((first + s) % lines_.size(), s, batch);
  }
}

void CriteoSource::parse(std::size_t line, std::size_t sample, HostBatch& batch) const {
  const std::string_view text = file_.text();
  std::string_view left = text.substr(lines_[line]);
  left = left.substr(0, std::min(left.find('\n'), left.size()));
  if (left.ends_with('\r')) {
    left.remove_suffix(1);
  }
  const auto place = [&] { return fmt::format("{}:{}", name_, line + 1); };
  const auto tabs = static_cast<std::size_t>(std::count(left.begin(), left.end(), '\t'));
  if (tabs != kCriteoIntegers + kCriteoCategories) {
    throw InputError(place(), fmt::format("{} columns; expected {} (label, {} integers, {} "
                                          "categories) separated by tabs",
                                          tabs + 1, 1 + kCriteoIntegers + kCriteoCategories,
                                          kCriteoIntegers, kCriteoCategories));
  }
  const std::string_view label = next_field(left);
  if (label != "0" && label != "1") {
    throw InputError(place(), fmt::format("label '{}'; expected 0 or 1", label));
  }
  batch.labels[sample] = label == "1" ? 1.0F : 0.0F;
  for (std::size_t i = 0; i < kCriteoIntegers; ++i) {
    const std::string_view field = next_field(left);
    std::int64_t value = 0;
    const auto parsed = std::from_chars(field.data(), field.data() + field.size(), value);
    if (!field.empty() && (parsed.ec != std::errc() || parsed.ptr != field.data() + field.size())) {
      throw InputError(place(),
                       fmt::format("'{}' in column {}; expected an integer", field, i + 2));
    }
    batch.dense[sample * kCriteoIntegers + i] =
        static_cast<float>(std::log1p(static_cast<double>(std::max<std::int64_t>(0, value))));
  }
  for (std::size_t t = 0; t < inputs_.tables.size(); ++t) {
    const std::string_view category = next_field(left);
    const auto row = criteo_row(category, inputs_.tables[t].rows);
    if (!row) {
      throw InputError(place(),
                       fmt::format("'{}' in column {}; expected a category in hexadecimal digits",
                                   category, t + 2 + kCriteoIntegers));
    }
    batch.lookups[t][sample] = *row;
  }
}

}  // namespace stepcast::runtime
