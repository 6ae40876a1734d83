#include "runtime/cpu/tensor_storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace stepcast::runtime::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::uint64_t mix(std::uint64_t x) {  // SplitMix64's finaliser
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// One row of hashed values: 32-bit arithmetic only, so that the loop vectorises.
__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3"))) void fill_row(
    std::uint32_t seed, std::uint32_t step, std::uint32_t first_column, std::int64_t columns,
    float scale, float* out) {
  for (std::int64_t j = 0; j < columns; ++j) {
    std::uint32_t h = seed + (first_column + static_cast<std::uint32_t>(j)) * step;
    h = (h ^ (h >> 16)) * 0x85ebca6bU;
    h = (h ^ (h >> 13)) * 0xc2b2ae35U;
    h ^= h >> 16;
    // The upper 24 bits are exact in fp32: 2 h / 2^24 - 1 in [-1, 1).
    const float unit = static_cast<float>(static_cast<std::int32_t>(h >> 8)) * 0x1p-23F - 1.0F;
    out[j] = unit * scale;
  }
}

/// Which streams and calls touch a tensor's instances.
struct Use {
  int stream = -1;
  bool shareable = true;
};

std::vector<Use> uses_of(const Program& program) {
  std::vector<Use> uses(program.tensors.size());
  for (const Op& op : program.ops) {
    const auto* first = program.operands.data() + op.first_operand;
    for (const auto* id = first; id != first + op.inputs + op.outputs; ++id) {
      Use& use = uses[*id];
      if (op.kind == OpKind::kSend || (use.stream >= 0 && use.stream != op.stream)) {
        use.shareable = false;
      }
      use.stream = op.stream;
    }
  }
  return uses;
}

/// Life of one microbatch's instance, as positions in the program's calls.
struct Life {
  std::size_t first = SIZE_MAX;
  std::size_t last = 0;
  std::int32_t microbatch = 0;
};

/// Assigns slots so that lives sharing one do not overlap; returns the number of slots.
std::int32_t colour(std::vector<Life>& lives, std::vector<std::int32_t>& slot_of) {
  std::sort(lives.begin(), lives.end(),
            [](const Life& a, const Life& b) { return a.first < b.first; });
  std::vector<std::size_t> busy_until;
  for (const Life& life : lives) {
    std::size_t slot = 0;
    while (slot < busy_until.size() && busy_until[slot] >= life.first) {
      ++slot;
    }
    if (slot == busy_until.size()) {
      busy_until.push_back(0);
    }
    busy_until[slot] = life.last;
    slot_of[static_cast<std::size_t>(life.microbatch)] = static_cast<std::int32_t>(slot);
  }
  return static_cast<std::int32_t>(std::max<std::size_t>(1, busy_until.size()));
}

bool is_buffer_collective(OpKind kind) {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduceScatter ||
         kind == OpKind::kAllGather || kind == OpKind::kBroadcast;
}

std::size_t rounded(std::size_t elements) {
  const std::size_t per_line = kAlignment / sizeof(float);
  return (elements + per_line - 1) / per_line * per_line;
}

/// The distinct tensors each segment touches.
std::vector<std::vector<TensorId>> touched_by_segment(const Program& program) {
  std::vector<std::vector<TensorId>> touched(program.segments.size());
  for (std::size_t s = 0; s < program.segments.size(); ++s) {
    auto& ids = touched[s];
    for (const Op& op : program.ops_of(program.segments[s])) {
      const auto* first = program.operands.data() + op.first_operand;
      ids.insert(ids.end(), first, first + op.inputs + op.outputs);
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  }
  return touched;
}

struct Slots {
  std::vector<std::int32_t> count;
  std::vector<std::vector<std::int32_t>> of;
};

Slots plan_slots(const Program& program) {
  const auto tensors = program.tensors.size();
  const auto microbatches = static_cast<std::size_t>(std::max(1, program.microbatches));
  Slots slots{std::vector<std::int32_t>(tensors, 1),
              std::vector<std::vector<std::int32_t>>(tensors)};
  const auto touched = touched_by_segment(program);
  const auto uses = uses_of(program);
  std::vector<std::vector<Life>> lives(tensors);
  for (std::size_t c = 0; c < program.calls.size(); ++c) {
    const auto m = static_cast<std::size_t>(program.calls[c].microbatch);
    for (const TensorId id : touched[program.calls[c].segment]) {
      if (!program.tensors[id].per_microbatch) {
        continue;
      }
      lives[id].resize(microbatches);
      lives[id][m].microbatch = static_cast<std::int32_t>(m);
      lives[id][m].first = std::min(lives[id][m].first, c);
      lives[id][m].last = std::max(lives[id][m].last, c);
    }
  }
  for (std::size_t t = 0; t < tensors; ++t) {
    if (!program.tensors[t].per_microbatch) {
      continue;
    }
    slots.of[t].assign(microbatches, 0);
    std::erase_if(lives[t], [](const Life& life) { return life.first == SIZE_MAX; });
    if (uses[t].shareable) {
      slots.count[t] = colour(lives[t], slots.of[t]);
    } else {
      slots.count[t] = static_cast<std::int32_t>(microbatches);
      for (std::size_t m = 0; m < microbatches; ++m) {
        slots.of[t][m] = static_cast<std::int32_t>(m);
      }
    }
  }
  return slots;
}

}  // namespace

void fill_piece(const ParameterPiece& piece, std::int32_t rank, std::int64_t rows,
                std::int64_t pitch, float* matrix) {
  const std::int64_t first_row = piece.row + rank * piece.row_per_rank;
  for (std::int64_t i = 0; i < rows; ++i) {
    float* out = matrix + i * pitch + piece.local_column;
    if (piece.scale == 0) {
      std::fill_n(out, piece.columns, static_cast<float>(piece.constant));
      continue;
    }
    const auto row = static_cast<std::uint64_t>(first_row + i * piece.row_stride);
    const std::uint64_t h = mix(piece.key ^ mix(row));
    fill_row(static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(h >> 32) | 1U,
             static_cast<std::uint32_t>(piece.column), piece.columns,
             static_cast<float>(piece.scale), out);
  }
}

Bytes storage_bytes(const Program& program) {
  const Slots slots = plan_slots(program);
  double elements = 0;
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    if (program.tensors[t].is_view()) {
      continue;
    }
    elements +=
        static_cast<double>(rounded(static_cast<std::size_t>(program.tensors[t].elements()))) *
        slots.count[t];
  }
  return Bytes(elements * sizeof(float));
}

TensorStorage::TensorStorage(const Program& program, std::int32_t rank, const Mesh& mesh) {
  plan_instances(program);
  place(program);
  place_views(program, mesh.coordinate(rank, Axis::kData));
  initialise(program, rank, mesh.coordinate(rank, Axis::kTensor));
}

TensorStorage::~TensorStorage() {
  for (const auto& [address, size] : regions_) {
    munmap(address, size);
  }
}

float* TensorStorage::at(TensorId id, std::int32_t microbatch) const {
  return tables_[id][per_microbatch_[id] ? microbatch : 0];
}

void TensorStorage::begin_next_batch(const Program& program) {
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    if (program.tensors[t].next_of >= 0) {
      std::swap(tables_[t], tables_[static_cast<std::size_t>(program.tensors[t].next_of)]);
    }
  }
}

void TensorStorage::plan_instances(const Program& program) {
  Slots slots = plan_slots(program);
  slots_ = std::move(slots.count);
  slot_of_ = std::move(slots.of);
}

float* TensorStorage::allocate(std::size_t elements) {
  const std::size_t bytes = std::max<std::size_t>(kAlignment, rounded(elements) * sizeof(float));
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw RunError(fmt::format("out of memory: {:.3g} GB more could not be allocated",
                               static_cast<double>(bytes) * 1e-9));
  }
  if (bytes >= kHugePage) {
    madvise(address, bytes, MADV_HUGEPAGE);
  }
  regions_.emplace_back(address, bytes);
  allocated_ += bytes;
  return static_cast<float*>(address);
}

void TensorStorage::place(const Program& program) {
  const auto tensors = program.tensors.size();
  instances_.resize(tensors);
  const auto place_side_by_side = [&](std::span<const TensorId> ids) {
    std::size_t total = 0;
    for (const TensorId id : ids) {
      // One copy each, not placed yet, not named twice: else the collective packs instead.
      if (slots_[id] != 1 || program.tensors[id].per_microbatch || program.tensors[id].is_view() ||
          !instances_[id].empty() || std::count(ids.begin(), ids.end(), id) != 1) {
        return;
      }
      total += static_cast<std::size_t>(program.tensors[id].elements());
    }
    float* next = allocate(total);
    for (const TensorId id : ids) {
      instances_[id] = {next};
      next += program.tensors[id].elements();
    }
  };
  for (const Op& op : program.ops) {
    if (is_buffer_collective(op.kind)) {
      for (const auto ids : {program.inputs(op), program.outputs(op)}) {
        if (ids.size() > 1) {
          place_side_by_side(ids);
        }
      }
    }
  }
  // Small tensors share regions; each starts on its own cache line.
  std::size_t small = 0;
  for (std::size_t t = 0; t < tensors; ++t) {
    const std::size_t size = rounded(static_cast<std::size_t>(program.tensors[t].elements()));
    if (instances_[t].empty() && !program.tensors[t].is_view() &&
        size * sizeof(float) < kHugePage) {
      small += size * static_cast<std::size_t>(slots_[t]);
    }
  }
  float* next_small = small > 0 ? allocate(small) : nullptr;
  for (std::size_t t = 0; t < tensors; ++t) {
    if (!instances_[t].empty() || program.tensors[t].is_view()) {
      continue;
    }
    const std::size_t size = rounded(static_cast<std::size_t>(program.tensors[t].elements()));
    for (std::int32_t s = 0; s < slots_[t]; ++s) {
      if (size * sizeof(float) < kHugePage) {
        instances_[t].push_back(next_small);
        next_small += size;
      } else {
        instances_[t].push_back(allocate(size));
      }
    }
  }
}

void TensorStorage::place_views(const Program& program, std::int32_t data_coordinate) {
  const auto tensors = program.tensors.size();
  for (std::size_t t = 0; t < tensors; ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.is_view()) {
      float* whole = instances_[static_cast<std::size_t>(tensor.view_of)].front();
      instances_[t] = {whole + tensor.view_offset + data_coordinate * tensor.view_data_step};
    }
  }
  by_microbatch_.resize(tensors);
  tables_.resize(tensors);
  per_microbatch_.resize(tensors);
  for (std::size_t t = 0; t < tensors; ++t) {
    per_microbatch_[t] = program.tensors[t].per_microbatch;
    if (slot_of_[t].empty()) {
      by_microbatch_[t] = {instances_[t].front()};
    }
    for (const std::int32_t slot : slot_of_[t]) {
      by_microbatch_[t].push_back(instances_[t][static_cast<std::size_t>(slot)]);
    }
    tables_[t] = by_microbatch_[t].data();
  }
}

void TensorStorage::initialise(const Program& program, std::int32_t rank,
                               std::int32_t tensor_coordinate) {
  for (const auto& [address, size] : regions_) {
    std::memset(address, 0, size);  // touches every page, so that no step pays for it
  }
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    for (ParameterPiece piece : tensor.pieces) {
      piece.row += tensor_coordinate * piece.tensor_row_step;
      piece.column += tensor_coordinate * piece.tensor_column_step;
      STEPCAST_CHECK(piece.local_column + piece.columns <= tensor.columns,
                     "a piece of '{}' covers columns [{}, {}) of {}", tensor.name,
                     piece.local_column, piece.local_column + piece.columns, tensor.columns);
      for (float* instance : instances_[t]) {
        fill_piece(piece, rank, tensor.rows, tensor.columns, instance);
      }
    }
  }
}

}  // namespace stepcast::runtime::cpu
