// Activity records from bytes: a kind, then the bytes of its struct, again and again. Whatever
// CUPTI hands over, the only way out is a rank that keeps the model's promises.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>

#include "profiler/cupti/record_parser.h"

namespace {

using namespace stepcast;
using namespace stepcast::profiler::cupti;

class ByteStream {
 public:
  ByteStream(const std::uint8_t* data, std::size_t size) : at_(data), left_(size) {}
  [[nodiscard]] bool empty() const { return left_ == 0; }
  template <class R>
  R take() {
    R record{};
    const std::size_t n = std::min(left_, sizeof record);
    std::memcpy(&record, at_, n);
    at_ += n;
    left_ -= n;
    return record;
  }

 private:
  const std::uint8_t* at_;
  std::size_t left_;
};

/// An enumerator that the enum can hold.
template <class E>
E small(ByteStream& bytes) {
  return static_cast<E>(bytes.take<std::uint8_t>());
}

template <class R>
void add(RecordParser& parser, ByteStream& bytes, CUpti_ActivityKind kind) {
  auto record = std::make_unique<R>(bytes.take<R>());
  record->kind = kind;
  constexpr const char* kName = "_Z4gemmi";
  if constexpr (std::is_same_v<R, KernelRecord> || std::is_same_v<R, DeviceRecord>) {
    record->name = record->name == nullptr ? nullptr : kName;
  } else if constexpr (std::is_same_v<R, MarkerRecord>) {
    record->name = record->name == nullptr ? nullptr : "step 3";
    record->domain = record->domain == nullptr ? nullptr : "domain";
    record->flags = small<decltype(record->flags)>(bytes);
    record->objectKind = small<decltype(record->objectKind)>(bytes);
  } else if constexpr (std::is_same_v<R, OverheadRecord>) {
    record->overheadData = nullptr;
    record->overheadKind = small<decltype(record->overheadKind)>(bytes);
    record->objectKind = small<decltype(record->objectKind)>(bytes);
  } else if constexpr (std::is_same_v<R, SyncRecord>) {
    record->type = small<decltype(record->type)>(bytes);
  } else if constexpr (std::is_same_v<R, ExternalRecord>) {
    record->externalKind = small<decltype(record->externalKind)>(bytes);
  } else if constexpr (std::is_same_v<R, StreamRecord>) {
    record->flag = small<decltype(record->flag)>(bytes);
  }
  parser.add(*reinterpret_cast<const Record*>(record.get()));
}

void add_next(RecordParser& parser, ByteStream& bytes) {
  switch (bytes.take<std::uint8_t>() % 15) {
    case 0:
      return add<KernelRecord>(parser, bytes, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    case 1:
      return add<CopyRecord>(parser, bytes, CUPTI_ACTIVITY_KIND_MEMCPY);
    case 2:
      return add<PeerCopyRecord>(parser, bytes, CUPTI_ACTIVITY_KIND_MEMCPY2);
    case 3:
      return add<FillRecord>(parser, bytes, CUPTI_ACTIVITY_KIND_MEMSET);
    case 4:
      return add<GraphRecord>(parser, bytes, CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
    case 5:
      return add<ApiRecord>(parser, bytes, CUPTI_ACTIVITY_KIND_RUNTIME);
    case 6:
      return add<ApiRecord>(parser, bytes, CUPTI_ACTIVITY_KIND_DRIVER);
    case 7:
      return add<SyncRecord>(parser, bytes, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
    case 8:
      return add<EventRecord>(parser, bytes, CUPTI_ACTIVITY_KIND_CUDA_EVENT);
    case 9:
      return add<ExternalRecord>(parser, bytes, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    case 10:
      return add<OverheadRecord>(parser, bytes, CUPTI_ACTIVITY_KIND_OVERHEAD);
    case 11:
      return add<MarkerRecord>(parser, bytes, CUPTI_ACTIVITY_KIND_MARKER);
    case 12:
      return add<DeviceRecord>(parser, bytes, CUPTI_ACTIVITY_KIND_DEVICE);
    case 13:
      return add<ContextRecord>(parser, bytes, CUPTI_ACTIVITY_KIND_CONTEXT);
    default:
      return add<StreamRecord>(parser, bytes, CUPTI_ACTIVITY_KIND_STREAM);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ByteStream bytes(data, size);
  RecordParser parser("fuzz", [](bool runtime, std::uint32_t callback) {
    return std::string(runtime ? "cudaLaunchKernel" : callback % 2 == 0 ? "cuLaunch" : "cuOther");
  });
  while (!bytes.empty()) {
    add_next(parser, bytes);
  }
  (void)parser.complete();
  const traces::Recording recording = std::move(parser).finish({});
  const traces::RankRecording& rank = recording.ranks.front();
  traces::EventId next = 0;
  for (const traces::Lane& lane : rank.lanes) {
    if (lane.first != next) {
      std::abort();
    }
    next += lane.count;
    for (traces::EventId i = lane.first; i < next; ++i) {
      if (rank.events.duration[i].count() < 0 || rank.events.begin[i].count() < 0 ||
          (i > lane.first && rank.events.begin[i] < rank.events.begin[i - 1])) {
        std::abort();
      }
    }
  }
  if (next != rank.events.size()) {
    std::abort();
  }
  return 0;
}
