#include "models/ptx/memory.h"

#include <algorithm>
#include <cstring>

namespace stepcast::models::ptx {

Counts& Counts::operator+=(const Counts& o) {
  const auto add = [](Traffic& to, const Traffic& from) {
    to.requests += from.requests;
    to.bytes += from.bytes;
    to.sectors += from.sectors;
    to.distinct += from.distinct;
    to.of_launch += from.of_launch;
  };
  add(loads, o.loads);
  add(stores, o.stores);
  constexpr std::uint64_t Counts::*kSums[] = {&Counts::blocks,          &Counts::instructions,
                                              &Counts::lanes,           &Counts::branches,
                                              &Counts::divergent,       &Counts::barriers,
                                              &Counts::atomics,         &Counts::shared_requests,
                                              &Counts::shared_passes,   &Counts::shared_conflicts,
                                              &Counts::shared_bytes,    &Counts::local_bytes,
                                              &Counts::flops,           &Counts::special,
                                              &Counts::tensor_products, &Counts::tensor_flops};
  for (const auto sum : kSums) {
    this->*sum += o.*sum;
  }
  return *this;
}

const GlobalMemory::Piece* Footprint::find(std::uint64_t address, std::uint64_t bytes) {
  if (last_ < known_.size() && known_[last_].piece.holds(address, bytes)) {
    return &known_[last_].piece;
  }
  for (std::size_t i = 0; i < known_.size(); ++i) {
    if (known_[i].piece.holds(address, bytes)) {
      last_ = i;
      return &known_[i].piece;
    }
  }
  const GlobalMemory::Piece piece = memory_.piece_of(address);
  if (!piece.holds(address, bytes) || piece.begin == piece.end) {
    return nullptr;
  }
  Known fresh;
  fresh.piece = piece;
  const std::size_t sectors = (piece.end - 1) / kSector - piece.begin / kSector + 1;
  fresh.touched = {std::vector<bool>(sectors), std::vector<bool>(sectors)};
  known_.push_back(std::move(fresh));
  last_ = known_.size() - 1;
  return &known_.back().piece;
}

void Footprint::touch(std::uint64_t sector, bool written) {
  Known& k = known_[last_];
  k.touched[written ? 1 : 0][sector - k.piece.begin / kSector] = true;
}

std::array<std::uint64_t, 2> Footprint::bytes(double scale) const {
  std::array<std::uint64_t, 2> sums{};
  for (const Known& k : known_) {
    for (std::size_t way = 0; way < 2; ++way) {
      const auto touched = std::count(k.touched[way].begin(), k.touched[way].end(), true);
      const double sectors = std::min(scale * static_cast<double>(touched),
                                      static_cast<double>(k.touched[way].size()));
      sums[way] += static_cast<std::uint64_t>(sectors) * kSector;
    }
  }
  return sums;
}

void PoisonedMemory::poison() {
  std::fill(bytes_.begin(), bytes_.end(), std::byte{0xff});
  std::fill(defined_.begin(), defined_.end(), std::uint8_t{0});
}

bool PoisonedMemory::load(std::uint64_t address, void* to, std::size_t bytes) const {
  std::memcpy(to, bytes_.data() + address, bytes);
  const auto* const first = defined_.data() + address;
  return std::all_of(first, first + bytes, [](std::uint8_t d) { return d != 0; });
}

void PoisonedMemory::store(std::uint64_t address, const void* from, std::size_t bytes,
                           bool defined) {
  std::memcpy(bytes_.data() + address, from, bytes);
  std::memset(defined_.data() + address, defined ? 1 : 0, bytes);
}

Passes bank_passes(const std::array<std::uint64_t, 32>& addresses, std::uint32_t mask, int bytes) {
  const int words = std::max(1, bytes / 4);
  const int group = 32 / words;  // lanes served together
  Passes passes;
  for (int first = 0; first < 32; first += group) {
    std::array<std::uint64_t, 32> seen{};  // different words, by bank
    std::array<std::array<std::uint64_t, 32>, kBanks> of_bank;
    int worst = 0;
    for (int lane = first; lane < first + group; ++lane) {
      for (int w = 0; (mask >> lane & 1U) != 0 && w < words; ++w) {
        const std::uint64_t word =
            addresses[static_cast<std::size_t>(lane)] / 4 + static_cast<std::uint64_t>(w);
        auto& bank = of_bank[word % kBanks];
        std::uint64_t& count = seen[word % kBanks];
        if (std::find(bank.begin(), bank.begin() + static_cast<std::ptrdiff_t>(count), word) ==
            bank.begin() + static_cast<std::ptrdiff_t>(count)) {
          bank[count++] = word;
          worst = std::max(worst, static_cast<int>(count));
        }
      }
    }
    passes.needed += worst;
    passes.least += worst > 0 ? 1 : 0;
  }
  return passes;
}

}  // namespace stepcast::models::ptx
