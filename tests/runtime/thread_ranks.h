#pragma once
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <vector>

#include "core/graph/program.h"
#include "runtime/collectives.h"
#include "runtime/counted_collectives.h"
#include "runtime/cpu/executor.h"

namespace stepcast::runtime::test {

/// Memory that the members of one group of ranks share when ranks are threads of one process.
class Group {
 public:
  explicit Group(int size) : slots_(static_cast<std::size_t>(size)), size_(size) {}

  /// Shows every member all contributions, in the order of ranks.
  template <typename Use>
  void meet(int rank, const float* data, std::size_t count, Use&& use) {
    slots_[static_cast<std::size_t>(rank)].assign(data, data + count);
    arrive();
    use(slots_);
    arrive();
  }

  void post(int from, int to, int tag, std::vector<float> values) {
    const std::lock_guard lock(mutex_);
    messages_[{from, to, tag}].push_back(std::move(values));
    changed_.notify_all();
  }
  std::vector<float> take(int from, int to, int tag) {
    std::unique_lock lock(mutex_);
    auto& queue = messages_[{from, to, tag}];
    wait(lock, [&queue] { return !queue.empty(); });
    std::vector<float> values = std::move(queue.front());
    queue.pop_front();
    return values;
  }
  [[nodiscard]] int size() const { return size_; }

 private:
  void arrive() {
    std::unique_lock lock(mutex_);
    const int round = round_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
      return;
    }
    wait(lock, [&] { return round_ != round; });
  }
  /// A step that deadlocks fails instead of hanging.
  template <typename Condition>
  void wait(std::unique_lock<std::mutex>& lock, Condition condition) {
    if (!changed_.wait_for(lock, std::chrono::seconds(60), condition)) {
      throw std::runtime_error("ranks wait for each other for ever");
    }
  }

  std::vector<std::vector<float>> slots_;
  std::map<std::tuple<int, int, int>, std::deque<std::vector<float>>> messages_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int size_;
  int arrived_ = 0;
  int round_ = 0;
};

/// Bytes of all-to-alls that a rank hands over for other ranks and takes from them.
struct PairTraffic {
  double sent = 0, received = 0;
};

class ThreadCollectives final : public Collectives {
 public:
  /// `traffic` is this rank's and outlives this.
  ThreadCollectives(std::shared_ptr<Group> group, int rank, PairTraffic& traffic)
      : group_(std::move(group)), rank_(rank), traffic_(traffic) {}
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  void all_reduce(float* data, std::size_t count, Reduction reduction) override {
    group_->meet(rank_, data, count, [&](const auto& slots) {
      for (std::size_t i = 0; i < count; ++i) {
        float value = slots[0].at(i);
        for (std::size_t r = 1; r < slots.size(); ++r) {
          value = reduction == Reduction::kSum ? value + slots[r].at(i)
                                               : std::max(value, slots[r].at(i));
        }
        data[i] = value;
      }
    });
  }
  void all_gather(const float* send, float* receive, std::size_t count) override {
    group_->meet(rank_, send, count, [&](const auto& slots) {
      for (std::size_t r = 0; r < slots.size(); ++r) {
        std::copy_n(slots[r].data(), count, receive + r * count);
      }
    });
  }
  void reduce_scatter(const float* send, float* receive, std::size_t count) override {
    group_->meet(rank_, send, count * static_cast<std::size_t>(size()), [&](const auto& slots) {
      const std::size_t first = static_cast<std::size_t>(rank_) * count;
      for (std::size_t i = 0; i < count; ++i) {
        float value = 0;
        for (const auto& slot : slots) {
          value += slot.at(first + i);
        }
        receive[i] = value;
      }
    });
  }
  void broadcast(float* data, std::size_t count, int root) override {
    group_->meet(rank_, data, count, [&](const auto& slots) {
      std::copy_n(slots[static_cast<std::size_t>(root)].data(), count, data);
    });
  }
  void all_to_all_v(const void* send, std::span<const std::int64_t> send_counts,
                    std::span<const std::int64_t> send_offsets, void* receive,
                    std::span<const std::int64_t> receive_counts,
                    std::span<const std::int64_t> receive_offsets,
                    std::size_t element_bytes) override {
    for (std::size_t p = 0; p < send_counts.size(); ++p) {
      if (p != static_cast<std::size_t>(rank_)) {
        traffic_.sent += static_cast<double>(send_counts[p]) * static_cast<double>(element_bytes);
        traffic_.received +=
            static_cast<double>(receive_counts[p]) * static_cast<double>(element_bytes);
      }
    }
    // A contribution is the counts, then the parts, all as words of 4 bytes.
    const std::size_t words = element_bytes / sizeof(float);
    std::vector<float> message(send_counts.begin(), send_counts.end());
    const auto* from = static_cast<const float*>(send);
    for (std::size_t p = 0; p < send_counts.size(); ++p) {
      const float* part = from + static_cast<std::size_t>(send_offsets[p]) * words;
      message.insert(message.end(), part, part + static_cast<std::size_t>(send_counts[p]) * words);
    }
    group_->meet(rank_, message.data(), message.size(), [&](const auto& slots) {
      for (std::size_t p = 0; p < slots.size(); ++p) {
        std::size_t first = slots.size();
        for (std::size_t before = 0; before < static_cast<std::size_t>(rank_); ++before) {
          first += static_cast<std::size_t>(slots[p].at(before)) * words;
        }
        const auto count = static_cast<std::size_t>(slots[p].at(static_cast<std::size_t>(rank_)));
        if (count != static_cast<std::size_t>(receive_counts[p])) {
          throw std::runtime_error("a part has another size than its receiver expects");
        }
        std::copy_n(
            slots[p].data() + first, count * words,
            static_cast<float*>(receive) + static_cast<std::size_t>(receive_offsets[p]) * words);
      }
    });
  }
  void post_send(const float* data, std::size_t count, int peer, int tag) override {
    group_->post(rank_, peer, tag, std::vector<float>(data, data + count));
  }
  void receive(float* data, std::size_t count, int peer, int tag) override {
    const std::vector<float> values = group_->take(peer, rank_, tag);
    if (values.size() != count) {
      throw std::runtime_error("a message has another size than its receiver expects");
    }
    std::copy(values.begin(), values.end(), data);
  }
  void finish_sends() override {}
  void barrier() override {
    group_->meet(rank_, nullptr, 0, [](const auto&) {});
  }

 private:
  std::shared_ptr<Group> group_;
  int rank_;
  PairTraffic& traffic_;
};

/// All ranks of a graph as threads of this process, each with the real executor.
class ThreadRanks {
 public:
  /// With `levels`, which must outlive this, executors count what they send (Executor::sent).
  explicit ThreadRanks(const ExecutionGraph& graph, const LinkLevels* levels = nullptr)
      : graph_(graph), traffic_(static_cast<std::size_t>(graph.ranks())) {
    const auto ranks = static_cast<std::size_t>(graph.ranks());
    std::map<std::pair<std::size_t, std::vector<std::int32_t>>, std::shared_ptr<Group>> groups;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::vector<Collectives*> mine;
      for (std::size_t c = 0; c < graph.communicators.size(); ++c) {
        const auto members =
            graph.members(static_cast<std::int32_t>(c), static_cast<std::int32_t>(rank));
        const auto at = std::find(members.begin(), members.end(), static_cast<std::int32_t>(rank));
        if (at == members.end()) {
          mine.push_back(nullptr);
          continue;
        }
        auto& group = groups[{c, members}];
        if (!group) {
          group = std::make_shared<Group>(static_cast<int>(members.size()));
        }
        collectives_.push_back(std::make_unique<ThreadCollectives>(
            group, static_cast<int>(at - members.begin()), traffic_[rank]));
        if (levels != nullptr) {
          collectives_.back() = std::make_unique<CountedCollectives>(std::move(collectives_.back()),
                                                                     *levels, members);
        }
        mine.push_back(collectives_.back().get());
      }
      executors_.push_back(std::make_unique<cpu::Executor>(graph, static_cast<std::int32_t>(rank),
                                                           mine, cpu::ExecutorOptions{}));
    }
  }

  /// One step of all ranks; the loss of the global batch. `next`: the batches of the next step, for
  /// pipelined programs.
  double step(std::int64_t step, const std::vector<HostBatch>& batches,
              const std::vector<HostBatch>* next = nullptr) {
    std::vector<double> losses(executors_.size());
    on_each([&](std::size_t r) {
      losses[r] = executors_[r]->run_step(step, batches[r], -1, next ? &next->at(r) : nullptr);
    });
    double sum = 0;
    for (const double l : losses) {
      sum += l;
    }
    return sum;
  }
  void fill_pipeline(const std::vector<HostBatch>& first) {
    on_each([&](std::size_t r) { executors_[r]->fill_pipeline(first[r]); });
  }
  cpu::Executor& executor(std::size_t rank) { return *executors_[rank]; }
  /// Since the ranks were made.
  [[nodiscard]] const PairTraffic& traffic(std::size_t rank) const { return traffic_[rank]; }

 private:
  template <typename Work>
  void on_each(Work&& work) {
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < executors_.size(); ++r) {
      threads.emplace_back([&, r] { work(r); });
    }
    for (auto& t : threads) {
      t.join();
    }
  }

  const ExecutionGraph& graph_;
  std::vector<PairTraffic> traffic_;
  std::vector<std::unique_ptr<Collectives>> collectives_;
  std::vector<std::unique_ptr<cpu::Executor>> executors_;
};

}  // namespace stepcast::runtime::test
