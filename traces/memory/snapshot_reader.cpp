#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/error.h"
#include "core/input/pickle.h"
#include "traces/input/whole_input.h"
#include "traces/memory/memory_record.h"

namespace stepcast::traces {
namespace {

using What = MemoryRecord::What;

/// Frames of PyTorch that tell the use, in the order in which they are asked; "" for any.
struct Frame {
  std::string_view file, function;
  MemoryUse use;
};
constexpr std::array<Frame, 5> kFrames{{
    {"/torch/optim/", "", MemoryUse::kOptimizer},
    {"/torch/autograd/", "backward", MemoryUse::kBackward},
    {"", "torch::autograd::", MemoryUse::kBackward},
    {"/torch/nn/modules/module.py", "_apply", MemoryUse::kWeights},
    {"", "__init__", MemoryUse::kWeights},
}};

bool of_framework(std::string_view file) {
  return file.empty() || file.find("/torch/") != std::string_view::npos || file.front() == '<' ||
         !file.ends_with(".py");
}

class Snapshot {
 public:
  Snapshot(const Pickle& data, const std::string& source) : data_(data), source_(source) {}

  std::vector<MemoryRecord> read() && {
    const auto& traces = data_.items(data_.member(data_.root(), "device_traces"));
    for (std::size_t d = 0; d < traces.size(); ++d) {
      for (const Pickle::Id entry : data_.items(traces[d])) {
        event(entry, record_of(static_cast<std::int32_t>(d)));
      }
    }
    for (const Pickle::Id s : data_.items(data_.member(data_.root(), "segments"))) {
      segment(s);
    }
    std::vector<MemoryRecord> all;
    for (auto& [device, record] : records_) {
      if (!record.events.empty() || !record.live.empty()) {
        all.push_back(std::move(record));
      }
    }
    if (all.empty()) {
      throw InputError(source_,
                       "holds no block and no event; was memory recorded (torch.cuda.memory."
                       "_record_memory_history)?");
    }
    return all;
  }

 private:
  MemoryRecord& record_of(std::int32_t device) {
    MemoryRecord& r = records_[device];
    r.source = source_;
    r.device = device;
    return r;
  }
  [[nodiscard]] std::int64_t whole(Pickle::Id of, std::string_view key,
                                   std::int64_t otherwise) const {
    return data_.whole(data_.member(of, key), otherwise);
  }

  [[nodiscard]] std::int64_t size(Pickle::Id of, std::string_view key) const {
    return std::clamp<std::int64_t>(whole(of, key, 0), 0, kMostBytes);
  }

  void event(Pickle::Id entry, MemoryRecord& to) {
    struct Action {
      std::string_view name;
      What what;
    };
    constexpr std::array<Action, 7> kActions{{{"alloc", What::kAllocate},
                                              {"free_completed", What::kFree},
                                              {"segment_alloc", What::kReserve},
                                              {"segment_map", What::kReserve},
                                              {"segment_free", What::kRelease},
                                              {"segment_unmap", What::kRelease},
                                              {"oom", What::kOutOfMemory}}};
    const std::string_view name = data_.text(data_.member(entry, "action"));
    for (const Action& a : kActions) {
      if (a.name == name) {
        to.events.push_back({.what = a.what,
                             .address = whole(entry, "addr", 0),
                             .bytes = size(entry, "size"),
                             .place = place(data_.member(entry, "frames"), to),
                             .device_free = whole(entry, "device_free", -1)});
      }
    }
  }

  void segment(Pickle::Id s) {
    MemoryRecord& to = record_of(static_cast<std::int32_t>(whole(s, "device", 0) & INT32_MAX));
    to.reserved += size(s, "total_size");
    std::int64_t address = whole(s, "address", 0);
    for (const Pickle::Id b : data_.items(data_.member(s, "blocks"))) {
      const std::int64_t bytes = size(b, "size");
      address = whole(b, "address", std::clamp<std::int64_t>(address, 0, INT64_MAX / 2));
      if (data_.text(data_.member(b, "state")).starts_with("active")) {
        Pickle::Id frames = data_.member(b, "frames");
        if (const auto& history = data_.items(data_.member(b, "history")); !history.empty()) {
          frames = data_.member(history.front(), "frames");  // before PyTorch 2.1
        }
        to.live.push_back({.address = address, .bytes = bytes, .place = place(frames, to)});
      }
      address += bytes;
    }
  }

  /// Frames stand innermost first. Work of autograd's threads has none of Python.
  std::int64_t place(Pickle::Id frames, MemoryRecord& to) {
    const auto [known, fresh] = known_.try_emplace({to.device, frames}, -1);
    const std::vector<Pickle::Id>& all = data_.items(frames);
    if (!fresh || all.empty()) {
      return known->second;
    }
    MemoryRecord::Place found;
    std::size_t rule = kFrames.size();
    bool python = false;
    for (const Pickle::Id f : all) {
      const std::string_view file = data_.text(data_.member(f, "filename"));
      const std::string_view function = data_.text(data_.member(f, "name"));
      python = python || file.ends_with(".py");
      for (std::size_t k = 0; k < rule; ++k) {
        if (file.find(kFrames[k].file) != std::string_view::npos &&
            function.find(kFrames[k].function) != std::string_view::npos) {
          rule = k;
        }
      }
      if (found.name.empty() && !of_framework(file)) {
        found.name =
            fmt::format("{} {}:{}", function, std::filesystem::path(file).filename().string(),
                        whole(f, "line", 0));
      }
    }
    if (found.name.empty()) {
      found.name = python ? "in PyTorch" : "no Python frame";
    }
    found.use = rule < kFrames.size() ? kFrames[rule].use
                : python              ? MemoryUse::kForward
                                      : MemoryUse::kBackward;
    const auto at = std::find(to.places.begin(), to.places.end(), found);
    known->second = at - to.places.begin();
    if (at == to.places.end()) {
      to.places.push_back(std::move(found));
    }
    return known->second;
  }

  const Pickle& data_;
  std::string source_;
  std::map<std::int32_t, MemoryRecord> records_;  ///< by device
  std::map<std::pair<std::int32_t, Pickle::Id>, std::int64_t> known_;
};

}  // namespace

bool is_memory_snapshot(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    return false;
  }
  try {
    Input input = Input::of_file(file);
    constexpr std::size_t kHead = 4096;
    constexpr char kProtocol = '\x80';
    const std::string_view head = input.peek(kHead);
    return head.size() > 2 && head[0] == kProtocol && head[1] >= 2 && head[1] <= 5 &&
           (head.find("segments") != std::string_view::npos ||
            head.find("device_traces") != std::string_view::npos);
  } catch (const InputError&) {  // empty, damaged
    return false;
  }
}

std::vector<MemoryRecord> read_memory_snapshot(Input& input) {
  constexpr std::size_t kLargest = std::size_t{1} << 32U;
  const std::string bytes = whole_input(input, kLargest);
  const Pickle data(input.label(), bytes, "what torch.cuda.memory._dump_snapshot writes");
  return Snapshot(data, input.label()).read();
}

}  // namespace stepcast::traces
