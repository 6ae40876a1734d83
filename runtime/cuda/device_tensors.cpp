#include "runtime/cuda/device_tensors.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernels/elementwise.h"
#include "runtime/cuda/matmul_plan.h"
#include "runtime/op_operands.h"

namespace stepcast::runtime::cuda {
namespace {

constexpr StorageRules kRules{stored_bytes, 256};
constexpr std::int64_t kChunk = std::int64_t{16} << 20;  // elements that are prepared at a time

template <class Narrow, class Round>
void round_into(std::span<const float> values, std::vector<std::byte>& bytes, Round round) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Narrow v = round(values[i]);
    std::memcpy(bytes.data() + i * sizeof v, &v, sizeof v);
  }
}

/// Numbers as they are stored.
std::vector<std::byte> stored(std::span<const float> values, Format format) {
  std::vector<std::byte> bytes(values.size() * stored_bytes(format));
  switch (format) {
    case Format::kBf16:
      round_into<__nv_bfloat16>(values, bytes, [](float v) { return __float2bfloat16_rn(v); });
      return bytes;
    case Format::kFp16:
      round_into<__half>(values, bytes, [](float v) { return __float2half_rn(v); });
      return bytes;
    case Format::kInt32:
      round_into<std::int32_t>(values, bytes, [](float v) { return static_cast<std::int32_t>(v); });
      return bytes;
    case Format::kInt64:
      round_into<std::int64_t>(values, bytes, [](float v) { return static_cast<std::int64_t>(v); });
      return bytes;
    default:
      std::memcpy(bytes.data(), values.data(), bytes.size());
      return bytes;
  }
}

template <class Narrow, class Widen>
void widen_from(const std::vector<std::byte>& bytes, std::vector<float>& values, Widen widen) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    Narrow v;
    std::memcpy(&v, bytes.data() + i * sizeof v, sizeof v);
    values[i] = widen(v);
  }
}

std::vector<float> numbers(const std::vector<std::byte>& bytes, std::size_t count, Format format) {
  std::vector<float> values(count);
  switch (format) {
    case Format::kBf16:
      widen_from<__nv_bfloat16>(bytes, values, [](__nv_bfloat16 v) { return __bfloat162float(v); });
      return values;
    case Format::kFp16:
      widen_from<__half>(bytes, values, [](__half v) { return __half2float(v); });
      return values;
    case Format::kInt32:
      widen_from<std::int32_t>(bytes, values, [](auto v) { return static_cast<float>(v); });
      return values;
    case Format::kInt64:
      widen_from<std::int64_t>(bytes, values, [](auto v) { return static_cast<float>(v); });
      return values;
    default:
      std::memcpy(values.data(), bytes.data(), count * sizeof(float));
      return values;
  }
}

/// The device itself reads the rows of a slower tier: they are in memory.
void require_memory_tiers(const Program& program) {
  for (const std::string& tier : program.tiers) {
    if (tier == "ssd") {
      throw InputError("plan",
                       "found rows in tier ssd: the cuda backend keeps rows of slower "
                       "tiers in the host's memory; use tier ddr, or --backend cpu");
    }
  }
}

void upload(void* target, std::span<const float> values, Format format) {
  const std::vector<std::byte> bytes = stored(values, format);
  copy_in(target, bytes.data(), bytes.size(), "a tensor's values");
}

/// fill_piece on the device: the host hashes rows, some at a time, the device their columns.
void draw_piece(const ParameterPiece& piece, std::int32_t rank, const kernels::MatrixView& out) {
  if (piece.scale == 0) {
    kernels::fill(out, static_cast<float>(piece.constant), nullptr);
    return;
  }
  constexpr std::int64_t kRows = std::int64_t{1} << 20;
  Buffer memory(Buffer::Kind::kDevice, "hashes of rows");
  std::vector<std::uint64_t> hashes;
  for (std::int64_t first = 0; first < out.rows; first += kRows) {
    const std::int64_t rows = std::min(kRows, out.rows - first);
    hashes.clear();
    for (std::int64_t i = 0; i < rows; ++i) {
      hashes.push_back(row_hash(piece, rank, first + i));
    }
    auto* on_device = memory.reserve_of<std::uint64_t>(hashes.size());
    copy_in(on_device, hashes.data(), hashes.size() * sizeof(std::uint64_t), "hashes of rows");
    kernels::fill_initial(out.slice(first, rows), on_device, piece.column,
                          static_cast<float>(piece.scale), nullptr);
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }
}

}  // namespace

DeviceTensors::DeviceTensors(const Program& program, std::int32_t rank, const Mesh& mesh,
                             Ledger& ledger)
    : program_(program), arena_(Buffer::Kind::kDevice, "tensors") {
  const TensorLayout layout = tensor_layout(program, mesh.coordinate(rank, Axis::kData), kRules);
  for (std::size_t role = 0; role < layout.by_role.size(); ++role) {
    ledger.add(std::string(name_of(static_cast<TensorRole>(role))), layout.by_role[role]);
  }
  std::vector<std::size_t> offsets;
  std::size_t total = 0;
  for (std::size_t r = 0; r < layout.regions.size(); ++r) {
    offsets.push_back(total);
    if (layout.tier_of[r] == 0) {
      total += (layout.regions[r] + kRules.alignment - 1) / kRules.alignment * kRules.alignment;
    }
  }
  require_memory_tiers(program);
  std::size_t free = 0;
  std::size_t capacity = 0;
  check(cudaMemGetInfo(&free, &capacity), "cudaMemGetInfo");
  if (total > free) {
    throw RunError(out_of_memory(ledger, "the tensors of this rank", total, free, capacity));
  }
  auto* first = static_cast<std::byte*>(arena_.reserve(std::max<std::size_t>(total, 1)));
  check(cudaMemset(first, 0, total), "cudaMemset");
  std::vector<std::byte*> regions;
  for (std::size_t r = 0; r < offsets.size(); ++r) {
    if (layout.tier_of[r] == 0) {
      regions.push_back(first + offsets[r]);
      continue;
    }
    Buffer& memory = tier_memory_.emplace_back(
        Buffer::Kind::kPinned,
        fmt::format("rows of tier {}", program.tiers.at(layout.tier_of[r] - std::size_t{1})));
    regions.push_back(static_cast<std::byte*>(memory.reserve(layout.regions[r])));
    std::memset(regions.back(), 0, layout.regions[r]);
  }
  for (std::uint8_t tier = 1; tier <= program.tiers.size(); ++tier) {
    in_tiers_.push_back(layout.bytes(tier).base());
  }
  allocated_ = Bytes(static_cast<double>(total));
  table_ = std::make_unique<TensorTable>(program, layout, regions);
  initialise(layout, rank, mesh);
}

kernels::MatrixView DeviceTensors::view(TensorId id, std::int32_t microbatch) const {
  const Tensor& t = program_.tensors[id];
  return {table_->at(id, microbatch), t.format, t.rows, t.columns};
}

void DeviceTensors::initialise(const TensorLayout& layout, std::int32_t rank, const Mesh& mesh) {
  const RankPlace here = place_of(program_, rank, mesh);
  std::vector<bool> bucket(program_.tensors.size(), false);
  for (const Tensor& t : program_.tensors) {
    // Memory that parameters only pass through is filled when they are used.
    if (t.is_view() && !t.pieces.empty() &&
        program_.tensors[static_cast<std::size_t>(t.view_of)].role == TensorRole::kParameter) {
      bucket[static_cast<std::size_t>(t.view_of)] = true;
    }
  }
  for (TensorId id = 0; id < program_.tensors.size(); ++id) {
    const Tensor& t = program_.tensors[id];
    if (t.elements() == 0) {
      continue;
    }
    if (bucket[id]) {
      fill_bucket(id, rank, mesh);
    } else if (!t.sources.empty()) {
      store(id, shard_values(program_, t, here), here.data);
    } else if (!t.is_view() && !t.pieces.empty()) {
      std::vector<ParameterPiece> pieces;
      for (const ParameterPiece& piece : t.pieces) {
        pieces.push_back(piece_on(t, piece, here));
      }
      for (std::size_t m = 0; m < std::max<std::size_t>(1, layout.slot_of[id].size()); ++m) {
        fill_rows(t, pieces, rank, table_->at(id, static_cast<std::int32_t>(m)));
      }
    }
  }
}

/// Large tables, some rows at a time: the device draws what is in its own memory.
void DeviceTensors::fill_rows(const Tensor& tensor, const std::vector<ParameterPiece>& pieces,
                              std::int32_t rank, std::byte* target) {
  if (tensor.tier == 0 && kernels::element_bytes(tensor.format) > 0) {
    const kernels::MatrixView all(target, tensor.format, tensor.rows, tensor.columns);
    for (const ParameterPiece& piece : pieces) {
      draw_piece(piece, rank, all.block(piece.local_column, piece.columns));
    }
    return;
  }
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, kChunk / tensor.columns);
  std::vector<float> values;
  for (std::int64_t row = 0; row < tensor.rows; row += rows_at_once) {
    const std::int64_t rows = std::min(rows_at_once, tensor.rows - row);
    values.assign(static_cast<std::size_t>(rows * tensor.columns), 0.0F);
    for (ParameterPiece piece : pieces) {
      piece.row += row * piece.row_stride;
      fill_piece(piece, rank, rows, tensor.columns, values.data());
    }
    upload(target + static_cast<std::size_t>(row * tensor.columns) * stored_bytes(tensor.format),
           values, tensor.format);
  }
}

/// A tensor whose parts are views with pieces of their own, and its master copy.
void DeviceTensors::fill_bucket(TensorId bucket, std::int32_t rank, const Mesh& mesh) {
  const Tensor& whole = program_.tensors[bucket];
  const RankPlace here = place_of(program_, rank, mesh);
  std::vector<float> values(static_cast<std::size_t>(whole.elements()), 0.0F);
  for (const Tensor& part : program_.tensors) {
    if (part.view_of != static_cast<std::int32_t>(bucket)) {
      continue;
    }
    for (const ParameterPiece& piece : part.pieces) {
      fill_piece(piece_on(part, piece, here), rank, part.rows, part.columns,
                 values.data() + part.view_offset);
    }
  }
  store(bucket, values, mesh.coordinate(rank, Axis::kData));
}

/// Uploads a tensor's initial values, and those of the fp32 master copy of its narrow weights: all
/// of them, or the part that this data coordinate updates.
void DeviceTensors::store(TensorId id, std::span<const float> values,
                          std::int32_t data_coordinate) {
  upload(table_->at(id, 0), values, program_.tensors[id].format);
  if (const std::int32_t master = program_.tensors[id].master; master >= 0) {
    const Tensor& of = program_.tensors[static_cast<std::size_t>(master)];
    const auto shard = static_cast<std::size_t>(of.elements());
    const std::size_t parts =
        std::max<std::size_t>(1, values.size() / std::max<std::size_t>(1, shard));
    const std::size_t part = static_cast<std::size_t>(data_coordinate) % parts;
    upload(table_->at(static_cast<TensorId>(master), 0), values.subspan(part * shard, shard),
           of.format);
  }
}

std::vector<float> DeviceTensors::read(TensorId id, std::int32_t microbatch) const {
  const kernels::MatrixView v = view(id, microbatch);
  std::vector<std::byte> bytes(static_cast<std::size_t>(v.elements()) * stored_bytes(v.format));
  check(cudaMemcpy(bytes.data(), v.data, bytes.size(), cudaMemcpyDefault), "cudaMemcpy");
  return numbers(bytes, static_cast<std::size_t>(v.elements()), v.format);
}

void DeviceTensors::write(TensorId id, std::int32_t microbatch, std::span<const float> values) {
  const kernels::MatrixView v = view(id, microbatch);
  STEPCAST_CHECK(values.size() == static_cast<std::size_t>(v.elements()),
                 "{} numbers for '{}' of {}", values.size(), program_.tensors[id].name,
                 v.elements());
  upload(v.data, values, v.format);
}

}  // namespace stepcast::runtime::cuda
