#include <algorithm>
#include <cmath>

#include "core/access/row_order.h"
#include "core/config/internal/loaders.h"
#include "core/fnv1a.h"
#include "core/job/ledger_parts.h"

namespace stepcast::config {
namespace {

/// Bytes by rank and tier (CONTRACT section 5); whole numbers.
OrderedJson ledger_json(const std::vector<LedgerLine>& ledger) {
  OrderedJson lines = OrderedJson::array();
  for (const LedgerLine& l : ledger) {
    OrderedJson j;
    j["rank"] = l.rank;
    j["tier"] = l.tier;
    const auto bytes = [&j](const std::string& name, double value) {
      j[name + "_bytes"] = plain(std::ceil(value));
    };
    for (const LedgerPart& part : kLedgerParts) {
      bytes(part.name, part.of(l));
    }
    bytes("total", l.total());
    bytes("capacity", l.capacity);
    lines.push_back(std::move(j));
  }
  return lines;
}

}  // namespace

std::string hash_of_ids(std::span<const std::int64_t> ids) {
  std::string bytes;
  for (const std::int64_t id : ids) {
    for (unsigned byte = 0; byte < 8; ++byte) {
      bytes += static_cast<char>(static_cast<std::uint64_t>(id) >> (8 * byte) & 0xff);
    }
  }
  return fmt::format("{:016x}", fnv1a(bytes));
}

namespace {

/// Which rows are hot: in the shortest form that says so for good.
OrderedJson order_json(const PlanTable& t) {
  constexpr std::size_t kMostListed = 1 << 16;
  const RowOrder& order = *t.order;
  if (order.seed()) {
    return {{"seed", *order.seed()}};
  }
  if (order.ids().size() > kMostListed && !t.order_file.empty()) {
    return {{"indices", t.order_file}, {"hash", hash_of_ids(order.ids())}};
  }
  return {{"ids", order.ids()}};
}

OrderedJson plan_tables_json(const EmbeddingPlan& p) {
  OrderedJson tables = OrderedJson::array();
  for (const PlanTable& t : p.tables) {
    OrderedJson table;
    table["name"] = t.name;
    table["row_order"] = t.frequency_order ? "frequency" : "workload";
    if (t.order != nullptr) {
      table["hot"] = order_json(t);
    }
    table["shards"] = OrderedJson::array();
    for (const PlanShard& s : t.shards) {
      OrderedJson shard;
      shard["rows"] = s.rows;
      shard["columns"] = s.columns;
      shard["sharding"] = name_in(sharding_names(), s.sharding);
      shard["tier"] = s.tier;
      shard["groups"] = s.groups;
      shard["split"] = name_in(split_names(), s.split);
      if (s.cache_bytes > 0) {
        shard["cache"] = {{"bytes", plain(s.cache_bytes)},
                          {"policy", name_in(cache_policy_names(), s.cache_policy)}};
      }
      table["shards"].push_back(std::move(shard));
    }
    tables.push_back(std::move(table));
  }
  return tables;
}

/// On one line, with a blank after each comma and colon.
std::string line(const OrderedJson& value) {
  if (!value.is_structured()) {
    return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }
  std::string out = value.is_object() ? "{" : "[";
  for (const auto& [key, item] : value.items()) {
    out += out.size() > 1 ? ", " : "";
    out += value.is_object() ? line(OrderedJson(key)) + ": " + line(item) : line(item);
  }
  return out + (value.is_object() ? "}" : "]");
}

/// Lists of numbers and short values below the top stay on one line.
bool fits_one_line(const OrderedJson& value, std::size_t depth) {
  constexpr std::size_t kLine = 150;
  const auto leaf = [](const OrderedJson& v) { return !v.is_structured() || v.empty(); };
  if (leaf(value) || (value.is_array() && std::all_of(value.begin(), value.end(), leaf))) {
    return true;
  }
  return depth > 0 && value.size() <= 16 && line(value).size() <= kLine;
}

void print(std::string& out, const OrderedJson& value, int indent, std::size_t depth) {
  if (fits_one_line(value, depth)) {
    out += line(value);
    return;
  }
  const std::string pad((depth + 1) * static_cast<std::size_t>(indent), ' ');
  out += value.is_object() ? "{" : "[";
  bool first = true;
  for (const auto& [key, item] : value.items()) {
    out += (first ? "\n" : ",\n") + pad;
    first = false;
    if (value.is_object()) {
      out += line(OrderedJson(key)) + ": ";
    }
    print(out, item, indent, depth + 1);
  }
  out += "\n" + std::string(depth * static_cast<std::size_t>(indent), ' ') +
         (value.is_object() ? "}" : "]");
}

}  // namespace

OrderedJson plain(double v) {
  STEPCAST_CHECK(std::isfinite(v), "{} has no JSON form", v);
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (v == std::floor(v) && std::abs(v) < kExact && !(v == 0 && std::signbit(v))) {
    return static_cast<std::int64_t>(v);
  }
  return v;
}

std::string pretty(const OrderedJson& value, int indent) {
  if (indent < 0) {
    return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }
  std::string out;
  print(out, value, indent, 0);
  return out + "\n";
}

OrderedJson plan_json(const EmbeddingPlan& p) {
  OrderedJson j;
  j["stepcast"] = 1;
  j["kind"] = "embedding";
  j["workload"] = p.workload;
  j["system"] = p.system;
  j["devices"] = p.devices;
  if (p.sync_interval > 0) {
    j["sync_interval"] = p.sync_interval;
  }
  if (p.dedup) {
    j["dedup"] = "ikjt";
  }
  for (const PlanSetting& s : p.made_for) {
    const OrderedJson value = OrderedJson::parse(s.value, nullptr, false);
    j["made_for"][s.key] = value.is_discarded() ? OrderedJson(s.value) : value;
  }
  if (p.predicted_step > 0) {
    j["predicted_step_s"] = p.predicted_step;
    j["lower_bound_s"] = p.lower_bound;
    j["gap"] = p.gap;
  }
  const OrderedJson tables = plan_tables_json(p);
  j["content_hash"] = fmt::format("{:016x}", fnv1a(tables.dump()));
  j["tables"] = tables;
  if (!p.ledger.empty()) {
    j["ledger"] = ledger_json(p.ledger);
  }
  return j;
}

std::string workload_to_json(const Workload& w, int indent) {
  return pretty(workload_json(w), indent);
}
std::string device_to_json(const Device& d, int indent) { return pretty(device_json(d), indent); }
std::string system_to_json(const System& s, int indent, DeviceAs device) {
  OrderedJson j = system_json(s);
  if (device == DeviceAs::kName) {
    j["device"] = s.device.name;
  }
  return pretty(j, indent);
}
std::string plan_to_json(const EmbeddingPlan& p, int indent) {
  return pretty(plan_json(p), indent);
}

}  // namespace stepcast::config
