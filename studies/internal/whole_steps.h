#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "studies/fit_rows.h"
#include "traces/trace.h"

namespace stepcast::studies::internal {

constexpr const char* kDropped = "dropped by the recorder";

double seconds_between(SimTime begin, SimTime end);

/// A duration without what reading the clock added; never less than a quarter of it.
double without(double duration, Seconds clock);

/// Adds to what is there of the same reason and name.
inline void add_unexplained(std::vector<Unexplained>& list, const std::vector<Unexplained>& more) {
  for (const Unexplained& found : more) {
    const auto known = std::find_if(list.begin(), list.end(), [&](const Unexplained& u) {
      return u.reason == found.reason && u.name == found.name;
    });
    if (known == list.end()) {
      list.push_back(found);
    } else {
      known->count += found.count;
      known->seconds += found.seconds;
    }
  }
}

/// Counts by reason and name, in order of both.
class Unused {
 public:
  void add(const std::string& reason, const std::string& name, std::int64_t count = 1,
           double time = 0) {
    Unexplained& u = counts_[{reason, name}];
    u.count += count;
    u.seconds += time;
  }
  void move_to(std::vector<Unexplained>& list) const {
    for (const auto& [key, found] : counts_) {
      add_unexplained(list, {{key.first, key.second, found.count, found.seconds}});
    }
  }

 private:
  std::map<std::pair<std::string, std::string>, Unexplained> counts_;
};

/// Leaves the steps that are whole on every rank. Returns the duration of each.
std::vector<double> keep_whole_steps(traces::GraphRun& trace, Unused& unused);

}  // namespace stepcast::studies::internal
