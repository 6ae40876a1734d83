#include "runtime/cpu/tensor_storage.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/error.h"

namespace stepcast::runtime::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr StorageRules kRules{[](Format) { return sizeof(float); }, 64};

std::byte* allocate(std::size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw RunError(fmt::format("out of memory: {:.3g} GB more could not be allocated",
                               static_cast<double>(bytes) * 1e-9));
  }
  if (bytes >= kHugePage) {
    madvise(address, bytes, MADV_HUGEPAGE);
  }
  return static_cast<std::byte*>(address);
}

bool in_file(const Program& program, std::uint8_t tier) {
  return tier > 0 && program.tiers.at(tier - std::size_t{1}) == "ssd";
}

/// A mapping of a file that nobody else sees and that is gone with it.
std::byte* map_file(std::size_t bytes) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  const int rejected =
      file == nullptr ? errno : posix_fallocate(fileno(file.get()), 0, static_cast<off_t>(bytes));
  void* address = rejected != 0 ? MAP_FAILED
                                : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                       fileno(file.get()), 0);
  if (address == MAP_FAILED) {
    throw RunError(fmt::format("tier ssd: a temporary file of {:.3g} GB could not be made: {}",
                               static_cast<double>(bytes) * 1e-9,
                               std::strerror(rejected != 0 ? rejected : errno)));
  }
  return static_cast<std::byte*>(address);
}

}  // namespace

Bytes storage_bytes(const Program& program) {
  const TensorLayout layout = tensor_layout(program, 0, kRules);
  Bytes sum;
  for (std::uint8_t tier = 0; tier <= program.tiers.size(); ++tier) {
    sum += in_file(program, tier) ? Bytes{} : layout.bytes(tier);
  }
  return sum;
}

TensorStorage::TensorStorage(const Program& program, std::int32_t rank, const Mesh& mesh) {
  const TensorLayout layout = tensor_layout(program, mesh.coordinate(rank, Axis::kData), kRules);
  std::vector<std::byte*> addresses;
  for (std::size_t r = 0; r < layout.regions.size(); ++r) {
    const std::size_t bytes = layout.regions[r];
    regions_.emplace_back(in_file(program, layout.tier_of[r]) ? map_file(bytes) : allocate(bytes),
                          bytes);
    addresses.push_back(regions_.back().first);
  }
  allocated_ = layout.bytes();
  for (std::uint8_t tier = 1; tier <= program.tiers.size(); ++tier) {
    in_tiers_.push_back(layout.bytes(tier).base());
  }
  table_ = std::make_unique<TensorTable>(program, layout, addresses);
  initialise(program, layout, rank, mesh);
}

TensorStorage::~TensorStorage() {
  for (const auto& [address, size] : regions_) {
    munmap(address, size);
  }
}

void TensorStorage::initialise(const Program& program, const TensorLayout& layout,
                               std::int32_t rank, const Mesh& mesh) {
  const RankPlace here = place_of(program, rank, mesh);
  for (const auto& [address, size] : regions_) {
    std::memset(address, 0, size);  // touches every page, so that no step pays for it
  }
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.elements() == 0) {
      continue;
    }
    if (!tensor.sources.empty()) {
      const TensorLayout::Place& place = layout.instances[t].front();
      const std::vector<float> values = shard_values(program, tensor, here);
      std::copy(values.begin(), values.end(),
                reinterpret_cast<float*>(regions_.at(place.region).first + place.offset));
    }
    for (const ParameterPiece& piece : tensor.pieces) {
      for (const TensorLayout::Place& place : layout.instances[t]) {
        fill_piece(piece_on(tensor, piece, here), rank, tensor.rows, tensor.columns,
                   reinterpret_cast<float*>(regions_.at(place.region).first + place.offset));
      }
    }
  }
}

}  // namespace stepcast::runtime::cpu
