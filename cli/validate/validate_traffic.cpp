#include "cli/validate/validate_traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "cli/print/data_table.h"
#include "cli/print/human.h"
#include "cli/print/report.h"
#include "core/error.h"
#include "core/statistics.h"
#include "validation/traffic.h"

namespace stepcast::cli {
namespace {

constexpr double kMostOff = 0.005;  ///< of a share of the all-to-all

DataTable published_table(const std::vector<validation::PublishedCut>& cuts, double& worst) {
  DataTable t("published", "copies of hot rows: share of the all-to-all between machines",
              {{"file", "", true},
               {"nodes"},
               {"sync_every", "sync every"},
               {"saved", "saved, published"},
               {"our_saved", "ours"},
               {"net", "net of sync, published"},
               {"our_net", "ours"},
               {"rows_node", "rows a node"},
               {"rows_everywhere", "rows everywhere"},
               {"copies_bytes", "copies, per device"}});
  for (const validation::PublishedCut& c : cuts) {
    worst = std::max({worst, std::abs(c.ours.saved - c.saved), std::abs(c.ours.net() - c.net)});
    t.row({cell(c.file), cell(c.question.nodes), cell(c.question.sync_every), share(c.saved),
           share(c.ours.saved), share(c.net), share(c.ours.net()), cell(c.ours.rows_node),
           cell(c.ours.rows_everywhere), cell(c.ours.copies)});
  }
  t.note(
      fmt::format("largest difference: {:.2f} points (bar: {:.1f})", worst * 100, kMostOff * 100));
  return t;
}

DataTable planned_table(const std::vector<validation::ReuseHistogram>& histograms,
                        const config::Library& library) {
  DataTable t("equal_memory", "planned with the memory that flat row-wise sharding takes, dgx-h100",
              {{"file", "", true},
               {"nodes"},
               {"dedup", "", true},
               {"flat_s", "flat step"},
               {"step_s", "planned step"},
               {"saved", "all-to-all saved"},
               {"sync", "sync costs"},
               {"net", "net cut"},
               {"flat_bytes", "flat, per device"},
               {"bytes", "planned"},
               {"rows_unit", "rows a unit"},
               {"rows_everywhere", "rows everywhere"}});
  std::array<std::vector<double>, 2> removed;  // without deduplicated ids, and with
  for (const validation::ReuseHistogram& h : histograms) {
    for (const std::int64_t nodes : {8, 16, 32, 64}) {
      for (const bool dedup : {false, true}) {
        const validation::EqualMemoryCut c =
            validation::cut_at_equal_memory(h, nodes, dedup, library);
        removed[dedup ? 1 : 0].push_back(c.net());
        t.row({cell(c.file), cell(c.nodes), cell(std::string_view(dedup ? "ikjt" : "off")),
               cell(Seconds(c.flat_step)), cell(Seconds(c.step)), share(c.saved), share(c.sync),
               share(c.net()), cell(Bytes(c.flat_bytes)), cell(Bytes(c.bytes)), cell(c.rows_unit),
               cell(c.rows_everywhere)});
      }
    }
  }
  for (const bool dedup : {false, true}) {
    const auto [least, most] =
        std::minmax_element(removed[dedup ? 1 : 0].begin(), removed[dedup ? 1 : 0].end());
    if (!removed[dedup ? 1 : 0].empty()) {
      t.note(
          fmt::format("Traffic between machines removed, net of sync, {} deduplicated ids: {} "
                      "to {}, median {}.",
                      dedup ? "with" : "without", percent(*least), percent(*most),
                      percent(middle_of(removed[dedup ? 1 : 0]))));
    }
  }
  t.note(
      "Shares are bytes between machines of the simulated steps, of those of the flat plan (with "
      "the same dedup). The planner minimises the step, not bytes; counts of one batch stand for "
      "expected ones.");
  return t;
}

}  // namespace

int validate_traffic(const std::string& data, OutputFormat format, const Context& context) {
  if (data.empty()) {
    throw InputError("--data", "is missing; name the folder of the DLRM data sets");
  }
  const std::filesystem::path folder(data);
  const auto histograms =
      validation::read_reuse_histograms(folder / "dlrm_datasets" / "locality_parsed.csv");
  const auto cuts = validation::compare_traffic_cuts(
      folder / "flexshard_breakeven_on_meta_histograms.csv", histograms);
  std::vector<validation::ReuseHistogram> planned;  // those of the published table
  std::copy_if(histograms.begin(), histograms.end(), std::back_inserter(planned),
               [&](const validation::ReuseHistogram& h) {
                 return std::any_of(cuts.begin(), cuts.end(),
                                    [&](const auto& c) { return c.file == h.file; });
               });
  double worst = 0;
  std::vector<DataTable> tables{published_table(cuts, worst)};
  tables.push_back(planned_table(planned, {context.library}));
  print_tables(tables, format, std::cout);
  return worst <= kMostOff ? 0 : 1;
}

}  // namespace stepcast::cli
