#include "traces/events/names.h"

#include <algorithm>
#include <cstring>

namespace stepcast::traces {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 18;

std::uint64_t word_at(const char* p) {
  std::uint64_t w = 0;
  std::memcpy(&w, p, sizeof w);
  return w;
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

/// Names are long (kernels: 300 bytes) and there are millions: eight bytes a multiply.
std::uint64_t hash_of(std::string_view text) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::uint64_t h = kOdd ^ text.size();
  const char* p = text.data();
  std::size_t left = text.size();
  for (; left >= 8; left -= 8, p += 8) {
    h = mix(h ^ word_at(p), kOdd);
  }
  std::uint64_t tail = 0;
  if (left > 0) {
    std::memcpy(&tail, p, left);
  }
  return mix(h ^ tail, kOdd ^ (h >> 32));
}

}  // namespace

std::size_t Names::slot_of(std::string_view text, std::uint64_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash & mask;
  while (slots_[slot] != kNoName &&
         (hashes_[slots_[slot]] != hash || texts_[slots_[slot]] != text)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

NameId Names::intern(std::string_view text) {
  if (slots_.size() < 2 * (texts_.size() + 1)) {
    grow();
  }
  const std::uint64_t hash = hash_of(text);
  const std::size_t slot = slot_of(text, hash);
  if (slots_[slot] == kNoName) {
    slots_[slot] = static_cast<NameId>(texts_.size());
    texts_.push_back(store(text));
    hashes_.push_back(hash);
  }
  return slots_[slot];
}

NameId Names::find(std::string_view text) const {
  return slots_.empty() ? kNoName : slots_[slot_of(text, hash_of(text))];
}

void Names::grow() {
  std::vector<NameId> larger(std::max<std::size_t>(64, slots_.size() * 2), kNoName);
  const std::size_t mask = larger.size() - 1;
  for (NameId id = 0; id < texts_.size(); ++id) {
    std::size_t slot = hashes_[id] & mask;
    while (larger[slot] != kNoName) {
      slot = (slot + 1) & mask;
    }
    larger[slot] = id;
  }
  slots_ = std::move(larger);
}

std::string_view Names::store(std::string_view text) {
  if (text.empty()) {
    return {};
  }
  if (text.size() > room_) {
    room_ = std::max(kBlock, text.size());
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(room_));
    next_ = blocks_.back().get();
  }
  char* const place = next_;
  std::memcpy(place, text.data(), text.size());
  next_ += text.size();
  room_ -= text.size();
  bytes_ += text.size();
  return {place, text.size()};
}

}  // namespace stepcast::traces
