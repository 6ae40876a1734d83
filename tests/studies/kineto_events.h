#pragma once
// Timelines as PyTorch's profiler writes them, made event by event; times in microseconds.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "core/temporary_folder.h"
#include "traces/open_trace.h"

namespace stepcast::studies::test {

class KinetoEvents {
 public:
  /// An operator with its inputs: "[[8,256],[8,256]]" of types "\"float\",\"float\"".
  void op(const std::string& name, double at, const std::string& dims, const std::string& types,
          int thread = 1) {
    add(R"("cat":"cpu_op","name":"{}","pid":1,"tid":{},"ts":{},"dur":8,"args":{{"Input Dims":{},"Input type":[{}]}})",
        name, thread, at, dims, types);
  }
  void call(const std::string& name, double at, double duration, int correlation, int thread = 1) {
    add(R"("cat":"cuda_runtime","name":"{}","pid":1,"tid":{},"ts":{},"dur":{},"args":{{"correlation":{}}})",
        name, thread, at, duration, correlation);
  }
  void kernel(const std::string& name, int stream, double at, double duration, int correlation,
              const std::string& more = "") {
    add(R"("cat":"kernel","name":"{}","pid":0,"tid":{},"ts":{},"dur":{},"args":{{"stream":{},"device":0,"correlation":{}{}}})",
        name, stream, at, duration, stream, correlation, more);
  }
  void sync(const char* kind, int stream, double at, double duration, int correlation, int source,
            int record) {
    add(R"("cat":"cuda_sync","name":"{}","pid":0,"tid":{},"ts":{},"dur":{},"args":{{"cuda_sync_kind":"{}","stream":{},"device":0,"correlation":{},"wait_on_stream":{},"wait_on_cuda_event_record_corr_id":{}}})",
        kind, stream, at, duration, kind, stream, correlation, source, record);
  }
  void range(const std::string& name, double at, double duration, int thread = 1) {
    add(R"("cat":"user_annotation","name":"{}","pid":1,"tid":{},"ts":{},"dur":{})", name, thread,
        at, duration);
  }
  void step(int number, double at, double duration) {
    range("ProfilerStep#" + std::to_string(number), at, duration);
  }
  template <typename... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    events_ += events_.empty() ? "{\"ph\":\"X\"," : ",{\"ph\":\"X\",";
    events_ += fmt::format(format, std::forward<Values>(values)...) + "}";
  }
  /// With further keys of the file, such as R"("deviceProperties":[],)".
  void write(const std::filesystem::path& file, const std::string& more = "") const {
    std::ofstream(file) << R"({"schemaVersion":1,)" << more << R"("traceEvents":[)" << events_
                        << "]}";
  }
  [[nodiscard]] traces::Recording open(const std::string& more = "") const {
    const TemporaryFolder folder("stepcast-kineto");
    write(folder.path() / "trace.json", more);
    return traces::open_trace(folder.path() / "trace.json");
  }

 private:
  std::string events_;
};

}  // namespace stepcast::studies::test
