#include "models/ptx/arguments.h"

#include <charconv>
#include <cstring>

#include "core/error.h"
#include "core/split_mix.h"

namespace stepcast::models::ptx {
namespace {

constexpr std::size_t kAlignment = 256;  // as cudaMalloc gives
constexpr std::uint64_t kMostMemory = std::uint64_t{4} << 30;

[[noreturn]] void refuse(const std::string& text) {
  throw InputError("--args",
                   fmt::format("found '{}'; expected TYPE:VALUE with a type of u8 to u64, "
                               "s8 to s64, f32 or f64, or mem:BYTES[:f32|:u32<N|:u64<N]",
                               text));
}

template <class T>
T number(std::string_view digits, const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    refuse(text);
  }
  return value;
}

template <class T, class Draw>
void fill(std::byte* to, std::size_t bytes, Draw draw) {
  for (std::size_t at = 0; at + sizeof(T) <= bytes; at += sizeof(T)) {
    const T value = draw(at / sizeof(T));
    std::memcpy(to + at, &value, sizeof(T));
  }
}

}  // namespace

GlobalMemory::Piece Arguments::Memory::piece() const {
  const auto first = reinterpret_cast<std::uint64_t>(bytes.data());
  const std::uint64_t begin = (first + kAlignment - 1) / kAlignment * kAlignment;
  return {begin, first + bytes.size()};
}

void Arguments::add(const void* value, std::size_t bytes) {
  const std::size_t at = (parameters_.size() + bytes - 1) / bytes * bytes;
  parameters_.resize(at + bytes);
  std::memcpy(parameters_.data() + at, value, bytes);
}

void Arguments::add_memory(const std::string& text) {
  std::string_view rest(text);
  rest.remove_prefix(4);
  const std::size_t colon = rest.find(':');
  const auto bytes = number<std::uint64_t>(rest.substr(0, colon), text);
  if (bytes == 0 || bytes > kMostMemory) {
    throw InputError("--args",
                     fmt::format("found '{}'; expected 1 to {} bytes", text, kMostMemory));
  }
  const std::string_view what =
      colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
  auto memory = std::make_unique<Memory>();
  memory->bytes.resize(bytes + kAlignment);
  const GlobalMemory::Piece p = memory->piece();
  memory->bytes.resize(p.begin - reinterpret_cast<std::uint64_t>(memory->bytes.data()) + bytes);
  auto* const first = reinterpret_cast<std::byte*>(p.begin);
  if (what == "f32") {
    fill<float>(first, bytes, [](std::uint64_t i) {
      return static_cast<float>(2 * unit_interval(split_mix(i)) - 1);
    });
  } else if (what.starts_with("u32<") || what.starts_with("u64<")) {
    const auto below = number<std::uint64_t>(what.substr(4), text);
    if (below == 0) {
      refuse(text);
    }
    const auto draw = [below](std::uint64_t i) { return split_mix(i) % below; };
    if (what.starts_with("u32")) {
      fill<std::uint32_t>(first, bytes,
                          [&](std::uint64_t i) { return static_cast<std::uint32_t>(draw(i)); });
    } else {
      fill<std::uint64_t>(first, bytes, draw);
    }
  } else if (!what.empty()) {
    refuse(text);
  }
  add(&p.begin, sizeof(p.begin));
  memory_.push_back(std::move(memory));
}

void Arguments::add_number(const std::string& text) {
  const std::size_t colon = text.find(':');
  const auto type = type_named(text.substr(0, colon));
  if (colon == std::string::npos || !type || text[0] == '.' || text[0] == 'b' || text[0] == 'p') {
    refuse(text);
  }
  const std::string_view digits = std::string_view(text).substr(colon + 1);
  if (*type == Type::kF32) {
    const auto value = number<float>(digits, text);
    add(&value, sizeof(value));
  } else if (*type == Type::kF64) {
    const auto value = number<double>(digits, text);
    add(&value, sizeof(value));
  } else if (text[0] == 'u' || text[0] == 's') {
    const auto value = is_signed(*type)
                           ? static_cast<std::uint64_t>(number<std::int64_t>(digits, text))
                           : number<std::uint64_t>(digits, text);
    const int unused = 64 - 8 * bytes_of(*type);
    const auto back =
        is_signed(*type)
            ? static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused)
            : value << unused >> unused;
    if (back != value) {
      throw InputError("--args", fmt::format("found '{}'; the number does not fit its type", text));
    }
    add(&value, static_cast<std::size_t>(bytes_of(*type)));
  } else {
    refuse(text);
  }
}

Arguments::Arguments(const std::vector<std::string>& texts, const Kernel& kernel) {
  for (const std::string& text : texts) {
    text.starts_with("mem:") ? add_memory(text) : add_number(text);
  }
  // A structure may end in padding.
  const std::size_t missing =
      kernel.parameter_bytes - std::min(kernel.parameter_bytes, parameters_.size());
  if (parameters_.size() > kernel.parameter_bytes || missing >= 8) {
    std::string expected;
    for (const Parameter& p : kernel.parameters) {
      expected += fmt::format("{}{} at {}", expected.empty() ? "" : ", ", p.bytes, p.offset);
    }
    throw InputError(
        "--args", fmt::format("found {} bytes; expected {}, by parameter: {}", parameters_.size(),
                              kernel.parameter_bytes, expected.empty() ? "none" : expected));
  }
  parameters_.resize(kernel.parameter_bytes);
}

GlobalMemory::Piece Arguments::piece_of(std::uint64_t address) const {
  for (const auto& m : memory_) {
    if (m->piece().holds(address, 1)) {
      return m->piece();
    }
  }
  return {};
}

}  // namespace stepcast::models::ptx
