#pragma once
#include <simdjson.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/portable.h"

namespace stepcast::traces::internal {

/// Part of a list of objects, from the first byte of one to the last of another, in brackets.
struct JsonPart {
  std::vector<char> text;  ///< '[', `size` bytes, ']', padding
  std::size_t size = 0;
  std::string gap;           ///< what stands between it and the next
  std::uint64_t offset = 0;  ///< in the file, of its first byte
  simdjson::ondemand::parser parser;
};

/// Calls on_element(object&, offset) -> simdjson::error_code for each object of a part; false where
/// anything else is found.
template <typename OnElement>
bool each_of(JsonPart& part, OnElement&& on_element) {
  simdjson::ondemand::document document;
  simdjson::ondemand::array elements;
  if (part.parser.iterate(part.text.data(), part.size + 2, part.text.size()).get(document) !=
          simdjson::SUCCESS ||
      document.get_array().get(elements) != simdjson::SUCCESS) {
    return false;
  }
  for (auto element : elements) {
    simdjson::ondemand::value value;
    simdjson::ondemand::object item;
    if (std::move(element).get(value) != simdjson::SUCCESS) {
      return false;
    }
    const char* const start = value.raw_json_token().data();
    const auto offset = part.offset + static_cast<std::uint64_t>(start - part.text.data()) - 1;
    if (value.get_object().get(item) != simdjson::SUCCESS ||
        on_element(item, offset) != simdjson::SUCCESS) {
      return false;
    }
  }
  const char* after = nullptr;  // the list ended before its last byte
  return document.current_location().get(after) != simdjson::SUCCESS;
}

/// Parses parts of a list on other threads, in the order in which they were given.
///
///   JsonAhead<RawEvent> ahead(parse);
///   ahead.give(std::move(part));                     // any number
///   auto done = ahead.take();                        // the oldest, parsed
template <typename Parsed>
class JsonAhead {
 public:
  using Parse = simdjson::error_code (*)(simdjson::ondemand::object&, Parsed&);
  struct Job {
    JsonPart part;
    std::vector<Parsed> items;
    std::vector<std::uint64_t> offsets;
    bool whole = false;  ///< all of it was elements that parsed
    bool begun = false, done = false;
  };

  JsonAhead(Parse parse, std::size_t threads) : parse_(parse) {
    for (std::size_t t = 0; t < threads; ++t) {
      threads_.start([this] { work(); });
    }
  }
  JsonAhead(const JsonAhead&) = delete;
  JsonAhead& operator=(const JsonAhead&) = delete;
  ~JsonAhead() {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }

  void give(std::unique_ptr<Job> job) {
    job->begun = job->done = false;
    const std::scoped_lock lock(mutex_);
    jobs_.push_back(std::move(job));
    changed_.notify_all();
  }
  [[nodiscard]] std::size_t given() const { return jobs_.size(); }
  /// Waits for the oldest, or parses it where no thread has begun.
  std::unique_ptr<Job> take() {
    std::unique_lock lock(mutex_);
    Job& oldest = *jobs_.front();
    if (!oldest.begun) {
      oldest.begun = true;
      lock.unlock();
      parse_all(oldest);
      lock.lock();
    } else {
      changed_.wait(lock, [&oldest] { return oldest.done; });
    }
    std::unique_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    return job;
  }

 private:
  void parse_all(Job& job) const {
    job.items.clear();
    job.offsets.clear();
    job.whole = each_of(job.part, [&](simdjson::ondemand::object& item, std::uint64_t offset) {
      job.items.emplace_back();
      job.offsets.push_back(offset);
      return parse_(item, job.items.back());
    });
  }
  void work() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      Job* next = nullptr;
      for (const auto& job : jobs_) {
        next = next == nullptr && !job->begun ? job.get() : next;
      }
      if (next == nullptr) {
        changed_.wait(lock);
        continue;
      }
      next->begun = true;
      lock.unlock();
      parse_all(*next);
      lock.lock();
      next->done = true;
      changed_.notify_all();
    }
  }

  Parse parse_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Job>> jobs_;
  bool stop_ = false;
  JoinedThreads threads_;  ///< the last member: it is joined first
};

}  // namespace stepcast::traces::internal
