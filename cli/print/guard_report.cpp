#include "cli/print/guard_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "cli/print/human.h"
#include "cli/print/terminal_text.h"
#include "cli/report/svg.h"

namespace stepcast::cli {
namespace {

using studies::GuardedTime;
using studies::GuardResult;
using studies::StructureChange;

constexpr double kNever = std::numeric_limits<double>::infinity();

std::string_view word_of(GuardResult::Verdict verdict) {
  switch (verdict) {
    case GuardResult::Verdict::kPass:
      return "pass";
    case GuardResult::Verdict::kRegressed:
      return "regressed";
    case GuardResult::Verdict::kCannotJudge:
      break;
  }
  return "cannot judge";
}

std::size_t regressions(const GuardResult& r) {
  return static_cast<std::size_t>(std::count_if(r.times.begin(), r.times.end(),
                                                [](const GuardedTime& t) { return t.regressed; }));
}

std::string changes_of_structure(const GuardResult& r) {
  return counted(static_cast<std::int64_t>(r.structure.size()), "change") + " of structure";
}

bool fails(const GuardResult& r, const StructureChange& s) {
  return !r.structure_warns || s.what == "ranks";
}

std::size_t failures_of_structure(const GuardResult& r) {
  return static_cast<std::size_t>(
      std::count_if(r.structure.begin(), r.structure.end(),
                    [&r](const StructureChange& s) { return fails(r, s); }));
}

/// "12.3 %"; what cannot be seen at all, in words.
std::string seen_from(double change) { return change < 10 ? percent(change) : "more than 1000 %"; }

std::string verdict(const GuardResult& r) {
  using Verdict = GuardResult::Verdict;
  const std::string structure = r.structure.empty() ? "same launches, collective bytes and ops"
                                                    : changes_of_structure(r) + " (a warning)";
  switch (r.verdict()) {
    case Verdict::kPass:
      return fmt::format("no regression in {} op and step times, {}", r.times.size(), structure);
    case Verdict::kCannotJudge:
      return r.judged_times
                 ? fmt::format(
                       "cannot judge: the runs differ too much to exclude a slowdown of {} ({} at "
                       "most, 95 % confidence); record more runs; {}",
                       percent(r.must_see), percent_signed(r.at_most), structure)
                 : fmt::format("cannot judge {} times: the baseline has one run; {}",
                               r.times.size(), structure);
    case Verdict::kRegressed:
      break;
  }
  if (r.times.empty()) {
    return changes_of_structure(r) + ": another program, so no time was compared";
  }
  return fmt::format("regressed: {} of {} times, {}", regressions(r), r.times.size(),
                     changes_of_structure(r));
}

std::string share_of(const GuardedTime& t) { return t.share > 0 ? percent(t.share) : ""; }

double plain_change(const GuardedTime& t) {
  return t.before > Seconds{} ? t.after / t.before - 1 : 0;
}

/// The change of all ops together, which the column "beyond all ops" leaves out.
std::string common_note(const GuardResult& r) {
  return fmt::format(
      "All ops together: {}{}. An op counts as slower where it is slower in itself and "
      "also beyond that.",
      percent_signed(r.common_change),
      r.at_most < kNever
          ? fmt::format(", at most {} with 95 % confidence", percent_signed(r.at_most))
          : "");
}

/// How small a slowdown is seen; empty where no time was judged.
std::string sensitivity(const GuardResult& r) {
  if (r.times.empty() || !(r.power.all_ops < kNever)) {
    return {};
  }
  std::string text = fmt::format(
      "Smallest detectable slowdown (95 % power, {} false alarms): GPU time {}, step {}",
      percent(r.false_alarms), seen_from(r.power.all_ops), seen_from(r.power.step));
  if (!r.power.worst.empty()) {
    text += fmt::format(", typical op {}, noisiest op ({}) {}", seen_from(r.power.one_op),
                        short_text(r.power.worst), seen_from(r.power.worst_op));
  }
  return text + '.';
}

std::string stale_text(const std::string& why) {
  return fmt::format("Baseline is out of date: {}. Refresh it with --update-baseline.", why);
}

bool some_runs_only(const GuardResult& r) {
  return std::any_of(r.structure.begin(), r.structure.end(),
                     [](const StructureChange& s) { return !s.runs.empty(); });
}

std::string title(const GuardedTime& t) {
  const std::string name = short_text(t.name);
  return t.phase.empty() ? name : fmt::format("{} ({})", name, t.phase);
}

/// Text safe inside XML, attributes included.
std::string xml(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  return report::svg::escaped(text);
}

/// Text safe inside a Markdown table.
std::string markdown_cell(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '*' || c == '_' || c == '`' || c == '\\') {
      safe += '\\';
    }
    safe += c;
  }
  return safe;
}

std::string message(const GuardedTime& t) {
  return fmt::format("{} -> {} per step ({}; {} beyond all ops; noise {}, {} of the slowdown){}{}",
                     human(t.before), human(t.after), percent_signed(plain_change(t)),
                     percent_signed(t.change), percent(t.noise), percent(t.share),
                     t.note.empty() ? "" : "; ", t.note);
}

/// Times people read: those that moved; programs get all.
DataTable times_table(const GuardResult& r, const char* heading, bool GuardedTime::*chosen) {
  std::vector<GuardedTime> times = r.times;
  if (chosen != nullptr) {
    std::erase_if(times, [chosen](const GuardedTime& t) { return !(t.*chosen); });
  }
  using T = GuardedTime;
  return table_of(
      "times", heading,
      Columns<T>{{"op", "", [](auto& t) { return short_name(t.name); }},
                 {"kind", "", &T::kind, kLeft | kMinor},
                 {"phase", "", &T::phase, kLeft | kMinor},
                 {"before_s", "before", &T::before},
                 {"after_s", "after", &T::after},
                 {"plain_change", "change", [](auto& t) { return signed_share(plain_change(t)); }},
                 {"change", "beyond all ops", [](auto& t) { return signed_share(t.change); }},
                 {"noise", "", [](auto& t) { return share(t.noise); }},
                 {"detects", "", &T::detects, kInJson},
                 {"share_of_regression", "of the slowdown",
                  [](auto& t) {
                    return Cell{share_of(t), t.share};
                  }},
                 {"regressed", "", &T::regressed, kInJson},
                 {"improved", "", &T::improved, kInJson},
                 {"note", "", &T::note, kInJson}},
      times, chosen == nullptr ? kInJson : kInText);
}

DataTable structure_table(const GuardResult& r) {
  using S = StructureChange;
  return table_of("structure", "\nstructure",
                  Columns<S>{{"what", "", &S::what},
                             {"op", "", [](auto& s) { return short_name(s.name); }, kLeft},
                             {"kind", "", &S::kind, kInJson},
                             {"phase", "", &S::phase},
                             {"before", "", &S::before},
                             {"after", "", &S::after},
                             {"runs", "in",
                              [](auto& s) {
                                return Cell{s.runs.empty() ? "all" : s.runs, s.runs};
                              },
                              some_runs_only(r) ? kInText | kInJson : kInJson}},
                  r.structure, r.structure.empty() ? kInJson : kInText | kInJson);
}

/// Structure and times in one table.
DataTable changes_table(const GuardResult& r) {
  DataTable table("guard", "",
                  {{"what"},
                   {"op"},
                   {"kind"},
                   {"phase"},
                   {"before"},
                   {"after"},
                   {"change"},
                   {"noise"},
                   {"detects"},
                   {"share_of_regression"},
                   {"regressed"},
                   {"plain_change"},
                   {"runs"}},
                  kInCsv);
  const Cell none = empty_cell();
  for (const StructureChange& s : r.structure) {
    table.row({code(s.what), code(s.name), code(s.kind), code(s.phase), code(s.before),
               code(s.after), none, none, none, none, code(true), none, code(s.runs)});
  }
  for (const GuardedTime& t : r.times) {
    table.row({code("time"), code(t.name), code(t.kind), code(t.phase), cell(t.before),
               cell(t.after), code(t.change), code(t.noise), code(t.detects), code(t.share),
               code(t.regressed), code(plain_change(t)), none});
  }
  return table;
}

}  // namespace

void add_guard(const GuardResult& r, Report& report) {
  report.line(verdict(r), r.verdict() == GuardResult::Verdict::kPass        ? Meaning::kGood
                          : r.verdict() == GuardResult::Verdict::kRegressed ? Meaning::kBad
                                                                            : Meaning::kWarning);
  report.facts({{"pass", r.pass()},
                {"verdict", word_of(r.verdict())},
                {"judged_times", r.judged_times},
                {"common_change", r.common_change},
                {"at_most", r.at_most < kNever ? Json(r.at_most) : Json()},
                {"must_see", r.must_see},
                {"false_alarms", r.false_alarms}});
  const auto power = [](double v) { return v < kNever ? Json(v) : Json(); };
  report.fact("power", {{"share_of_cases", 0.95},
                        {"one_op", power(r.power.one_op)},
                        {"bluntest_op", power(r.power.worst_op)},
                        {"all_ops_together", power(r.power.all_ops)},
                        {"step", power(r.power.step)}});
  report.add(times_table(r, "", nullptr));
  report.add(structure_table(r));
  for (const auto& [heading, chosen] : {std::pair("\nslower", &GuardedTime::regressed),
                                        std::pair("\nfaster", &GuardedTime::improved)}) {
    if (DataTable times = times_table(r, heading, chosen); !times.empty()) {
      report.add(std::move(times));
    }
  }
  report.add(changes_table(r));
  report.facts(
      {{"structure_fails", !r.structure_warns}, {"stale", r.stale}, {"warnings", r.warnings}});
  for (const GuardedTime& t : r.times) {
    if (!t.note.empty()) {
      report.line(fmt::format("{}: {}", title(t), t.note), Meaning::kBad);
    }
  }
  if (!r.times.empty()) {
    report.line('\n' + common_note(r));
  }
  if (const std::string seen = sensitivity(r); !seen.empty()) {
    report.line(seen);
  }
  for (const std::string& w : r.stale) {
    report.line(stale_text(w), Meaning::kWarning);
  }
  for (const std::string& w : r.warnings) {
    report.line("warning: " + w, Meaning::kWarning);
  }
}

std::string guard_junit(const GuardResult& r, bool cannot_judge_passes) {
  const bool judged = cannot_judge_passes || r.verdict() != GuardResult::Verdict::kCannotJudge;
  const std::size_t failures = regressions(r) + failures_of_structure(r) + (judged ? 0 : 1);
  // Every change of structure is a failed case; without one, a single case says that it held.
  const std::size_t cases =
      r.times.size() + std::max<std::size_t>(1, r.structure.size()) + (judged ? 0 : 1);
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuites tests=\"{0}\" failures=\"{1}\">\n"
      "  <testsuite name=\"stepcast replay\" tests=\"{0}\" failures=\"{1}\">\n",
      cases, failures);
  const auto add = [&text](const char* suite, const std::string& name, double seconds,
                           const std::string& failure) {
    text += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.9f}\"", suite,
                        xml(name), seconds);
    text += failure.empty() ? "/>\n"
                            : fmt::format(">\n      <failure message=\"{}\"/>\n    </testcase>\n",
                                          xml(failure));
  };
  for (const StructureChange& s : r.structure) {
    add("structure", s.what + (s.name.empty() ? "" : ": " + s.name), 0,
        fails(r, s) ? fmt::format("{}: {} before, {} now{}{}", s.what, s.before, s.after,
                                  s.runs.empty() ? "" : ", in ", s.runs)
                    : "");
  }
  if (r.structure.empty()) {
    add("structure", "launches, collective bytes, set of ops", 0, "");
  }
  if (!judged) {
    add("time", "power", 0, verdict(r));
  }
  for (const GuardedTime& t : r.times) {
    add("time", title(t), t.after.base(), t.regressed ? message(t) : "");
  }
  return text + "  </testsuite>\n</testsuites>\n";
}

std::string guard_markdown(const GuardResult& r) {
  std::string text = fmt::format("### stepcast: {}\n", verdict(r));
  if (!r.structure.empty()) {
    text += "\n| structure | op | before | after | in |\n|---|---|---|---|---|\n";
    for (const StructureChange& s : r.structure) {
      text += fmt::format("| {} | {} | {} | {} | {} |\n", s.what, markdown_cell(short_text(s.name)),
                          s.before, s.after, s.runs.empty() ? "all runs" : markdown_cell(s.runs));
    }
  }
  const auto rows = [&](const char* heading, auto chosen) {
    if (std::none_of(r.times.begin(), r.times.end(), chosen)) {
      return;
    }
    text += fmt::format(
        "\n| {} | before | after | change | beyond all ops | noise | of the slowdown |\n"
        "|---|---:|---:|---:|---:|---:|---:|\n",
        heading);
    for (const GuardedTime& t : r.times) {
      if (chosen(t)) {
        text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", markdown_cell(title(t)),
                            human(t.before), human(t.after), percent_signed(plain_change(t)),
                            percent_signed(t.change), percent(t.noise), share_of(t));
      }
    }
  };
  rows("slower", [](const GuardedTime& t) { return t.regressed; });
  rows("faster", [](const GuardedTime& t) { return t.improved; });
  for (const GuardedTime& t : r.times) {
    text += t.note.empty() ? "" : fmt::format("\n- {}: {}", title(t), markdown_cell(t.note));
  }
  if (!r.times.empty()) {
    text += fmt::format("\n- {}", common_note(r));
  }
  if (const std::string seen = sensitivity(r); !seen.empty()) {
    text += fmt::format("\n- {}", seen);
  }
  for (const std::string& w : r.stale) {
    text += "\n- " + stale_text(w);
  }
  for (const std::string& w : r.warnings) {
    text += fmt::format("\n- {}", w);
  }
  return text + '\n';
}

}  // namespace stepcast::cli
