// Runs that save their state and go on from it: after a kill at any step, on other ranks, never
// from what is half written.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "command_line.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// `run` of the job, without warm-up.
class Runs {
 public:
  explicit Runs(int ranks = 2) : ranks_(std::to_string(ranks)) {}
  [[nodiscard]] Outcome run(int steps, const Words& more, const Words& preloaded = {}) const {
    Words all = preloaded + Words{STEPCAST_EXECUTABLE, "run", job_, "--steps"} +
                Words{std::to_string(steps), "--warmup", "0", "--format", "json"} + more;
    if (std::find(more.begin(), more.end(), "--ranks") == more.end()) {
      all = all + Words{"--ranks", ranks_};
    }
    if (!preloaded.empty()) {
      all = Words{std::string("LD_PRELOAD=") + PRELOADED_RANK} + all;
    }
    return execute("/usr/bin/env", all, "", 600);
  }
  [[nodiscard]] std::vector<double> losses(int steps, const Words& more) const {
    return losses_of(run(steps, more));
  }
  [[nodiscard]] const Folder& folder() const { return folder_; }
  /// Steps whose whole state a folder has.
  [[nodiscard]] std::vector<int> saved(const std::string& name) const {
    std::vector<int> steps;
    for (int step = 1; step <= 99; ++step) {
      const std::string number = std::to_string(step);
      if (fs::exists(fs::path(folder_ / name) /
                     ("step-" + std::string(8 - number.size(), '0') + number) /
                     "checkpoint.json")) {
        steps.push_back(step);
      }
    }
    return steps;
  }

 private:
  Folder folder_;
  std::string ranks_, job_ = folder_.file("tiny.json", kTinyJob);
};

std::vector<double> after(const std::vector<double>& losses, int steps) {
  return {losses.begin() + steps, losses.end()};
}

/// Kills each rank at each step, in the step or while its state is written, by turns; goes on, and
/// compares with a run that nobody killed. Returns by how many kills so many steps were lost.
std::map<int, int> kill_each(const std::vector<int>& ranks, const std::vector<int>& steps) {
  constexpr int kSteps = 20;
  const Runs runs(4);
  const std::vector<double> whole = runs.losses(kSteps, {});
  std::map<int, int> lost;
  for (const int rank : ranks) {
    for (const int step : steps) {
      const std::string place = (rank + step) % 2 == 0 ? "step" : "write";
      CAPTURE(place, rank, step);
      fs::remove_all(runs.folder() / "saved");
      const Words save{"--checkpoint", runs.folder() / "saved", "--every", "1"};
      // A checkpoint's bytes are summed once, before the losses.
      const int at = place == "step" ? step + 1 : step;
      const Outcome killed = runs.run(
          kSteps, save,
          {"DIE_RANK=" + std::to_string(rank), "DIE_IN=" + place, "DIE_AT=" + std::to_string(at)});
      INFO(killed.err);
      REQUIRE(killed.code == 4);
      CHECK(killed.out.empty());
      const std::vector<int> saved = runs.saved("saved");
      const int done = saved.empty() ? 0 : saved.back();
      // States that were being written, or not yet named, are lost.
      REQUIRE((done == step - 1 || done == std::max(0, step - 2)));
      ++lost[step - done];
      const Words on = done > 0 ? Words{"--resume", runs.folder() / "saved"} : Words{};
      REQUIRE(runs.losses(kSteps - done, save + on) == after(whole, done));
      CHECK(runs.saved("saved").size() == kSteps);
      for (const auto& entry : fs::directory_iterator(runs.folder() / "saved")) {
        CHECK(entry.path().extension() != ".partial");
      }
    }
  }
  return lost;
}

}  // namespace

TEST_CASE("a run whose rank is killed goes on with the same losses", "[cli][mpi][checkpoint]") {
  kill_each({0, 3}, {2, 5});
}

TEST_CASE("a run goes on with the same losses after a kill of each rank at each step",
          "[cli][mpi][long][checkpoint]") {
  std::vector<int> steps(20);
  std::iota(steps.begin(), steps.end(), 1);
  for (int rank = 0; rank < 4; ++rank) {
    DYNAMIC_SECTION("rank " << rank) {
      int kills = 0;
      std::string text;
      for (const auto& [steps_lost, times] : kill_each({rank}, steps)) {
        kills += times;
        text += "; " + std::to_string(times) + " lost " + std::to_string(steps_lost);
      }
      WARN(kills << " kills, half while a state was written" << text
                 << " steps; all losses are equal");
      CHECK(kills == 20);
    }
  }
}

TEST_CASE("a run goes on on other ranks, and as the same job only", "[cli][mpi][checkpoint]") {
  const Runs two;
  const std::vector<double> whole =
      two.losses(12, {"--checkpoint", two.folder() / "saved", "--every", "5"});
  CHECK(two.saved("saved") == std::vector<int>{5, 10, 12});
  const std::string fifth = two.folder() / "saved/step-00000005";
  CHECK(two.losses(7, {"--resume", fifth}) == after(whole, 5));
  for (const char* ranks : {"1", "4"}) {
    const std::vector<double> others = two.losses(7, {"--resume", fifth, "--ranks", ranks});
    for (std::size_t i = 0; i < others.size(); ++i) {
      CHECK(others[i] == Approx(whole[5 + i]).epsilon(1e-6));
    }
  }
  const auto fails = [&](const Words& more, const std::string& what) {
    rejected(two.run(7, more), what);
  };
  fails({"--resume", fifth, "--set", "batch.global=128"}, "batch.global was 64, and is 128 here");
  fails({"--resume", fifth, "--set", "optimizer.dense=sgd"}, "optimizer.dense was");
  fails({"--resume", fifth, "--seed", "7"}, "--seed was 0, and is 7 here");
  fails({"--resume", two.folder() / "nothing"}, "holds no checkpoint");
  fails({"--resume", two.folder() / "tiny.json"}, "holds no checkpoint");
}

TEST_CASE("a damaged checkpoint is named, file by file", "[cli][mpi][checkpoint]") {
  const Runs runs;
  const std::string saved = runs.folder() / "saved";
  CHECK(runs.run(4, {"--checkpoint", saved, "--every", "2"}).code == 0);
  const std::string last = saved + "/step-00000004/";
  const auto fails = [&](const std::string& file, const std::string& text,
                         const std::string& what) {
    CAPTURE(file, what);
    const std::string whole = text_of(last + file);
    std::ofstream(last + file, std::ios::binary) << text;
    rejected(runs.run(1, {"--resume", saved}), last + file, what);
    std::ofstream(last + file, std::ios::binary) << whole;
  };
  std::string flipped = text_of(last + "rank-00001.state");
  flipped[flipped.size() - 3] ^= 1;
  fails("rank-00001.state", flipped, "is damaged; resume from an earlier step's folder");
  fails("rank-00001.state", flipped.substr(0, 100), "is cut off");
  fails("rank-00001.state", "", "");
  fails("rank-00001.state", text_of(saved + "/step-00000002/rank-00001.state"),
        "belongs to another checkpoint");
  fails("checkpoint.json", "{", "");
  fails("checkpoint.json", "[]", "describes no checkpoint of this version");
  fails("checkpoint.json", R"({"stepcast_checkpoint": 2, "step": 4, "job": {}})",
        "of this version");
  fails("checkpoint.json", R"({"stepcast_checkpoint": 1, "step": -4, "job": {}})",
        "of this version");
  fails("checkpoint.json", text_of(saved + "/step-00000002/checkpoint.json"),
        "is of step 2, the state beside it of step 4");
  fs::remove(last + "rank-00001.state");
  rejected(runs.run(1, {"--resume", saved}), "rank-00001.state", "cannot be read");
  // A folder that has no manifest is none, and the one before is taken.
  fs::remove(last + "checkpoint.json");
  const Outcome earlier = runs.run(1, {"--resume", saved});
  CHECK(earlier.code == 0);
  CHECK_THAT(earlier.err, Contains("2 steps were done"));
}

TEST_CASE("the latest checkpoints are kept where a number of them is asked for",
          "[cli][mpi][checkpoint]") {
  const Runs runs;
  const auto save = [&](const Words& more) {
    return Words{"--checkpoint", runs.folder() / "saved", "--every", "2"} + more;
  };
  fs::create_directories(runs.folder() / "saved/step-00000001");  // half of one counts for none
  fs::create_directories(runs.folder() / "saved/mine");
  CHECK(runs.run(10, save({"--keep", "3"})).code == 0);
  CHECK(runs.saved("saved") == std::vector<int>{6, 8, 10});
  CHECK(fs::exists(runs.folder() / "saved/step-00000001"));
  CHECK(fs::exists(runs.folder() / "saved/mine"));
  CHECK(runs.run(4, save({"--resume", runs.folder() / "saved"})).code == 0);
  CHECK(runs.saved("saved") == std::vector<int>{6, 8, 10, 12, 14});
  // From an earlier step: what was saved of later ones stays until it is written anew.
  const Words again = save({"--resume", runs.folder() / "saved/step-00000008", "--keep", "1"});
  CHECK(runs.run(4, again).code == 0);
  CHECK(runs.saved("saved") == std::vector<int>{12, 14});
  rejected({"run", runs.folder() / "tiny.json", "--keep", "2"}, "--keep: needs --checkpoint");
}

TEST_CASE("runs that save in one folder at once are kept apart, and a full disk leaves whole ones",
          "[cli][mpi][checkpoint]") {
  const Runs runs;
  const std::string saved = runs.folder() / "saved";
  const Words save{"--checkpoint", saved, "--every", "2"};
  CHECK(runs.run(2, save).code == 0);
  const int other = open((saved + "/lock").c_str(), O_RDWR);
  REQUIRE(flock(other, LOCK_EX | LOCK_NB) == 0);
  const Outcome kept_out = runs.run(4, save);
  INFO(kept_out.err);
  CHECK(kept_out.code == 4);
  CHECK_THAT(kept_out.err, Contains(saved + ": another run saves there"));
  close(other);
  // No room for the second state of a rank.
  const Outcome full = runs.run(6, save, "FULL_AT=2");
  INFO(full.err);
  CHECK(full.code == 4);
  CHECK_THAT(full.err,
             Contains("step-00000004.partial/rank-0000") && Contains("No space left on device"));
  CHECK(runs.saved("saved") == std::vector<int>{2});
  CHECK(runs.losses(2, {"--resume", saved}) == after(runs.losses(4, {}), 2));
}

TEST_CASE("training goes on while a state is written", "[cli][mpi][checkpoint]") {
  const Runs runs;
  const Outcome outcome =
      runs.run(40, {"--checkpoint", runs.folder() / "saved", "--every", "20"},
               {"WRITE_MS=1500", "STEPS_MEANWHILE=" + (runs.folder() / "steps")});
  CHECK(losses_of(outcome) == runs.losses(40, {}));
  CHECK(runs.saved("saved") == std::vector<int>{20, 40});
  // Two ranks, twenty steps each while the first state is written.
  CHECK(text_of(runs.folder() / "steps").size() > 10);
  const json cost = json::parse(outcome.out).at("checkpoints");
  CHECK(cost.at("write_s").get<double>() >= 1.5);
  CHECK(cost.at("stall_s") < cost.at("write_s"));
}

TEST_CASE("what checkpoints cost stands beside what flows predict", "[cli][mpi][checkpoint]") {
  const Runs runs;
  const json answer =
      document(runs.run(6, {"--checkpoint", runs.folder() / "saved", "--every", "2"}));
  const json& cost = answer.at("checkpoints");
  CHECK(cost.at("count") == 3);
  CHECK(cost.at("bytes") == cost.at("predicted_bytes"));
  CHECK(cost.at("stall_s") > 0);
  CHECK(cost.at("predicted_stall_s") > 0);
  rejected({"run", runs.folder() / "tiny.json", "--every", "2"}, "--checkpoint");
}
