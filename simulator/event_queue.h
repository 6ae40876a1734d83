#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace stepcast::simulator {

/// Events of a simulation, earliest first; equal times fire in the order they were scheduled. Each
/// source (a stream, a transfer, a core) has at most one event, which can be moved or cancelled, so
/// the queue never holds stale entries. Binary heap: O(log sources) per operation, no allocation
/// once every source has been seen.
class EventQueue {
 public:
  struct Event {
    std::int64_t time = 0;
    std::uint64_t order = 0;  ///< schedule count: FIFO among equal times
    std::uint32_t source = 0;
  };

  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] const Event& top() const { return heap_.front(); }
  /// Time of the event taken last; 0 before the first.
  [[nodiscard]] std::int64_t now() const { return now_; }
  /// Whether no more events come at this time.
  [[nodiscard]] bool present_done() const { return empty() || top().time > now_; }

  /// Sets the event of `source`, replacing one it already has.
  void schedule(std::uint32_t source, std::int64_t time) {
    if (source >= place_.size()) {
      place_.resize(source + 1, kAbsent);
    }
    std::uint32_t i = place_[source];
    if (i == kAbsent) {
      i = static_cast<std::uint32_t>(heap_.size());
      heap_.emplace_back();
    }
    heap_[i] = {time, order_++, source};
    place_[source] = i;
    sift_down(sift_up(i));
  }
  void cancel(std::uint32_t source) {
    if (source < place_.size() && place_[source] != kAbsent) {
      remove(place_[source]);
    }
  }
  Event pop() {
    const Event first = heap_.front();
    now_ = first.time;
    remove(0);
    return first;
  }

 private:
  static constexpr std::uint32_t kAbsent = ~0U;
  static bool before(const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.order < b.order;
  }
  void put(std::uint32_t i, const Event& e) {
    heap_[i] = e;
    place_[e.source] = i;
  }
  std::uint32_t sift_up(std::uint32_t i) {
    const Event e = heap_[i];
    while (i > 0 && before(e, heap_[(i - 1) / 2])) {
      put(i, heap_[(i - 1) / 2]);
      i = (i - 1) / 2;
    }
    put(i, e);
    return i;
  }
  void sift_down(std::uint32_t i) {
    const Event e = heap_[i];
    const auto size = static_cast<std::uint32_t>(heap_.size());
    for (std::uint32_t child = 2 * i + 1; child < size; child = 2 * i + 1) {
      if (child + 1 < size && before(heap_[child + 1], heap_[child])) {
        ++child;
      }
      if (!before(heap_[child], e)) {
        break;
      }
      put(i, heap_[child]);
      i = child;
    }
    put(i, e);
  }
  void remove(std::uint32_t i) {
    place_[heap_[i].source] = kAbsent;
    const Event last = heap_.back();
    heap_.pop_back();
    if (i < heap_.size()) {
      put(i, last);
      sift_down(sift_up(i));
    }
  }

  std::vector<Event> heap_;
  std::vector<std::uint32_t> place_;
  std::uint64_t order_ = 0;
  std::int64_t now_ = 0;
};

}  // namespace stepcast::simulator
