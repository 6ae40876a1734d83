#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "studies/fit/error_statistics.h"

// The harness of every suite: rows with measurement and prediction, groups of them with their
// scores, and the suite that `stepcast validate` prints.
namespace stepcast::validation {

/// A further figure of a row or a group, of which all of a suite have the same.
struct Figure {
  enum class As : std::uint8_t { kText, kShare, kSigned, kFactor, kSeconds, kCount, kYes };
  std::string key;  ///< "ablations/no host cost" is in an object of JSON
  std::string title;
  std::variant<double, std::string, std::monostate> value;  ///< nothing: this one has none
  As as = As::kShare;
  bool minor = false;  ///< for programs alone
};
/// Rows of further figures under a key of the suite; without a key for people alone.
struct FigureTable {
  struct Entry {
    std::vector<Figure> more;
  };
  std::string key{}, title{};
  std::vector<Entry> rows{};
};

/// One measurement and its prediction. A row that cannot be predicted says why and is counted; it
/// is never dropped.
struct Row {
  std::string id;
  double measured = 0;   ///< seconds
  double predicted = 0;  ///< seconds; 0 where skipped
  std::optional<std::string> skipped{};
  double naive = 0;  ///< what the naive predictor of its group says
  bool in_range = false;
  double noise = 0;  ///< of the measurement; 0 where unknown
  std::vector<Figure> more{};
  std::vector<Figure> run{};  ///< facts about it for programs; none where not predicted
  [[nodiscard]] double error() const { return predicted / measured - 1; }
};

/// Limits to which the errors of a group are held; a part that is absent is not asked for.
struct Bar {
  std::optional<double> median{}, mean{}, p90{}, worst{}, bias{};
  [[nodiscard]] bool met(const studies::ErrorStatistics& e) const;
  [[nodiscard]] std::string text() const;  ///< "median <= 3 %, p90 <= 10 %"
};

/// Errors of some of the rows under one regime.
struct Group {
  std::string name;
  studies::ErrorStatistics errors{};
  std::string worst_row{};
  std::string baseline{};  ///< the naive predictor compared with; empty: none
  double baseline_mean = 0;
  std::optional<studies::ErrorStatistics> baseline_errors{};
  double in_range_share = 0;
  std::optional<double> repeat_noise{};  ///< of the measurements themselves
  std::optional<double> kendall_tau{};   ///< of the order of plans of one model
  std::optional<double> regret{};        ///< of the plan predicted to be the best
  std::optional<studies::ErrorStatistics> memory{};
  /// Share of rows inside the interval said to hold 90 % of them.
  std::optional<double> covered{};
  std::size_t skipped = 0;  ///< rows of the group that could not be scored
  std::string bound{};      ///< the group's own bar; empty: only reported
  bool pass = true;
  std::vector<Figure> more{};
  void hold_to(const Bar& bar) {
    bound = bar.text();
    pass = bar.met(errors);
  }
};

/// Output of `stepcast validate` for one suite.
struct Suite {
  std::string name;
  std::string bound{};
  bool pass = false;
  std::vector<Group> groups{};
  std::vector<Row> rows{};
  std::vector<std::string> notes{};  ///< settings that decide the figures, for the reader
  bool in_bytes = false;             ///< what rows measure; else seconds
  std::vector<FigureTable> tables{};
};

/// Statistics of `rows`; those that are skipped are counted only. Where a naive predictor is named,
/// also its mean error; the noise is the mean over rows whose measurement has some.
Group group_of(std::string name, const std::vector<Row>& rows, std::string baseline = {});

/// The elements that are wanted, in their order.
template <typename Element, typename Wanted>
std::vector<Element> where(const std::vector<Element>& all, Wanted wanted) {
  std::vector<Element> some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some), wanted);
  return some;
}

/// A number above 0 and at most 1e15, the whole of `field`; else 0, and `unusable`, where still
/// empty, says what was found in the column.
double positive_or_say(std::string_view column, std::string_view field, std::string& unusable);

}  // namespace stepcast::validation
