#include "tests/planner/placement_milp.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "core/temporary_folder.h"
#include "core/whole_file.h"

namespace stepcast::planner {
namespace {

/// Runs a program of the search path, its output thrown away. False when it could not be run.
bool run_quietly(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& a : arguments) {
    argv.push_back(a.data());
  }
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::array<char*, 1> environment{nullptr};
  pid_t child = 0;
  const int failed =
      posix_spawnp(&child, argv.front(), &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    return false;
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::string terms_text(const std::vector<std::pair<std::size_t, double>>& terms) {
  std::string text;
  std::size_t column = 0;
  for (const auto& [variable, factor] : terms) {
    if (factor == 0) {
      continue;
    }
    text += fmt::format(" {} {:.12g} x{}", factor < 0 ? '-' : '+', std::abs(factor), variable);
    if (++column % 8 == 0) {
      text += '\n';
    }
  }
  return text.empty() ? " 0 x0" : text;
}

/// CPLEX LP format.
std::string lp_text(const Milp& m) {
  std::string text = "Minimize\n obj:";
  std::vector<std::pair<std::size_t, double>> objective;
  for (std::size_t v = 0; v < m.variables.size(); ++v) {
    objective.emplace_back(v, m.variables[v].objective);
  }
  text += terms_text(objective) + "\nSubject To\n";
  for (std::size_t r = 0; r < m.rows.size(); ++r) {
    const Milp::Row& row = m.rows[r];
    text += fmt::format(" c{}:{} {} {:.12g}\n", r, terms_text(row.terms),
                        row.sense == '='   ? "="
                        : row.sense == '<' ? "<="
                                           : ">=",
                        row.right);
  }
  text += "Bounds\n";
  for (std::size_t v = 0; v < m.variables.size(); ++v) {
    text += fmt::format(" {:.12g} <= x{} <= {:.12g}\n", m.variables[v].low, v, m.variables[v].high);
  }
  text += "General\n";
  for (std::size_t v = 0; v < m.variables.size(); ++v) {
    if (m.variables[v].integer) {
      text += fmt::format(" x{}\n", v);
    }
  }
  return text + "End\n";
}

std::optional<MilpSolution> parse(const std::filesystem::path& file, std::size_t variables) {
  std::ifstream in(file);
  std::string line;
  if (!in || !std::getline(in, line)) {
    return std::nullopt;
  }
  const bool optimal = line.rfind("Optimal", 0) == 0;
  const std::size_t value = line.find("objective value");
  if (value == std::string::npos || line.find("nfeasible") != std::string::npos) {
    return std::nullopt;
  }
  MilpSolution s;
  s.optimal = optimal;
  s.objective = std::strtod(line.c_str() + value + 15, nullptr);
  s.values.assign(variables, 0);
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::string index;
    std::string name;
    double amount = 0;
    fields >> index;
    if (index == "**") {
      fields >> index;
    }
    if (fields >> name >> amount && name.size() > 1 && name[0] == 'x') {
      const std::size_t v = std::strtoul(name.c_str() + 1, nullptr, 10);
      if (v < variables) {
        s.values[v] = amount;
      }
    }
  }
  return s;
}

}  // namespace

bool has_cbc() { return run_quietly({"cbc", "-quit"}); }

std::optional<MilpSolution> solve_with_cbc(const Milp& milp, double seconds) {
  const TemporaryFolder folder("stepcast-milp");
  const std::filesystem::path lp = folder.path() / "problem.lp";
  const std::filesystem::path solution = folder.path() / "solution.txt";
  write_whole_file(lp, lp_text(milp));
  if (!run_quietly({"cbc", lp.string(), "-seconds", fmt::format("{:.3f}", seconds), "-ratioGap",
                    "0", "-allowableGap", "1e-9", "-solve", "-solution", solution.string()})) {
    return std::nullopt;
  }
  return parse(solution, milp.variables.size());
}

PlacementMilp milp_of(const PlacementProblem& problem) {
  PlacementMilp m;
  Milp& milp = m.milp;
  const auto ms = [](Femtoseconds t) { return load_seconds(t) * 1e3; };
  const std::vector<std::size_t> phases = problem.phases();
  std::vector<std::size_t> route;
  for (const Femtoseconds charge : problem.fixed) {
    route.push_back(milp.variable({ms(charge), 0, 1, true}));
  }
  const auto ranks = static_cast<std::size_t>(problem.ranks);
  std::vector<std::vector<Milp::Row>> loads;  // by phase and rank: at most those of the slowest
  for (std::size_t p = 0; p < phases.size(); ++p) {
    const std::size_t slowest = milp.variable({1, 0, 1e9, false});
    loads.emplace_back(ranks, Milp::Row{{{slowest, -1}}, '<', 0});
  }
  std::vector<std::vector<Milp::Row>> memory;
  for (const TierCapacity& tier : problem.tiers) {
    auto& units = memory.emplace_back();
    for (const std::int64_t c : tier.capacity) {
      units.push_back({{}, '<', static_cast<double>(c)});
    }
  }
  for (std::size_t t = 0; t < problem.tables.size(); ++t) {
    Milp::Row one{{}, '=', 1};
    for (std::size_t o = 0; o < problem.tables[t].options.size(); ++o) {
      const PlacementOption& option = problem.tables[t].options[o];
      const std::size_t chosen = milp.variable({0, 0, 1, true});
      one.terms.emplace_back(chosen, 1);
      for (std::size_t f = 0; f < route.size(); ++f) {
        if ((option.routes >> f & 1U) != 0) {
          milp.rows.push_back({{{chosen, 1}, {route[f], -1}}, '<', 0});
        }
      }
      const auto add = [&](std::size_t variable, std::int32_t rank, double pieces, bool everywhere,
                           std::int32_t piece = 0) {
        const auto r = static_cast<std::size_t>(rank);
        const auto hot =
            std::find_if(option.skew.begin(), option.skew.end(), [&](const auto& skew) {
              return skew.position == piece * option.group + rank % option.group;
            });
        for (std::size_t i = 0; i < phases.size(); ++i) {
          const std::size_t p = phases[i];
          const Femtoseconds load =
              everywhere ? option.everywhere[p]
                         : option.load[p] + (hot == option.skew.end() ? 0 : option.extra(*hot, p));
          if (load != 0) {
            loads[i][r].terms.emplace_back(variable, everywhere ? ms(load) : pieces * ms(load));
          }
        }
        for (std::size_t tier = 0; tier < problem.tiers.size(); ++tier) {
          const double bytes =
              static_cast<double>(everywhere ? option.bytes_everywhere[tier] : option.bytes[tier]) *
              (everywhere ? 1 : pieces);
          memory[tier][r / static_cast<std::size_t>(problem.tiers[tier].shared_by)]
              .terms.emplace_back(variable, bytes);
        }
      };
      for (std::int32_t r = 0; r < problem.ranks; ++r) {
        add(chosen, r, 0, true);
      }
      if (option.group == problem.ranks) {
        m.entries.push_back({t, static_cast<std::int32_t>(o), -1, chosen});
        for (std::int32_t r = 0; r < problem.ranks; ++r) {
          add(chosen, r, option.pieces, false);
        }
        continue;
      }
      // Pieces that differ have places of their own; else it is their number that counts.
      const std::int32_t groups = problem.ranks / option.group;
      const std::int32_t kinds = option.uneven_pieces() ? option.pieces : 1;
      std::vector<Milp::Row> once(static_cast<std::size_t>(groups), Milp::Row{{}, '<', 1});
      for (std::int32_t piece = 0; piece < kinds; ++piece) {
        Milp::Row placed{{{chosen, -static_cast<double>(option.pieces / kinds)}}, '=', 0};
        for (std::int32_t g = 0; g < groups; ++g) {
          const std::size_t here = milp.variable({0, 0, 1, true});
          placed.terms.emplace_back(here, 1);
          once[static_cast<std::size_t>(g)].terms.emplace_back(here, 1);
          m.entries.push_back({t, static_cast<std::int32_t>(o), g, here});
          for (std::int32_t r = g * option.group; r < (g + 1) * option.group; ++r) {
            add(here, r, 1, false, piece);
          }
        }
        milp.rows.push_back(std::move(placed));
      }
      if (kinds > 1) {
        std::move(once.begin(), once.end(), std::back_inserter(milp.rows));
      }
    }
    milp.rows.push_back(std::move(one));
  }
  // Terms of one variable are gathered: an LP file names each once per row.
  const auto gathered = [](Milp::Row row) {
    std::sort(row.terms.begin(), row.terms.end());
    std::vector<std::pair<std::size_t, double>> sums;
    for (const auto& [v, f] : row.terms) {
      if (!sums.empty() && sums.back().first == v) {
        sums.back().second += f;
      } else {
        sums.emplace_back(v, f);
      }
    }
    row.terms = std::move(sums);
    return row;
  };
  for (auto* groups : {&loads, &memory}) {
    for (auto& rows : *groups) {
      for (Milp::Row& row : rows) {
        milp.rows.push_back(gathered(std::move(row)));
      }
    }
  }
  return m;
}

Placement PlacementMilp::placement(const PlacementProblem& problem,
                                   const MilpSolution& solution) const {
  Placement placement(problem.tables.size());
  for (const Entry& e : entries) {
    if (solution.values[e.variable] > 0.5) {
      placement[e.table].option = e.option;
      if (e.group >= 0) {
        placement[e.table].groups.push_back(e.group);
      }
    }
  }
  return placement;
}

}  // namespace stepcast::planner
