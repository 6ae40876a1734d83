#include "validation/plans.h"

#include <chrono>
#include <memory>
#include <numeric>

#include "core/config/config.h"
#include "core/error.h"
#include "runtime/trainer.h"
#include "studies/plan/plan_comparison.h"
#include "workloads/build_graph.h"

namespace stepcast::validation {
namespace {

constexpr std::int64_t kRounds = 4, kSteps = 3, kWarmup = 1;  // of every candidate
constexpr std::int64_t kCloseRounds = 12;  // further ones, of plans close to the best

/// Rank 0 plans and predicts; the others get the plans as text.
PlanTask prepared(const System& system, std::uint64_t seed, std::int64_t ranks) {
  studies::Draw draw(seed);
  PlanTask task{.job = draw_plan_task(system, ranks, draw)};
  const models::CostModel model(system, task.job.calibration);
  task.runs = candidate_plans(task.job, draw.bits());
  for (PlanRun& run : task.runs) {
    run.predicted = studies::simulated_step(task.job, model, run.plan);
    run.bytes = bytes_of_plan(task.job, run.plan);
  }
  return task;
}

/// A candidate's job, graph and run, kept ready between rounds.
class ReadyRun {
 public:
  ReadyRun(const Job& job, const EmbeddingPlan& plan, const runtime::RunOptions& options,
           runtime::MpiSession& session)
      : job_(with(job, plan)),
        graph_(workloads::build_graph(job_)),
        run_(graph_, job_.system, options, session) {}
  double round() {
    std::vector<double> times;
    for (std::int64_t i = 0; i < kWarmup + kSteps; ++i) {
      const double t = run_.step().time.base();
      if (i >= kWarmup) {
        times.push_back(t);
      }
    }
    return median_of(times);
  }

 private:
  static Job with(Job job, const EmbeddingPlan& plan) {
    job.embedding_plan = plan;
    return job;
  }
  Job job_;
  ExecutionGraph graph_;
  runtime::ContinuedRun run_;
};

/// Plans close to the best, all of them, where the task counts so far and there are any; known to
/// every rank.
std::vector<std::size_t> to_tell_apart(const PlanTask& task, runtime::MpiSession& session) {
  std::vector<std::size_t> plans;
  if (session.rank() == 0) {
    const TaskScore score = score_of(task.runs);
    if (!score.skipped && score.close.size() > 1) {
      plans = score.close;
    }
  }
  plans.resize(
      static_cast<std::size_t>(session.from_rank_zero(static_cast<std::int64_t>(plans.size()))));
  session.broadcast_bytes(plans.data(), plans.size() * sizeof(std::size_t));
  return plans;
}

void measure(PlanTask& task, const std::vector<EmbeddingPlan>& plans,
             const ValidatePlansOptions& options, runtime::MpiSession& session) {
  runtime::RunOptions run;
  run.seed = options.seed + 17;
  run.real_time = true;
  run.emulate = options.emulate;
  std::vector<std::unique_ptr<ReadyRun>> ready;
  for (const EmbeddingPlan& plan : plans) {
    ready.push_back(std::make_unique<ReadyRun>(task.job, plan, run, session));
  }
  const auto run_rounds = [&](std::int64_t rounds, const std::vector<std::size_t>& which) {
    for (std::int64_t round = 0; round < rounds; ++round) {
      for (const std::size_t p : which) {
        const double t = ready[p]->round();
        if (session.rank() == 0) {
          task.runs[p].rounds.push_back(t);
        }
      }
    }
  };
  std::vector<std::size_t> all(plans.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  run_rounds(kRounds, all);
  run_rounds(kCloseRounds, to_tell_apart(task, session));
  while (!ready.empty()) {
    ready.pop_back();  // the last one first
  }
}

/// Rank 0's plans reach everybody.
std::vector<EmbeddingPlan> shared_plans(const PlanTask& task, runtime::MpiSession& session) {
  const auto count = session.from_rank_zero(static_cast<std::int64_t>(task.runs.size()));
  std::vector<EmbeddingPlan> plans;
  for (std::int64_t i = 0; i < count; ++i) {
    std::string text;
    if (session.rank() == 0) {
      text = config::plan_to_json(task.runs[static_cast<std::size_t>(i)].plan, -1);
    }
    const auto size = session.from_rank_zero(static_cast<std::int64_t>(text.size()));
    text.resize(static_cast<std::size_t>(size));
    session.broadcast_bytes(text.data(), text.size());
    plans.push_back(config::read_plan(config::text_source(text, "plan of rank 0")));
  }
  return plans;
}

}  // namespace

std::vector<PlanTask> validate_plans(const System& system, const ValidatePlansOptions& options,
                                     runtime::MpiSession& session) {
  const std::int64_t most = 3 * options.count;
  const auto seed_of = [&](std::int64_t task) {
    return studies::Draw(options.seed ^ (static_cast<std::uint64_t>(task) << 32)).bits();
  };
  const auto told = [&](double done, const std::string& what) {
    if (session.rank() == 0 && options.progress) {
      options.progress(done, what);
    }
  };
  std::vector<PlanTask> tasks(static_cast<std::size_t>(most));
  session.rank_zero_does([&] {
    for (std::int64_t t = 0; t < most; ++t) {
      told(0.1 * static_cast<double>(t) / static_cast<double>(most), "plans and predictions");
      tasks[static_cast<std::size_t>(t)] = prepared(system, seed_of(t), session.size());
    }
    if (options.predicted) {
      options.predicted(tasks);
    }
  });
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  std::int64_t counted = 0;
  std::size_t run = 0;
  for (; run < tasks.size(); ++run) {
    PlanTask& task = tasks[run];
    const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    const bool more = counted < options.count && (options.budget <= 0 || elapsed < options.budget);
    if (session.from_rank_zero(more ? 1 : 0) == 0) {
      break;
    }
    told(0.1 + 0.9 * static_cast<double>(counted) / static_cast<double>(options.count),
         task.job.workload.name);
    if (session.rank() != 0) {
      studies::Draw draw(seed_of(static_cast<std::int64_t>(run)));
      task.job = draw_plan_task(system, session.size(), draw);
    }
    measure(task, shared_plans(task, session), options, session);
    if (session.rank() == 0) {
      task.score = score_of(task.runs);
      counted += task.score.skipped ? 0 : 1;
      if (options.predicted) {
        options.predicted(tasks);
      }
    }
  }
  tasks.resize(run);
  return tasks;
}

}  // namespace stepcast::validation
