#include "runtime/checkpoint/checkpoints.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/error.h"
#include "core/whole_file.h"
#include "runtime/futex.h"

namespace stepcast::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPartial = ".partial";
constexpr const char* kRetired = ".retired.partial";  ///< was whole

/// Checkpoints of a folder, all of which is on the disk; the earliest first.
std::vector<fs::path> whole_checkpoints(const fs::path& folder) {
  std::vector<fs::path> whole;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failed)) {
    const fs::path& step = entry.path();
    if (step.stem().string().starts_with("step-") && step.extension().empty() &&
        fs::exists(step / kCheckpointManifest, failed)) {
      whole.push_back(step);
    }
  }
  std::sort(whole.begin(), whole.end());
  return whole;
}

CheckpointImage::Memory memory_of(StepExecutor& executor) {
  return [&executor](TensorId id) { return executor.numbers(id); };
}

NarrowWeights weights_of(const StepExecutor& executor) {
  return executor.keeps_masters() ? NarrowWeights::kOfMasters : NarrowWeights::kWide;
}

double seconds_since(std::int64_t begin_ns) {
  return static_cast<double>(steady_ns() - begin_ns) * 1e-9;
}

/// Runs `change` on the file system; what fails names the path.
template <typename Change>
void change_files(const fs::path& path, const Change& change) {
  std::error_code failed;
  change(failed);
  if (failed) {
    throw RunError(
        fmt::format("{}: the checkpoint could not be kept: {}", path.string(), failed.message()));
  }
}

/// The folder, held for one run until its process ends, however it ends; -1 where files cannot be
/// locked. Errors: RunError while another run holds it, whose files would mix with ours.
int held(const fs::path& folder) {
  const int file = open((folder / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(file);
    throw RunError(folder.string() +
                   ": another run saves there; wait until it ends, or name another folder");
  }
  return file;
}

}  // namespace

Checkpoints::Checkpoints(const CheckpointOptions& options, const ExecutionGraph& graph,
                         MpiSession& session, StepExecutor& executor)
    : options_(options),
      interval_(graph.program_of(session.rank()).interval),
      session_(session),
      executor_(executor),
      image_(written_state(graph, session.rank(), weights_of(executor)), session.rank(),
             session.size(), memory_of(executor)) {
  use_.bytes = Bytes(4 * session.sum({static_cast<double>(image_.numbers())})[0]);
  if (session.rank() == 0) {
    change_files(options.folder,
                 [&](std::error_code& failed) { fs::create_directories(options.folder, failed); });
    lock_ = held(options.folder);
    delete_retired();  // and what a run left that was killed while it wrote
  }
}

Checkpoints::~Checkpoints() {
  if (thread_.joinable()) {
    thread_.join();
  }
  close(lock_);
}

fs::path Checkpoints::path(const char* suffix) const {
  return options_.folder / fmt::format("step-{:08}{}", step_, suffix);
}

void Checkpoints::after_step(std::int64_t done, bool last, bool anyone_writes) {
  if (failure_ != nullptr && !running_) {
    std::rethrow_exception(failure_);
  }
  if (step_ >= 0 && !anyone_writes) {
    publish();
  }
  if ((done % options_.every == 0 || last) && done % interval_ == 0) {
    take(done);
  }
}

void Checkpoints::take(std::int64_t done) {
  std::int64_t begin = steady_ns();
  if (step_ >= 0) {  // one at a time
    join();
    session_.rank_zero_does([] {});  // others may write for long
    publish();
  }
  use_.waited += Seconds(seconds_since(begin));
  begin = steady_ns();
  executor_.settle();
  image_.copy();
  const double copied = seconds_since(begin);
  step_ = done;
  running_ = true;
  thread_ = std::thread([this] {
    // Keeps the priority of ranks, which may be of real time: where they poll on all cores, a
    // thread of normal priority would hardly run.
    session_.use_all_cores();
    const std::int64_t start = steady_ns();
    const fs::path folder = path(kPartial);
    try {
      change_files(folder,
                   [&](std::error_code& failed) { fs::create_directories(folder, failed); });
      image_.write(step_, folder / checkpoint_file(session_.rank()));
      if (session_.rank() == 0) {
        write_whole_file(folder / kCheckpointManifest, options_.manifest(step_));
        delete_retired();
      }
    } catch (...) {
      failure_ = std::current_exception();
      std::error_code ignored;  // leaves the room to others
      fs::remove(folder / checkpoint_file(session_.rank()), ignored);
    }
    written_ = seconds_since(start);
    running_ = false;
  });
  use_.stalls.emplace_back(session_.maximum({copied})[0]);
  ++use_.count;
}

void Checkpoints::join() {
  if (thread_.joinable()) {
    thread_.join();
  }
  if (failure_ != nullptr) {
    std::rethrow_exception(failure_);
  }
  use_.written = std::max(use_.written, Seconds(written_));
}

void Checkpoints::publish() {
  join();
  if (session_.rank() == 0) {
    const fs::path whole = path("");
    change_files(whole, [&](std::error_code& failed) {
      if (fs::exists(whole, failed)) {  // of a run that went on from an earlier step
        fs::rename(whole, path(kRetired), failed);
      }
      if (!failed) {
        fs::rename(path(kPartial), whole, failed);
      }
    });
    retire();
  }
  step_ = -1;
}

/// Takes their names from those that are too many, but from none that an earlier run saved of a
/// later step.
void Checkpoints::retire() const {
  std::vector<fs::path> whole = whole_checkpoints(options_.folder);
  whole.erase(std::upper_bound(whole.begin(), whole.end(), path("")), whole.end());
  for (std::size_t i = 0; options_.keep > 0 && i + options_.keep < whole.size(); ++i) {
    change_files(whole[i], [&](std::error_code& failed) {
      fs::rename(whole[i], whole[i].string() + kRetired, failed);
    });
  }
}

/// Tries again the next time with what cannot be deleted: it stops no training.
void Checkpoints::delete_retired() const {
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(options_.folder, failed)) {
    if (entry.path().extension() == kPartial && entry.path() != path(kPartial)) {
      fs::remove_all(entry.path(), failed);
    }
  }
}

CheckpointUse Checkpoints::finish() {
  if (step_ >= 0) {
    join();
    session_.rank_zero_does([] {});
    publish();
  }
  if (session_.rank() == 0) {
    delete_retired();
  }
  const auto longest = session_.maximum({use_.written.base(), use_.waited.base()});
  use_.written = Seconds(longest[0]);
  use_.waited = Seconds(longest[1]);
  return use_;
}

std::int64_t resume(const fs::path& checkpoint, const ExecutionGraph& graph, std::int32_t rank,
                    StepExecutor& executor) {
  std::vector<std::uint64_t> updated;
  for (std::int32_t r = 0; r < graph.ranks(); ++r) {  // each has its shards of parameters
    for (const StateBlock& block : updated_state(graph, r)) {
      updated.push_back(block.id.key);
    }
  }
  std::sort(updated.begin(), updated.end());
  const Program& program = graph.program_of(rank);
  const std::int64_t step =
      load_checkpoint(checkpoint, held_state(graph, rank, weights_of(executor)), updated,
                      memory_of(executor), [&](TensorId id) { return program.tensors[id].name; });
  executor.take_numbers();
  return step;
}

fs::path latest_checkpoint(const fs::path& folder) {
  std::error_code failed;
  if (fs::exists(folder / kCheckpointManifest, failed)) {
    return folder;
  }
  const std::vector<fs::path> whole = whole_checkpoints(folder);
  if (whole.empty()) {
    throw InputError(folder.string(),
                     "holds no checkpoint; expected a folder that run --checkpoint "
                     "wrote");
  }
  return whole.back();
}

Bytes checkpoint_bytes(const ExecutionGraph& graph, std::int32_t rank) {
  double numbers = 0;
  for (const StateBlock& block : written_state(graph, rank)) {
    numbers += static_cast<double>(block.id.count * block.id.width);
  }
  return Bytes(4 * numbers);
}

}  // namespace stepcast::runtime
