#include <algorithm>
#include <set>

#include "core/config/internal/job_tables.h"
#include "core/config/internal/loaders.h"

namespace stepcast::config {
namespace {

const std::vector<std::pair<std::string, Flow::What>>& what_names() {
  static const std::vector<std::pair<std::string, Flow::What>> names{
      {"parameters", Flow::What::kParameters},
      {"state", Flow::What::kState},
      {"embedding_diff", Flow::What::kEmbeddingDiff}};
  return names;
}

const std::vector<std::pair<std::string, Flow::Stall>>& stall_names() {
  static const std::vector<std::pair<std::string, Flow::Stall>> names{
      {"none", Flow::Stall::kNone},
      {"host_copy", Flow::Stall::kHostCopy},
      {"full", Flow::Stall::kFull}};
  return names;
}

void read_bytes(const Value& v, const Job& job, Flow& flow) {
  const auto& names = what_names();
  const auto named = std::find_if(names.begin(), names.end(),
                                  [&](const auto& entry) { return v.is(entry.first); });
  if (named == names.end()) {
    if (!v.is_string()) {
      v.fail("an amount such as \"2 TB\", parameters, state or embedding_diff");
    }
    flow.amount = v.amount<Bytes>();
    return;
  }
  flow.what = named->second;
  if (flow.what == Flow::What::kEmbeddingDiff && job.workload.layered() == nullptr) {
    v.reject(
        "found \"embedding_diff\": a transformer has no embedding tables; use state or "
        "parameters");
  }
}

/// How a store is named.
constexpr const char* kStore = R"("via": "storage", "bandwidth": "200 GB/s")";

/// Names of the system that have a bandwidth of their own.
std::vector<std::string> carriers(const System& system) {
  std::vector<std::string> names;
  for (const Tier& t : system.tiers) {
    if (t.bandwidth > BytesPerSecond{}) {
      names.push_back(t.name);
    }
  }
  for (const FabricLevel& l : system.fabric) {
    names.push_back(l.name);
  }
  return names;
}

Flow flow_from(const Value& v, const Job& job) {
  expect_keys(v, flow_table());
  Flow flow;
  flow.name = v.at("name", "a name for the flow").name();
  flow.every = v.at("every", "a period such as \"30 min\"").amount<Seconds>();
  read_bytes(v.at("bytes", "an amount, parameters, state or embedding_diff"), job, flow);
  if (const auto bits = v.find("bits")) {
    flow.bits = bits->integer(1, 8);
    if (flow.what == Flow::What::kAmount) {
      bits->reject("an amount of bytes is not quantised; remove it");
    }
  }
  const Value via = v.at("via",
                         "a tier or fabric level of the system, or a new name with "
                         "its rate next to it: " +
                             std::string(kStore));
  if (!via.is_string()) {
    via.fail("a name in quotes, its rate next to it: " + std::string(kStore));
  }
  flow.via = via.name();
  if (const auto bandwidth = v.find("bandwidth")) {
    flow.bandwidth = bandwidth->amount<BytesPerSecond>();
  } else {
    const std::vector<std::string> known = carriers(job.system);
    if (std::find(known.begin(), known.end(), flow.via) == known.end()) {
      via.reject(
          fmt::format("found \"{}\"; {}, or give the bandwidth of all devices together "
                      "next to it: {}",
                      flow.via, suggestion(flow.via, known), kStore));
    }
    if (flow.via == "hbm") {
      via.reject(fmt::format(
          "found \"hbm\": that is where the bytes already are; ddr is the hosts' memory, a store "
          "is named with its rate: {}",
          kStore));
    }
  }
  if (const auto stall = v.find("stall")) {
    flow.stall = stall->choice(stall_names());
    const bool has_host = std::any_of(job.system.tiers.begin(), job.system.tiers.end(),
                                      [](const Tier& t) { return t.name == "ddr"; });
    if (flow.stall == Flow::Stall::kHostCopy && !has_host) {
      stall->reject(
          fmt::format("found \"host_copy\", but system {} has no tier \"ddr\" to copy to; "
                      "use none or full, or add the tier",
                      job.system.name));
    }
  }
  return flow;
}

}  // namespace

const KeyTable& flow_table() {
  static const KeyTable table{
      needed_fact("name", text_form("a name"), "of the flow", "a name"),
      needed_fact("every", amount_form("30 min"), "its period", "a period"),
      needed_fact("bytes", any_form({choice_form(what_names()), amount_form("2 TB")}),
                  "an amount, or what of the model", "an amount"),
      open_fact("bits", integer_form(1, 8), "of a value of a difference", "as stored"),
      needed_fact("via",
                  text_form("a tier or fabric level of the system, or any name with a bandwidth"),
                  "what carries it", "a tier or fabric level"),
      open_fact("bandwidth", amount_form("200 GB/s"),
                "of all devices together, where via is no part of the system", "of via"),
      usual_fact("stall", choice_form(stall_names()), "what of it holds up the step", "none")};
  return table;
}

std::vector<Flow> flows_from(const Value& v, const Job& job) {
  std::vector<Flow> flows;
  std::set<std::string> names;
  for (const Value& item : v.items("a list of flows")) {
    flows.push_back(flow_from(item, job));
    if (!names.insert(flows.back().name).second) {
      item.reject(fmt::format("\"{}\" is the name of an earlier flow", flows.back().name));
    }
  }
  return flows;
}

OrderedJson flows_json(const std::vector<Flow>& flows) {
  OrderedJson all = OrderedJson::array();
  for (const Flow& f : flows) {
    OrderedJson j{{"name", f.name}, {"every", quantity_text(f.every)}};
    j["bytes"] =
        f.what == Flow::What::kAmount ? quantity_text(f.amount) : name_in(what_names(), f.what);
    if (f.bits > 0) {
      j["bits"] = f.bits;
    }
    j["via"] = f.via;
    if (f.bandwidth > BytesPerSecond{}) {
      j["bandwidth"] = quantity_text(f.bandwidth);
    }
    j["stall"] = name_in(stall_names(), f.stall);
    all.push_back(std::move(j));
  }
  return all;
}

}  // namespace stepcast::config
