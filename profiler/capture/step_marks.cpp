#include "profiler/capture/step_marks.h"

#include <array>
#include <cctype>
#include <charconv>

namespace stepcast::profiler {
namespace {

/// The number behind a word: "step 7", "step_7", "step#7", "step7".
std::optional<std::int64_t> number_behind(std::string_view text, std::string_view word) {
  if (text.size() <= word.size()) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(text[i])) !=
        std::tolower(static_cast<unsigned char>(word[i]))) {
      return std::nullopt;
    }
  }
  text.remove_prefix(word.size());
  constexpr std::string_view kBetween = " _#:=-";
  while (!text.empty() && kBetween.find(text.front()) != std::string_view::npos) {
    text.remove_prefix(1);
  }
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(number)
                                                                  : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> StepNames::step(std::string_view range) {
  if (!mark_.empty()) {
    const auto number = number_behind(range, mark_);
    return number ? number : range == mark_ ? std::optional(met_++) : std::nullopt;
  }
  if (!spelling_.empty()) {
    return number_behind(range, spelling_);
  }
  constexpr std::array<std::string_view, 4> kSpellings{"ProfilerStep", "step", "iteration", "iter"};
  for (const std::string_view spelling : kSpellings) {
    if (const auto number = number_behind(range, spelling)) {
      spelling_ = spelling;
      return number;
    }
  }
  return std::nullopt;
}

StepWindow::Change StepWindow::begin(std::int64_t number, std::int64_t at, std::int32_t thread) {
  if (done_) {
    return Change::kNone;
  }
  const bool ended = begun_ && end(at) == Change::kEnd;
  if (ended || (begun_ && number >= last_)) {
    done_ = true;
    return Change::kEnd;
  }
  if (number >= first_ && number < last_) {
    steps_.push_back({number, at, at, thread});
    open_ = true;
    const bool first = !begun_;
    begun_ = true;
    return first ? Change::kBegin : Change::kNone;
  }
  return number == first_ - 1 ? Change::kWarmUp : Change::kNone;
}

StepWindow::Change StepWindow::end(std::int64_t at) {
  if (!open_) {
    return Change::kNone;
  }
  open_ = false;
  steps_.back().end = at;
  done_ = steps_.back().number == last_ - 1;
  return done_ ? Change::kEnd : Change::kNone;
}

std::vector<StepMark> StepWindow::steps(std::int64_t at) const {
  std::vector<StepMark> all = steps_;
  if (open_ && !all.empty()) {
    all.back().end = at;
  }
  return all;
}

}  // namespace stepcast::profiler
