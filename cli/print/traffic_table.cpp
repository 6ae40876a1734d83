#include "cli/print/traffic_table.h"

#include <fmt/format.h>

#include <optional>
#include <unordered_map>

#include "cli/support/checks.h"
#include "core/config/access_files.h"
#include "core/error.h"
#include "planner/embedding/traffic_cut.h"

namespace stepcast::cli {
namespace {

/// Per device, of the level that joins nodes of `per_node` devices.
BytesPerSecond link_between(const System& system, double per_node) {
  for (std::size_t level = 1; level < system.fabric.size(); ++level) {
    if (static_cast<double>(system.devices_in_level(level - 1)) >= per_node) {
      return system.fabric[level].bandwidth;
    }
  }
  throw InputError("--system", fmt::format("system {} joins no nodes of {:g} devices; use one with "
                                           "a fabric level above them",
                                           system.name, per_node));
}

/// Lookups of another recording by the popularity that their rows have in the first one. The ids
/// are read once and each row is asked for once, whatever the number of thresholds.
class CountedOn {
 public:
  CountedOn(const Access& access, const std::vector<std::int64_t>& ids)
      : access_(access), all_(static_cast<double>(ids.size())) {
    for (const std::int64_t id : ids) {
      ++lookups_[id];
    }
  }
  /// Share of the lookups that go to the `hot` most popular rows.
  double share(double hot) {
    const auto rows = static_cast<std::size_t>(hot);
    while (hits_.size() <= rows) {
      const auto rank = static_cast<std::int64_t>(hits_.size()) - 1;
      const auto found = lookups_.find(access_.row_of_rank(rank));
      hits_.push_back(hits_.back() + (found == lookups_.end() ? 0 : found->second));
    }
    return static_cast<double>(hits_[rows]) / all_;
  }

 private:
  const Access& access_;
  double all_;
  std::unordered_map<std::int64_t, std::int64_t> lookups_;
  std::vector<std::int64_t> hits_{0};  ///< of the 0, 1, ... most popular rows
};

}  // namespace

void add_traffic_options(CLI::App& command, TrafficOptions& options) {
  CLI::Option* nodes =
      command
          .add_option("--nodes", options.nodes,
                      "Instead: what copies of hot rows save of the traffic between so many nodes")
          ->delimiter(',')
          ->check(number_from(2.0, 1e6));
  command.add_option("--devices-per-node", options.per_node, "Devices of a node (8)")
      ->check(number_from(1.0, 1e6))
      ->needs(nodes);
  command
      .add_option("--sync-interval", options.sync_every, "Steps between syncs of the copies (1)")
      ->delimiter(',')
      ->check(number_from(1.0, 1e6))
      ->needs(nodes);
  command.add_option("--row-bytes", options.row_bytes, "Bytes of a row as it travels (512)")
      ->check(positive_number())
      ->needs(nodes);
  command
      .add_option("--system", options.system,
                  "Adds times at the bandwidth of its link between nodes")
      ->needs(nodes);
  command
      .add_option("--counted-on", options.counted_on,
                  "Another recording: rows are chosen on the first and counted on this one")
      ->needs(nodes);
}

DataTable traffic_table(const TrafficOptions& options, const Access& access,
                        const Context& context) {
  std::vector<DataTable::Column> columns{{"nodes"},
                                         {"sync_every", "sync every"},
                                         {"above_node", "copy a node above"},
                                         {"above_everywhere", "everywhere above"},
                                         {"rows_node", "rows a node"},
                                         {"rows_everywhere", "rows everywhere"},
                                         {"copies_bytes", "copies, per device"},
                                         {"saved", "all-to-all saved"},
                                         {"sync", "sync costs"},
                                         {"net", "net cut"}};
  std::optional<BytesPerSecond> link;
  if (!options.system.empty()) {
    link = link_between(system_of("--system", options.system, {context.library}), options.per_node);
    columns.insert(
        columns.end(),
        {{"flat_s", "exchange before"}, {"exchange_s", "exchange after"}, {"sync_s", "sync"}});
  }
  std::optional<CountedOn> counted;
  if (!options.counted_on.empty()) {
    counted.emplace(access,
                    config::read_indices(options.counted_on, "--counted-on", access.rows()));
    columns.insert(columns.end(),
                   {{"counted_saved", "saved, counted"}, {"counted_net", "net, counted"}});
  }
  DataTable t("traffic", "traffic between nodes with copies of hot rows", columns);
  const double lookups = access.sample_lookups();
  for (const double nodes : options.nodes) {
    for (const double every : options.sync_every) {
      const planner::TrafficCut cut = planner::traffic_cut(
          access, lookups, {nodes, options.per_node, every, Bytes(options.row_bytes)});
      std::vector<Cell> row{cell(nodes),          cell(every),
                            cell(cut.above_node), cell(cut.above_everywhere),
                            cell(cut.rows_node),  cell(cut.rows_everywhere),
                            cell(cut.copies),     share(cut.saved),
                            share(cut.sync),      share(cut.net())};
      if (link) {
        row.insert(row.end(),
                   {cell(cut.all_to_all / *link), cell(cut.all_to_all * (1 - cut.saved) / *link),
                    cell(cut.all_to_all * cut.sync / *link)});
      }
      if (counted) {
        const double saved = counted->share(cut.rows_node + cut.rows_everywhere);
        row.insert(row.end(), {share(saved), share(saved - cut.sync)});
      }
      t.row(row);
    }
  }
  t.note(
      "Rows travel unpooled, forward and back. Shares are relative to the all-to-all between nodes "
      "without copies; thresholds are lookups of a row per global batch. Times are those of the "
      "link alone: `plan` weighs the step.");
  if (!options.counted_on.empty()) {
    t.note(fmt::format("Counted: rows chosen on the first recording, lookups of {}.",
                       options.counted_on));
  }
  return t;
}

}  // namespace stepcast::cli
