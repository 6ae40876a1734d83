#include <catch2/catch.hpp>
#include <thread>

#include "profiler/capture/record_buffers.h"
#include "profiler/nccl/communicators.h"

namespace stepcast::profiler {
namespace {

TEST_CASE("buffers are bounded: a request beyond the budget is declined and counted",
          "[profiler][capture]") {
  RecordBuffers buffers(2 * RecordBuffers::kBytes);
  std::uint8_t* a = buffers.take();
  std::uint8_t* b = buffers.take();
  REQUIRE(a != nullptr);
  REQUIRE(b != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(a) % 8 == 0);
  CHECK(buffers.take() == nullptr);
  CHECK(buffers.declined() == 1);
  CHECK_FALSE(buffers.next(0));
  buffers.filled(a, 100);
  buffers.filled(b, 0);  // empty: free again at once
  CHECK(buffers.take() == b);
  const auto full = buffers.next(0);
  REQUIRE(full);
  CHECK(full->buffer == a);
  CHECK(full->valid == 100);
  CHECK(buffers.take() == nullptr);  // still being read
  buffers.recycle(a);
  CHECK(buffers.take() == a);
  buffers.filled(a, 8);
  buffers.recycle(b);
  CHECK(buffers.declined() == 2);
}

TEST_CASE("a reader that has time is called when half of the budget is filled",
          "[profiler][capture]") {
  RecordBuffers buffers(4 * RecordBuffers::kBytes);
  buffers.filled(buffers.take(), 8);
  CHECK_FALSE(buffers.half_full(0));
  buffers.filled(buffers.take(), 8);
  CHECK(buffers.half_full(10'000));
  while (const auto full = buffers.next(0)) {
    buffers.recycle(full->buffer);
  }
  CHECK_FALSE(buffers.half_full(0));
}

TEST_CASE("what is filled while reading comes in order, and a waiting reader can be woken",
          "[profiler][capture]") {
  RecordBuffers buffers(8 * RecordBuffers::kBytes);
  std::thread writer([&buffers] {
    for (std::size_t i = 1; i <= 200; ++i) {
      std::uint8_t* buffer = nullptr;
      while ((buffer = buffers.take()) == nullptr) {
        std::this_thread::yield();
      }
      buffers.filled(buffer, i);
    }
    buffers.wake();
  });
  for (std::size_t expected = 1; expected <= 200;) {
    if (const auto full = buffers.next(1000)) {
      CHECK(full->valid == expected++);
      buffers.recycle(full->buffer);
    }
  }
  writer.join();
}

TEST_CASE("communicators have equal ids on all members, and others differ", "[profiler][nccl]") {
  Communicators here, there;
  const char unique[] = "made by rank 0";
  const int parent = 0, child = 0, other = 0;  // their addresses are the handles
  const auto id = Communicators::hash(unique, sizeof unique);
  here.add(&parent, id, 4, 0);
  there.add(&parent, id, 4, 1);
  const auto first = here.child_id(&parent, 0);
  CHECK(first == there.child_id(&parent, 0));
  const auto second = here.child_id(&parent, 0);
  CHECK(second == there.child_id(&parent, 0));
  CHECK(first != second);
  CHECK(first != id);
  // Members that split with another colour go on in step.
  CHECK(here.child_id(&parent, 0) != there.child_id(&parent, 1));
  // Who is left out asks for none, and the next split of all is one to every member.
  const int excluded[] = {2, 3};
  const auto shrunk = here.shrunk_id(&parent, excluded, 2);
  CHECK(shrunk != here.shrunk_id(&parent, excluded, 2));
  CHECK(shrunk != there.shrunk_id(&parent, excluded, 1));
  CHECK(here.child_id(&parent, 7) == there.child_id(&parent, 7));
  here.add(&child, first, 0, 0);
  here.complete(&child, 2, 1);
  CHECK(here.count_collective(&child).collectives == 0);
  CHECK(here.count_collective(&child).collectives == 1);
  CHECK(here.count_exchange(&child).exchanges == 0);
  CHECK(here.find(&child).collectives == 2);
  CHECK(here.find(&child).members == 2);
  CHECK(here.find(&other).id == 0);
  here.remove(&child);
  CHECK(here.find(&child).id == 0);
}

TEST_CASE("a communicator that comes later has the id of its split", "[profiler][nccl]") {
  Communicators all;
  const int parent = 0, other = 0, child = 0;
  const void* made = nullptr;  // of a split that does not block
  const void* none = nullptr;  // of one that this rank takes no part in
  all.await(&parent, &made, 7);
  all.await(&parent, &none, 8);
  made = &child;
  all.arrived(&other);
  CHECK(all.find(&child).id == 0);
  all.arrived(&parent);
  CHECK(all.find(&child).id == 7);
  CHECK(all.find(&child).members == 0);
  made = &other;  // the variable is the caller's again
  all.arrived(&parent);
  CHECK(all.find(&other).id == 0);
}

}  // namespace
}  // namespace stepcast::profiler
