#include "models/ptx/module.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "models/ptx/lexer.h"

namespace stepcast::models::ptx {
namespace {

struct NamedType {
  std::string_view name;
  Type type;
};
constexpr NamedType kTypes[] = {
    {"pred", Type::kPred},     {"b8", Type::kB8},         {"b16", Type::kB16},
    {"b32", Type::kB32},       {"b64", Type::kB64},       {"u8", Type::kU8},
    {"u16", Type::kU16},       {"u32", Type::kU32},       {"u64", Type::kU64},
    {"s8", Type::kS8},         {"s16", Type::kS16},       {"s32", Type::kS32},
    {"s64", Type::kS64},       {"f16", Type::kF16},       {"bf16", Type::kBf16},
    {"f16x2", Type::kF16x2},   {"bf16x2", Type::kBf16x2}, {"e4m3x2", Type::kE4m3x2},
    {"e5m2x2", Type::kE5m2x2}, {"f32", Type::kF32},       {"f64", Type::kF64}};

std::string_view without_dot(std::string_view word) {
  return word.starts_with('.') ? word.substr(1) : word;
}

std::size_t round_up(std::size_t at, std::size_t alignment) {
  return (at + alignment - 1) / alignment * alignment;
}

}  // namespace

std::optional<Type> type_named(std::string_view word) {
  const auto* const found =
      std::find_if(std::begin(kTypes), std::end(kTypes),
                   [w = without_dot(word)](const NamedType& t) { return t.name == w; });
  return found == std::end(kTypes) ? std::nullopt : std::optional(found->type);
}

std::optional<Space> space_named(std::string_view word) {
  const std::string_view w = without_dot(word);
  if (w == "global" || w == "const") {
    return Space::kGlobal;
  }
  if (w == "shared" || w == "shared::cta") {
    return Space::kShared;
  }
  if (w == "local") {
    return Space::kLocal;
  }
  return w == "param" ? std::optional(Space::kParam) : std::nullopt;
}

bool Instruction::has(std::string_view modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

std::string Kernel::place(const Instruction& i) const {
  const std::string where = fmt::format("{}:{}", file, i.line);
  const auto source = sources.find(i.source_file);
  return i.source == 0 || source == sources.end()
             ? where
             : fmt::format("{} ({}:{})", where, source->second, i.source);
}

std::int64_t integer(Lexer& in, std::string_view word, int line) {
  std::string_view digits = word;
  int base = 10;
  if (digits.starts_with("0x") || digits.starts_with("0X")) {
    digits.remove_prefix(2);
    base = 16;
  }
  while (digits.ends_with('U') || digits.ends_with('u')) {
    digits.remove_suffix(1);
  }
  std::uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    in.fail(line, fmt::format("found '{}'; expected an integer", word));
  }
  return static_cast<std::int64_t>(value);
}

Module::Variable read_variable(Lexer& in, Space space) {
  Module::Variable v;
  v.space = space;
  std::size_t element = 0;
  for (Token t = in.next();; t = in.next()) {
    if (t.is(".align")) {
      const Token number = in.next();
      v.alignment = static_cast<std::size_t>(integer(in, number.text, number.line));
    } else if (const auto type = type_named(t.text); type && t.text.starts_with('.')) {
      element = static_cast<std::size_t>(bytes_of(*type));
      v.alignment = std::max(v.alignment, element);
    } else if (!t.text.starts_with('.')) {  // .ptr and its like say nothing of the layout
      v.name = t.text;
      if (t.end() || element == 0) {
        in.fail(t.line, fmt::format("found '{}'; expected a type and a name", t.text));
      }
      break;
    }
  }
  v.bytes = element;
  while (in.take("[")) {
    const Token count = in.next();
    if (count.is("]")) {
      v.bytes = 0;
      continue;
    }
    v.bytes *= static_cast<std::size_t>(integer(in, count.text, count.line));
    in.expect("]");
  }
  return v;
}

Module::Module(std::string text, std::string file)
    : text_(std::make_shared<const std::string>(std::move(text))), file_(std::move(file)) {
  Lexer in(*text_, file_);
  while (!in.peek().end()) {
    read_directive(in);
  }
  if (target_.empty()) {
    in.fail(1, "found no .target; expected PTX, as `nvcc -ptx` writes it");
  }
}

void Module::read_directive(Lexer& in) {
  const Token t = in.next();
  if (t.is(".target")) {
    target_ = in.next().text;
    in.skip_line(t);
  } else if (t.is(".version") || t.is(".address_size")) {
    in.skip_line(t);
  } else if (t.is(".visible") || t.is(".weak") || t.is(".extern") || t.is(".common")) {
    return;  // of what follows
  } else if (t.is(".entry")) {
    read_entry(in);
  } else if (t.is(".file")) {
    const Token number = in.next();
    const std::string_view path = in.next().text;
    sources_[static_cast<std::uint32_t>(integer(in, number.text, number.line))] =
        path.substr(1, path.size() - 2);
    in.skip_line(t);
  } else if (t.is(".section")) {
    while (!in.next().is("{")) {
    }
    in.skip_braces();
  } else if (t.is(".global") || t.is(".shared") || t.is(".const")) {
    Variable v = read_variable(in, *space_named(t.text));
    v.initialised = in.peek().is("=");
    for (Token next = in.next(); !next.is(";") && !next.end(); next = in.next()) {
    }
    variables_.push_back(std::move(v));
  } else {
    in.fail(t.line, fmt::format("found '{}'; expected an entry point or a variable. Functions that "
                                "are called are not read: compile so that they are inlined",
                                t.text));
  }
}

void Module::read_entry(Lexer& in) {
  const Token name = in.next();
  Entry entry;
  entry.line = name.line;
  std::size_t offset = 0;
  if (in.take("(") && !in.take(")")) {
    do {
      in.expect(".param");
      const Variable v = read_variable(in, Space::kParam);
      offset = round_up(offset, v.alignment);
      entry.parameters.push_back({v.name, offset, v.bytes, v.alignment});
      offset += v.bytes;
    } while (in.take(","));
    in.expect(")");
  }
  Token t = in.next();
  for (; !t.is("{"); t = in.next()) {
    if (t.end()) {
      in.fail(name.line, fmt::format("entry point '{}' has no body", name.text));
    }
    if (t.is(".maxntid") || t.is(".reqntid")) {
      entry.most_threads = {1, 1, 1};
      for (std::uint32_t& size : entry.most_threads) {
        const Token number = in.next();
        size = static_cast<std::uint32_t>(integer(in, number.text, number.line));
        if (!in.take(",")) {
          break;
        }
      }
    }
  }
  entry.line = t.line;
  entry.body = in.skip_braces();
  entries_.emplace(name.text, std::move(entry));
}

std::vector<std::string> Module::entries() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) {
    names.push_back(name);
  }
  return names;
}

}  // namespace stepcast::models::ptx
