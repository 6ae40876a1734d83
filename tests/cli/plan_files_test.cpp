// stepcast plan on a recommendation model: from a plan in use, and where a plan is used.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "plan_calls.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;
using nlohmann::json;

TEST_CASE("plan --from reaches no worse plans for more bytes", "[cli][plan][replan]") {
  const Folder folder;
  const std::string used = plan_in_use(folder);
  const double as_it_is = planned_step(used);
  double before = 1e9;
  std::string first;
  for (const char* budget : {"0", "1 MB", "200 MB", "600 MB", "2 GB", "1 TB"}) {
    CAPTURE(budget);
    const std::string out = folder / "next.json";
    const json j = answer(command("plan", {"--from", used, "--max-migrate", budget, "--out", out}));
    const json& r = j.at("replan");
    const double step = r.at("step_s");
    CHECK(step <= before);
    before = step;
    CHECK(r.at("from_step_s").get<double>() == Approx(as_it_is));
    CHECK(j.at("plans").at(0).at("predicted_step_s").get<double>() == step);
    if (std::string(budget) == "0") {
      CHECK(step == Approx(as_it_is));
      CHECK(r.at("migrated_bytes") == 0);
      CHECK(j.at("plans").at(0).at("tables") == json::parse(text_of(used)).at("tables"));
    } else {
      std::int64_t received = 0;
      for (const json& rank : j.value("moved_ranks", json::array())) {
        received += rank.at("received_bytes").get<std::int64_t>();
      }
      CHECK(received == r.at("migrated_bytes").get<std::int64_t>());
    }
    // The written plan takes the step that was promised.
    CHECK(planned_step(out) == Approx(step));
  }
  CHECK(before < as_it_is * 0.99);
  const auto twice = command("plan", {"--from", used, "--max-migrate", "600 MB"});
  CHECK(call(twice).out == call(twice).out);
}

TEST_CASE("plan --from refuses what it cannot follow", "[cli][plan][replan]") {
  const Folder folder;
  const std::string used = plan_in_use(folder);
  rejected(command("plan", "--max-migrate '1 GB'"), "--from");
  rejected(command("plan", {"--from", used, "--max-migrate", "much"}), "--max-migrate");
  rejected(command("plan", {"--from", used, "--max-migrate", "-1"}), "--max-migrate");
  rejected(command("plan", {"--from", used, "--max-migrate", "40"}), "the unit is missing");
  rejected(command("plan", {"--from", used, "--compare"}), "--compare");
  rejected(command("plan", {"--from", folder / "none.json"}), "none.json");
  rejected(command("plan", {"--set", "embedding.plan=" + used}), "--from FILE");
  rejected(command("plan", "--set embedding.plan=row_wise"), "--from FILE");
}

TEST_CASE("plan --from follows tables that come and go, and other numbers of devices",
          "[cli][plan][replan]") {
  const Folder folder;
  const std::string header = "name,rows,dim,pooling,zipf\n";
  const auto tables = [](const std::vector<std::string>& names) {
    std::string lines;
    for (const std::string& n : names) {
      lines += n + ",400000,64,20,1.05\n";
    }
    return lines;
  };
  const std::string before = folder.file("before.csv", header + tables({"a", "b", "c", "d"}));
  const std::string after = folder.file("after.csv", header + tables({"a", "b", "d", "e"}));
  const auto plan = [](const std::string& csv, const std::string& devices, const Words& more) {
    return Words{"plan", csv, "-n", devices} + "--set system=dgx-h100 --set batch.global=16384" +
           more;
  };
  const std::string used = folder / "used.json";
  const auto from = [&](const std::string& csv, const std::string& devices, const Words& more) {
    return answer(plan(csv, devices, Words{"--from", used} + more));
  };
  succeeded(plan(before, "8", {"--out", used, "--no-row-replication", "--device-memory-only"}));
  CHECK(json::parse(text_of(used)).at("workload") == "before");

  const std::string next = folder / "next.json";
  const json other = from(after, "8", {"--max-migrate", "0", "--out", next});
  CHECK(other.at("carried_over").at("added") == json::array({"e"}));
  CHECK(other.at("carried_over").at("removed") == json::array({"c"}));
  CHECK(other.at("replan").at("migrated_bytes") == 0);
  const json old_tables = json::parse(text_of(used)).at("tables");
  const json new_tables = json::parse(text_of(next)).at("tables");
  REQUIRE(new_tables.size() == 4);
  CHECK(new_tables[0] == old_tables[0]);
  CHECK(new_tables[1] == old_tables[1]);
  CHECK(new_tables[2] == old_tables[3]);
  CHECK(new_tables[3].at("name") == "e");

  // The same tables a day later: rows stay, and a step that is no shorter is no row of the answer.
  const std::string grown = folder.file(
      "before.csv.json",
      R"({"workload": {"kind": "dlrm",
    "name": "before", "dense_features": 1, "bottom_mlp": [64], "interaction": {"kind": "cat"},
    "top_mlp": [1], "tables": [)" +
          [] {
            std::string all;
            for (const char* n : {"a", "b", "c", "d"}) {
              all += std::string(all.empty() ? "" : ", ") + R"({"name": ")" + n +
                     R"(", "rows": 520000, "dim": 64, "pooling": 20, "access": {"zipf": 1.05}})";
            }
            return all;
          }() +
          "]}}");
  const json more = from(grown, "8", {"--max-migrate", "0", "--out", next});
  CHECK(more.at("carried_over").at("grown") == json::array({"a", "b", "c", "d"}));
  CHECK(more.at("carried_over").at("added").empty());
  const json day = json::parse(text_of(next)).at("tables");
  for (std::size_t t = 0; t < 4; ++t) {
    CHECK(day[t].at("shards")[0].at("groups") == old_tables[t].at("shards")[0].at("groups"));
  }
  double last = 1e9;
  const json free = from(grown, "8", {});
  for (const json& row : free.at("reachable")) {
    CHECK(row.at("step_s").get<double>() < last);
    last = row.at("step_s").get<double>() * (1 - 5e-4);
  }

  // Both days in one question, the job of now as any command takes it.
  const json both = from(before, "8", {"--drift", grown, "--max-migrate", "0"});
  CHECK(both.at("carried_over") == more.at("carried_over"));
  CHECK(both.at("drift").at("step_now_s") == more.at("replan").at("step_s"));
  // The same rows are hot: the hottest 4,000 of 400,000 are as many of 520,000.
  const auto head = [](std::int64_t rows) {
    double sum = 0;
    for (std::int64_t k = rows; k > 0; --k) {
      sum += std::pow(static_cast<double>(k), -1.05);
    }
    return sum;
  };
  for (const json& t : both.at("tables")) {
    CHECK(t.at("hot_rows") == 4000);
    CHECK(t.at("covered_now").get<double>() == Approx(head(4000) / head(520'000)).epsilon(1e-3));
  }

  // Blocks of 50,000 rows become blocks of 65,000. Rank 0 lacks 15,000 of those that there were,
  // then 30,000, 45,000, 60,000, 65,000, 65,000 and 10,000 (350,000 is where rank 7's begin): of
  // 64 fp32 columns without state.
  const std::string blocks = folder.file("blocks.json", [] {
    std::string all;
    for (const char* n : {"a", "b", "c", "d"}) {
      all += std::string(all.empty() ? "" : ", ") + R"({"name": ")" + n +
             R"(", "row_order": "workload", "shards": [
          {"rows": [0, 400000], "columns": [0, 64], "sharding": "row_wise", "split": "block",
           "tier": "hbm", "groups": [[0, 1, 2, 3, 4, 5, 6, 7]]}]})";
    }
    return R"({"stepcast": 1, "kind": "embedding", "workload": "before", "system": "dgx-h100",
                "devices": 8, "tables": [)" +
           all + "]}";
  }());
  const json moved = answer(plan(before, "8",
                                 {"--from", blocks, "--drift", grown, "--set",
                                  "optimizer.embedding=sgd", "--max-migrate", "0"}));
  CHECK(moved.at("drift").at("migrated_bytes") == 4 * 290'000 * 64 * 4);
  const json on_four = answer(plan(before, "8", {"--from", used, "--drift", "devices=4"}));
  CHECK(on_four.at("carried_over").at("devices_now") == 4);

  const json fewer = from(before, "4", {"--out", next});
  CHECK(fewer.at("carried_over").at("devices_before") == 8);
  CHECK(fewer.at("carried_over").at("devices_now") == 4);
  CHECK(fewer.at("replan").at("migrated_bytes").get<std::int64_t>() > 0);
  const Words predicted{"predict", before, "-n", "4", "--set", "embedding.plan=" + next};
  CHECK(step_of(predicted + "--set system=dgx-h100 --set batch.global=16384") ==
        Approx(fewer.at("replan").at("step_s").get<double>()));
  // Room that is to stay free counts here too: with next to none left no plan in reach fits less.
  const double full = answer("show dgx-h100").at("device").at("memory");
  const json roomy = from(before, "8", "--memory-headroom '10 GB'");
  const json& line = roomy.at("plans").at(0).at("ledger").at(0);
  CHECK(line.at("tier") == "hbm");
  CHECK(line.at("capacity_bytes").get<double>() == Approx(full - 10e9));
}

TEST_CASE("a tiered plan says which ids are hot, can be deployed and goes stale",
          "[cli][plan][drift]") {
  const Folder folder;
  // 100,000 recorded lookups of a million rows, of ranks 10^6 u^12 with u uniform: the k hottest
  // take (k / 10^6)^(1/12) of them. Today the same law over other rows.
  std::string then;
  std::string now;
  std::uint64_t state = 7;
  for (int i = 0; i < 100'000; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const double u = static_cast<double>(state >> 11) * 0x1p-53;
    const auto rank = static_cast<std::int64_t>(1'000'000 * std::pow(u, 12));
    then += std::to_string(rank * 7919 % 1'000'000) + "\n";
    now += std::to_string((rank * 7919 + 30'011) % 1'000'000) + "\n";
  }
  folder.file("then.txt", then);
  folder.file("now.txt", now);
  const auto csv = [&folder](const std::string& name) {
    return folder.file(
        name + ".csv",
        "name,rows,dim,pooling,mode,indices\nh,1000000,128,60,sequence," + name + ".txt\n");
  };
  const std::string before = csv("then");
  const std::string after = csv("now");
  const auto with = [](const std::string& verb, const std::string& job, const Words& more) {
    return Words{verb, job} + "-n 16 --set system=dgx-h100 --set batch.global=32768" + more;
  };
  const std::string plan = folder / "plan.json";
  const std::string remap = folder / "remap.npy";
  const json made = answer(with("plan", before, {"--out", plan, "--remap-out", remap}));
  const json table = json::parse(text_of(plan)).at("tables").at(0);
  REQUIRE(table.at("row_order") == "frequency");
  const json ids = table.at("hot").at("ids");
  const json shards = table.at("shards");
  CHECK(ids.size() == shards.at(shards.size() - 1).at("rows").at(0));

  // The remap is a permutation of all ids that puts the listed ones first.
  const std::string bytes = text_of(remap);
  const std::size_t header = 10 + static_cast<unsigned char>(bytes[8]) +
                             256 * static_cast<std::size_t>(static_cast<unsigned char>(bytes[9]));
  CHECK(bytes.substr(1, 5) == "NUMPY");
  CHECK(header % 64 == 0);
  CHECK_THAT(bytes.substr(10, header - 10),
             Contains("'descr': '<i8'") && Contains("'shape': (1000000,)"));
  REQUIRE(bytes.size() == header + 1'000'000 * 8);
  std::vector<std::int64_t> row_of_id(1'000'000);
  std::memcpy(row_of_id.data(), bytes.data() + header, 1'000'000 * 8);
  for (std::size_t k = 0; k < ids.size(); ++k) {
    CHECK(row_of_id[ids[k].get<std::size_t>()] == static_cast<std::int64_t>(k));
  }
  std::vector<std::int64_t> all(row_of_id.size());
  std::iota(all.begin(), all.end(), 0);
  std::sort(row_of_id.begin(), row_of_id.end());
  CHECK((row_of_id == all));

  // The plan costs what it says, and much more once other rows are hot.
  const auto step = [&](const std::string& job) {
    return step_of(with("predict", job, {"--set", "embedding.plan=" + plan}));
  };
  const double as_planned = made.at("plans").at(0).at("predicted_step_s");
  CHECK(step(before) == Approx(as_planned));
  const double stale = step(after);
  CHECK(stale > 2 * as_planned);
  const json drift = answer(with("plan", before, {"--from", plan, "--drift", after}));
  CHECK(drift.at("drift").at("step_then_s").get<double>() == Approx(as_planned));
  CHECK(drift.at("drift").at("step_now_s").get<double>() == Approx(stale));
  CHECK(drift.at("tables").at(0).at("covered_now").get<double>() <
        0.5 * drift.at("tables").at(0).at("covered_then").get<double>());
  CHECK(drift.at("drift").at("replanned_step_s").get<double>() < 1.2 * as_planned);
  CHECK(drift.at("drift").at("migrated_bytes").get<std::int64_t>() > 0);
  CHECK_THAT(call(with("plan", before, {"--from", plan, "--drift", after})).out,
             Contains("A new plan pays after") && Contains("because of the drift"));

  rejected(with("plan", before, {"--remap-out", folder / "remap.txt"}), "FILE.npy or FILE.npz");
  rejected(
      with("plan", before, {"--no-row-replication", "--device-memory-only", "--remap-out", remap}),
      "nothing is to be remapped");
}

TEST_CASE("predict says where a plan was made for another job", "[cli][plan]") {
  const Folder folder;
  const std::string file = plan_in_use(folder);
  const json same =
      answer(command("predict",
                     "--set workload.tables[3].pooling=600 --set workload.tables[5].pooling=500") +
             Words{"--set", "embedding.plan=" + file});
  for (const json& w : same.at("warnings")) {
    CHECK_THAT(w.get<std::string>(), !Contains("made for another job"));
  }
  CHECK(same.at("iteration_time_s").get<double>() ==
        Approx(json::parse(text_of(file)).at("predicted_step_s").get<double>()));
  const Outcome other =
      call(command("predict",
                   "--set batch.global=8192 --set parallel.dlrm_pipeline=sparse_dist "
                   "--set formats.all_to_all_forward=fp16") +
           Words{"--set", "embedding.plan=" + file});
  CHECK_THAT(other.out, Contains("made for another job") &&
                            Contains("batch.global 8192 (made for 16384)") &&
                            Contains("parallel.dlrm_pipeline sparse_dist (made for none)") &&
                            Contains("formats.all_to_all_forward fp16 (made for fp32)"));
}

TEST_CASE("predict takes the plan of a quick search where it is asked to", "[cli][plan]") {
  const auto on = [](const Words& more) { return "mlperf-dlrm-v2 -n 64" + more; };
  const json rule = answer(on({}));
  const Words search = on("--set embedding.plan=search");
  const Outcome said = call(search);
  CHECK_THAT(said.out, Contains("tables search: ") && Contains("quick search"));
  CHECK(call(search).out == said.out);
  const json found = answer(search);
  CHECK(found.at("embedding_plan").at("choice") == "search");
  CHECK(found.at("embedding_plan").at("by_rule") == false);
  CHECK(found.at("iteration_time_s").get<double>() <
        0.7 * rule.at("iteration_time_s").get<double>());
  CHECK_THAT(call(on({})).out, Contains("embedding.plan=search finds one"));
}

TEST_CASE("explain tells two embedding plans apart", "[cli][explain][replan]") {
  const Folder folder;
  const std::string used = plan_in_use(folder);
  const std::string next = folder / "next.json";
  const json replanned = answer(command("plan", {"--from", used, "--out", next}));
  const json j = answer({"explain", used, next, "--set", "batch.global=16384"});
  CHECK(j.at("moved_tables") == replanned.at("moved_tables"));
  CHECK(j.at("moved_levels") == replanned.at("moved_levels"));
  CHECK(j.at("moved_ranks").size() == 8);
  CHECK(j.at("summary").at(1).at("step_s").get<double>() ==
        Approx(replanned.at("replan").at("step_s").get<double>()));
  // Memory that the change takes and gives is the difference of the two ledgers.
  for (const json& m : j.at("memory")) {
    CHECK(m.at("before_bytes") != m.at("after_bytes"));
    CHECK(m.at("after_bytes").get<double>() <= m.at("capacity_bytes").get<double>());
  }
  const json same = answer({"explain", used, used, "--set", "batch.global=16384"});
  CHECK(same.at("moved_tables").empty());
  CHECK(same.at("moved_levels").empty());
}

TEST_CASE("plan --drift says what another access does to a plan", "[cli][plan][drift]") {
  const Folder folder;
  const std::string used = plan_in_use(folder);
  const json none =
      answer(command("plan", {"--from", used, "--drift", "workload.tables[2].pooling=80"}));
  CHECK(none.at("drift").at("step_now_s").get<double>() > 0);
  // Two laws with one seed keep their order of rows; another seed has none of the hot rows left.
  const auto access = [](const std::string& seed, const std::string& exponent) {
    return "workload.tables[4].access={\"zipf\": " + exponent + ", \"seed\": " + seed + "}";
  };
  const auto drifted = [&](const std::string& now) {
    return answer(command("plan", {"--set", access("3", "1.1"), "--from", used, "--drift", now}));
  };
  const json same = drifted(access("3", "1.1"));
  for (const json& t : same.at("tables")) {
    CHECK(t.at("covered_then") == t.at("covered_now"));
  }
  CHECK(same.at("drift").at("step_then_s") == same.at("drift").at("step_now_s"));
  const json flatter = drifted(access("3", "0.6"));
  CHECK(flatter.at("tables")[0].at("covered_now").get<double>() <
        flatter.at("tables")[0].at("covered_then").get<double>());
  CHECK(flatter.at("tables")[0].at("distinct_now").get<double>() >
        flatter.at("tables")[0].at("distinct_then").get<double>());
  const json other = drifted(access("4", "1.1"));
  // One row in a hundred is hot: of random rows about 1 % of lookups, give or take the hottest.
  CHECK(other.at("tables")[0].at("covered_now").get<double>() < 0.2);
  CHECK(other.at("tables")[0].at("covered_then").get<double>() > 0.5);
  CHECK(flatter.at("tables")[0].at("table") == other.at("tables")[0].at("table"));
  rejected(command("plan", {"--drift", access("4", "1.1")}), "--from");
  rejected(command("plan", {"--from", used, "--drift", "llama3-8b"}), "no embedding tables");
  // A file may say the job of now whole, as any other command takes it.
  const auto job = [&](const char* name, const char* batch) {
    return folder.file(name, std::string(R"({"workload": "rm2", "system": "dgx-h100", "devices": 8,
                             "batch": {"global": )") +
                                 batch + "}}");
  };
  const json whole = answer({"plan", job("then.json", "16384"), "--from", used, "--drift",
                             job("now.json", "8192")})
                         .at("drift");
  CHECK(whole.at("step_now_s").get<double>() < 0.8 * whole.at("step_then_s").get<double>());
  // Without drift a new plan saves what searching again saves, and nothing is put down to drift.
  const json& of_same = same.at("drift");
  CHECK(of_same.at("saved_s").get<double>() == of_same.at("saved_by_searching_s").get<double>());
  CHECK(of_same.at("searched_then_step_s") == of_same.at("replanned_step_s"));
  // A bound on the bytes and a file for the plan go with it; 0 keeps the plan in use.
  const std::string next = folder / "next.json";
  const json still = answer(command(
      "plan", {"--from", used, "--drift", access("4", "1"), "--max-migrate", "0", "--out", next}));
  CHECK(still.at("drift").at("migrated_bytes") == 0);
  CHECK(json::parse(text_of(next)).at("tables") == json::parse(text_of(used)).at("tables"));
}

TEST_CASE("predict and sweep say which embedding plan they used", "[cli][plan]") {
  const Folder folder;
  const std::string file = plan_in_use(folder);
  const Outcome by_rule = call(command("predict"));
  CHECK_THAT(by_rule.out, Contains("tables auto: ") && Contains("built-in heuristic"));
  const Outcome planned = call(command("predict", {"--set", "embedding.plan=" + file}));
  CHECK_THAT(planned.out, Contains("tables " + file + ": ") && !Contains("heuristic"));
  const json rule = answer(command("predict"))["embedding_plan"];
  CHECK(rule["choice"] == "auto");
  CHECK(rule["by_rule"] == true);
  std::int64_t tables = 0;
  for (const json& part : rule["parts"]) {
    tables += part["tables"].get<std::int64_t>();
  }
  CHECK(tables == 32);
  const Words both{"--set", "embedding.plan=auto," + file};
  CHECK_THAT(call(command("sweep", both)).out, Contains("1 point sharded the embedding tables"));
}

TEST_CASE("a plan is never slower than the rule that predict takes without one", "[cli][plan]") {
  for (const char* workload : {"mlperf-dlrm-v2", "rm3"}) {
    CAPTURE(workload);
    const json plan = answer({"plan", workload, "-n", "16"})["plans"][0];
    const double step = plan["predicted_step_s"].get<double>();
    CHECK(step <= step_of({workload, "-n", "16"}) * (1 + 1e-9));
    CHECK(plan["lower_bound_s"].get<double>() <= step * (1 + 1e-9));
  }
}

TEST_CASE("plans for replicas that wait several steps", "[cli][plan]") {
  const Folder folder;
  const Words job{"plan", STEPCAST_SOURCE_DIR "/docs/examples/tiered-sequence.json"};
  const std::string file = folder / "seldom.json";
  const json often = answer(job);
  const json best = answer(job + Words{"--sync-interval", "4", "--out", file})["plans"][0];
  CHECK(best["sync_interval"] == 4);
  CHECK_FALSE(often["plans"][0].contains("sync_interval"));
  CHECK(best["predicted_step_s"].get<double>() <
        often["plans"][0]["predicted_step_s"].get<double>());
  // The file is enough: the job need not say it again, and must not say otherwise.
  const Words predict{"predict", job[1], "--set", "embedding.plan=" + file};
  const json again = answer(predict);
  CHECK(again["job"]["embedding"]["sync_interval"] == 4);
  CHECK(again["iteration_time_s"].get<double>() ==
        Catch::Detail::Approx(best["predicted_step_s"].get<double>()).epsilon(1e-6));
  rejected(predict + "--set embedding.sync_interval=2", "made for 4 steps");
  rejected(job + "--sync-interval 2.5", "--sync-interval");
  rejected(job + "--sync-interval 0", "--sync-interval");
  rejected(job + Words{"--sync-interval", "2", "--export", "torchrec=" + (folder / "t.json")},
           "every 2 steps");
}

TEST_CASE("an embedding plan leaves the headroom that is asked for, or says how full it is",
          "[cli][plan]") {
  const Words plan = command("plan", "--no-row-replication --device-memory-only");
  double full = 0;
  const json report = answer(plan);
  for (const json& line : report["plans"][0].at("ledger")) {
    full = std::max(full, line.at("total_bytes").get<double>());
  }
  const auto planned = [&](double memory, const Words& more) {
    return call(plan + more + Words{"--set", fmt::format("system.device.memory={:.0f} B", memory)});
  };
  CHECK_THAT(planned(1.02 * full, {}).out, Contains("of the fullest device's memory is free"));
  // Headroom that was asked for is not warned of; where tables do not leave it, no plan fits.
  const Outcome roomy = planned(1.2 * full, "--memory-headroom 16%");
  INFO(roomy.err);
  CHECK(roomy.code == 0);
  CHECK_THAT(roomy.out, !Contains("is free"));
  CHECK(planned(1.02 * full, "--memory-headroom 50%").code == 1);
}
