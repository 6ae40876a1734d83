#include "traces/formats.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/input/archive.h"
#include "traces/chakra/chakra_reader.h"
#include "traces/chakra/chakra_writer.h"
#include "traces/chrome/chrome_writer.h"
#include "traces/kineto/kineto_reader.h"
#include "traces/native/native_trace.h"
#include "traces/nsys/nsys_reader.h"
#include "traces/pytorch_et/link_execution_trace.h"
#include "traces/pytorch_et/pytorch_et_reader.h"
#include "traces/rocprof/rocprof_reader.h"
#include "traces/xplane/xplane_reader.h"

namespace stepcast::traces {
namespace {

namespace fs = std::filesystem;

bool is_json(std::string_view head) {
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (head[first] == '{' || head[first] == '[');
}
bool has(std::string_view head, std::string_view key) {
  return head.find(key) != std::string_view::npos;
}

/// A length, then a message that opens with a version ("0.0.4") or an attribute, or is empty.
bool is_chakra(std::string_view head) {
  const auto byte = [head](std::size_t i) {
    return i < head.size() ? static_cast<unsigned char>(head[i]) : 0U;
  };
  std::size_t i = 0;
  while (i < 4 && (byte(i) & 0x80U) != 0) {
    ++i;
  }
  const std::size_t message = i == 0 ? byte(0) : SIZE_MAX;  // only short ones are told here
  ++i;
  if (message == 0) {
    return byte(i + 1) == 0x08 || byte(i + 1) == 0x12;  // a length and the id or name of a node
  }
  if (byte(i + 1) + 2 > message) {
    return false;
  }
  const unsigned first = byte(i + 2);
  return byte(i) == 0x0a ? first >= '0' && first <= '9' : byte(i) == 0x12 && first == 0x0a;
}

/// A plane (field 1) that opens with its id or its name, which is a path or words.
bool is_xplane(std::string_view head) {
  const auto byte = [head](std::size_t i) {
    return i < head.size() ? static_cast<unsigned char>(head[i]) : 0U;
  };
  const auto after_number = [&byte](std::size_t i) {
    while ((byte(i) & 0x80U) != 0) {
      ++i;
    }
    return i + 1;
  };
  if (byte(0) != 0x0a) {
    return false;
  }
  std::size_t i = after_number(1);
  i = byte(i) == 0x08 ? after_number(i + 1) : i;
  if (byte(i) != 0x12) {
    return false;
  }
  const std::size_t length = byte(i + 1);
  const std::string_view name = head.substr(std::min(head.size(), i + 2), length);
  constexpr std::size_t kLongestName = 127;
  return length > 0 && length <= kLongestName && name.size() == length &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

bool is_chakra_json(std::string_view head) {
  return is_json(head) && has(head, "\"workload_graph\"");
}
bool may_be_pytorch_et(std::string_view head) {
  return is_json(head) && has(head, "\"schema\"") && !has(head, "\"traceEvents\"");
}
bool is_pytorch_et(std::string_view head) {
  return may_be_pytorch_et(head) && has(head, "\"nodes\"");
}
/// The reader of a format whose files hold one rank.
template <RankRecording (*read)(Input&, Names&)>
std::vector<RankRecording> one(Input& input, Names& names) {
  std::vector<RankRecording> ranks;
  ranks.push_back(read(input, names));
  return ranks;
}

bool is_nsys(std::string_view head) { return head.starts_with("SQLite format 3"); }
bool is_rocprof(std::string_view head) {
  return is_json(head) && has(head, "\"rocprofiler-sdk-tool\"");
}
bool is_kineto(std::string_view head) {
  const bool list = is_json(head) && head[head.find_first_not_of(" \t\r\n")] == '[';
  return is_json(head) && has(head, list ? "\"ph\"" : "\"traceEvents\"");
}

Losses write_native_folder(const fs::path& folder, const Recording& recording) {
  write_recording(folder, recording);
  return {};
}

/// With waits told from transfers where they are known.
Losses write_viewed(const fs::path& file, const Recording& recording) {
  if (recording.own == nullptr) {
    return write_timeline(file, recording);
  }
  std::vector<OpSpan> ops;
  std::vector<HostSpan> host;
  for (const RankTrace& rank : recording.own->ranks) {
    ops.insert(ops.end(), rank.ops.begin(), rank.ops.end());
    host.insert(host.end(), rank.host.begin(), rank.host.end());
  }
  write_timeline(file, recording.own->graph, ops, host, recording.producer);
  return {};
}

constexpr std::array<TraceFormat, 9> kFormats{{
    {.name = "chakra",
     .description = "Chakra execution trace (protobuf)",
     .is_file = is_chakra,
     .read = one<read_chakra>,
     .write = write_chakra},
    {.name = "chakra-json",
     .description = "Chakra nodes as JSON (workload_graph)",
     .is_file = is_chakra_json,
     .read = one<read_chakra_json>},
    {.name = "pytorch-et",
     .description = "PyTorch execution trace 1.0.1 to 1.1.1 (JSON)",
     .is_file = is_pytorch_et,
     .may_be_file = may_be_pytorch_et,
     .read = one<read_pytorch_et>,
     .link = link_execution_trace},
    {.name = "nsys",
     .description = "Nsight Systems, exported with --type sqlite",
     .is_file = is_nsys,
     .read = read_nsys},
    {.name = "rocprofv3",
     .description = "rocprofv3 --output-format json",
     .is_file = is_rocprof,
     .read = read_rocprof},
    {.name = "xplane",
     .description = "profile of JAX or TensorFlow on GPUs (*.xplane.pb)",
     .is_file = is_xplane,
     .read = one<read_xplane>},
    {.name = "kineto",
     .description = "Kineto and other Chrome trace JSON",
     .is_file = is_kineto,
     .may_be_file = is_json,
     .read = one<read_kineto>,
     .write = write_kineto},
    {.name = "native",
     .description = "our own folder: of a run, or of a recording",
     .is_folder = is_native,
     .read_folder = read_recording,
     .write = write_native_folder,
     .keeps_own = true},
    {.name = "perfetto",
     .description = "one Chrome trace JSON of all ranks, for viewers",
     .write = write_viewed,
     .one_file = true,
     .keeps_own = true},
}};

/// By its beginning: certainly, or as far as is told of what only recordings are, packed or in an
/// archive.
bool is_trace_file(const fs::path& path) {
  try {
    Input input = Input::of_file(path);
    if (is_zip(input) || is_tar(input)) {
      return true;
    }
    std::string_view head = input.peek(std::size_t{1} << 20U);
    head.remove_prefix(head.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
    return std::any_of(kFormats.begin(), kFormats.end(), [&](const TraceFormat& f) {
      return (f.is_file != nullptr && f.is_file(head)) ||
             (input.compressed() && f.may_be_file != nullptr && f.may_be_file(head));
    });
  } catch (const InputError&) {  // empty, damaged
    return false;
  }
}

}  // namespace

std::span<const TraceFormat> formats() { return kFormats; }

bool is_trace(const fs::path& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    return is_trace_file(path);
  }
  if (!fs::is_directory(path, error) || is_run_folder(path)) {
    return fs::is_directory(path, error);
  }
  constexpr int kMost = 16;  // others are no recording either
  int files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.is_regular_file(error) && files++ < kMost && is_trace_file(entry.path())) {
      return true;
    }
  }
  return false;
}

bool is_run_folder(const fs::path& folder) {
  return std::any_of(kFormats.begin(), kFormats.end(), [&folder](const TraceFormat& f) {
    return f.is_folder != nullptr && f.is_folder(folder);
  });
}

}  // namespace stepcast::traces
