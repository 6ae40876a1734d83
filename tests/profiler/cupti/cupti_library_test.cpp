// The toolkit's own libcupti, which reads buffers without a device: whether it takes records to be
// as long as the structs that are read here.
#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "profiler/cupti/cupti_records.h"

namespace stepcast::profiler::cupti {
namespace {

struct Buffer {
  alignas(64) std::array<std::uint8_t, 8192> bytes{};
  std::size_t used = 0;
  std::vector<std::pair<std::size_t, CUpti_ActivityKind>> records;
  template <class R>
  void put(CUpti_ActivityKind kind) {
    R record{};
    record.kind = kind;
    std::memcpy(bytes.data() + used, &record, sizeof record);
    records.emplace_back(used, kind);
    used += sizeof record;
  }
};

TEST_CASE("the toolkit's CUPTI finds each record behind the one before", "[profiler][cupti]") {
  Buffer made;
  made.put<KernelRecord>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  made.put<CopyRecord>(CUPTI_ACTIVITY_KIND_MEMCPY);
  made.put<PeerCopyRecord>(CUPTI_ACTIVITY_KIND_MEMCPY2);
  made.put<FillRecord>(CUPTI_ACTIVITY_KIND_MEMSET);
  made.put<ApiRecord>(CUPTI_ACTIVITY_KIND_RUNTIME);
  made.put<ApiRecord>(CUPTI_ACTIVITY_KIND_DRIVER);
  made.put<SyncRecord>(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
  made.put<EventRecord>(CUPTI_ACTIVITY_KIND_CUDA_EVENT);
  made.put<ExternalRecord>(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
  made.put<OverheadRecord>(CUPTI_ACTIVITY_KIND_OVERHEAD);
  made.put<MarkerRecord>(CUPTI_ACTIVITY_KIND_MARKER);
  made.put<GraphRecord>(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  made.put<DeviceRecord>(CUPTI_ACTIVITY_KIND_DEVICE);
  made.put<ContextRecord>(CUPTI_ACTIVITY_KIND_CONTEXT);
  made.put<StreamRecord>(CUPTI_ACTIVITY_KIND_STREAM);
  std::uint32_t version = 0;
  REQUIRE(cuptiGetVersion(&version) == CUPTI_SUCCESS);
  CHECK(version == CUPTI_API_VERSION);  // the library is that of the headers
  CUpti_Activity* record = nullptr;
  for (const auto& [at, kind] : made.records) {
    REQUIRE(cuptiActivityGetNextRecord(made.bytes.data(), made.used, &record) == CUPTI_SUCCESS);
    CHECK(record->kind == kind);
    CHECK(reinterpret_cast<std::uint8_t*>(record) == made.bytes.data() + at);
  }
  CHECK(cuptiActivityGetNextRecord(made.bytes.data(), made.used, &record) ==
        CUPTI_ERROR_MAX_LIMIT_REACHED);
}

}  // namespace
}  // namespace stepcast::profiler::cupti
