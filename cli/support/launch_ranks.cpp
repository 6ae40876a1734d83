#include "cli/support/launch_ranks.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>

#include "cli/print/data_table.h"
#include "cli/version.h"
#include "core/config/document.h"
#include "core/error.h"
#include "core/fnv1a.h"
#include "runtime/launch.h"

namespace stepcast::cli {

namespace {

runtime::Environment environment_of_process() {
  runtime::Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.emplace_back(*entry);
  }
  return environment;
}

runtime::MpiOptions told_on_stderr(runtime::MpiOptions options = {}) {
  options.report = [](const std::string& message) {
    fmt::print(stderr, "stepcast: {}\n", message);
    std::fflush(stderr);
  };
  return options;
}

/// Text that processes of this machine can read as long as this lives; it has no name in any
/// folder, so nothing of it is ever left behind.
class KeptText {
 public:
  explicit KeptText(std::string_view text) : file_(memfd_create("stepcast", MFD_CLOEXEC)) {
    while (file_ >= 0 && !text.empty()) {
      const ssize_t written = write(file_, text.data(), text.size());
      if (written <= 0 && errno != EINTR) {
        break;
      }
      text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(0, written)));
    }
    if (!text.empty()) {
      throw RunError("standard input cannot be stored for the ranks: out of memory");
    }
  }
  ~KeptText() { close(file_); }
  KeptText(const KeptText&) = delete;
  KeptText& operator=(const KeptText&) = delete;

  [[nodiscard]] std::string path() const { return fmt::format("/proc/{}/fd/{}", getpid(), file_); }

 private:
  int file_;
};

/// Whether a launcher started this process. Errors: EnvironmentError for tasks of srun that cannot
/// find each other.
bool launched(const runtime::Environment& environment) {
  const bool is = !runtime::launched_rank(environment).empty();
  if (const int tasks = runtime::tasks_of_step(environment); !is && tasks > 1) {
    throw EnvironmentError(fmt::format(
        "srun started {} tasks that cannot find each other: it gave them no PMI; use srun "
        "--mpi=pmix (srun --mpi=list names what there is), or start one task",
        tasks));
  }
  return is;
}

/// The rank whose text is that of most; of several the lowest.
std::size_t usual(const std::vector<std::string>& texts) {
  const auto alike = [&](std::size_t r) {
    return std::count(texts.begin(), texts.end(), texts[r]);
  };
  std::size_t best = 0;
  for (std::size_t r = 1; r < texts.size(); ++r) {
    best = alike(r) > alike(best) ? r : best;
  }
  return best;
}

/// "batch.global is 64, not 128".
std::string first_difference(const Json& found, const Json& usual) {
  for (const Json& change : Json::diff(usual, found)) {
    const Json::json_pointer at(change.at("path").get<std::string>());
    const auto text = [&](const Json& in) {
      return in.contains(at) ? in.at(at).dump() : "left out";
    };
    std::string key = at.to_string().substr(1);
    std::replace(key.begin(), key.end(), '/', '.');
    return fmt::format("{} is {:.200}, not {:.200}", key, text(found), text(usual));
  }
  return "is another";
}

}  // namespace

void require_agreement(runtime::MpiSession& session, const std::vector<SharedFact>& facts) {
  Json own = Json::array();
  for (const SharedFact& f : facts) {
    own.push_back({f.name, f.is_json ? fmt::format("{:016x}", fnv1a(f.value)) : f.value});
  }
  const std::vector<std::string> all = session.everyones(own.dump());
  const std::size_t like = usual(all);
  std::size_t other = 0;
  while (other < all.size() && all[other] == all[like]) {
    ++other;
  }
  if (other == all.size()) {
    return;
  }
  const Json found = Json::parse(all[other]), expected = Json::parse(all[like]);
  std::size_t i = 0;
  while (i + 1 < std::min(found.size(), expected.size()) && found[i] == expected[i]) {
    ++i;
  }
  std::string difference = fmt::format("{} is {}, not {}", expected[i][0].get<std::string>(),
                                       found[i][1].dump(), expected[i][1].dump());
  if (i < facts.size() && facts[i].is_json) {
    const std::vector<std::string> texts = session.everyones(facts[i].value);
    difference = fmt::format("{}: {}", facts[i].name,
                             first_difference(Json::parse(texts[other]), Json::parse(texts[like])));
  }
  session.rank_zero_does([&] {
    session.abort(2, fmt::format("rank {}: was started otherwise than rank {}: {}; give all ranks "
                                 "the same program, job, options and data",
                                 other, like, difference));
  });
}

bool speaks_for_ranks() {
  const runtime::Environment environment = environment_of_process();
  const std::string_view rank = runtime::launched_rank(environment);
  return rank.empty() || rank == "0";
}

std::unique_ptr<runtime::MpiSession> as_ranks(Context& context, int ranks,
                                              runtime::MpiOptions options,
                                              std::string_view standard_input) {
  runtime::Environment environment = environment_of_process();
  options.alone = !launched(environment);
  if (options.alone && ranks > 1) {
    std::optional<KeptText> kept;
    if (!standard_input.empty()) {
      kept.emplace(standard_input);
      environment.push_back(fmt::format("{}={}", kStandardInputVariable, kept->path()));
    }
    if (isatty(STDOUT_FILENO) == 0) {  // mpirun gives its ranks a terminal in any case
      environment.emplace_back("NO_COLOR=1");
    }
    const runtime::LaunchResult result =
        runtime::run_under_mpirun({.executable = context.executable,
                                   .arguments = context.arguments,
                                   .ranks = ranks,
                                   .cores = runtime::available_cores(),
                                   .environment = environment});
    if (result.exit_code != 0 && !result.message.empty()) {
      fmt::print(stderr, "stepcast: {}\n", result.message);
    }
    context.exit_code = result.exit_code;
    return nullptr;
  }
  auto session = std::make_unique<runtime::MpiSession>(told_on_stderr(std::move(options)));
  require_agreement(*session, {{"version", std::string(kVersionText)},
                               {"ranks asked for", fmt::format("{}", ranks)}});
  if (session->size() != ranks) {
    session->rank_zero_does([&] {
      session->abort(2, fmt::format("--ranks: {} asked for (devices of the job), but the launcher "
                                    "started {}; they must be equal",
                                    ranks, session->size()));
    });
  }
  return session;
}

}  // namespace stepcast::cli
