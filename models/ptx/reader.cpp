// The body of an entry point: text -> instructions.
#include <algorithm>
#include <unordered_map>

#include "core/error.h"
#include "models/ptx/flow.h"
#include "models/ptx/lexer.h"
#include "models/ptx/module.h"
#include "models/ptx/opcode.h"

namespace stepcast::models::ptx {
namespace {

struct NamedSpecial {
  std::string_view name;
  Special special;
};
constexpr NamedSpecial kSpecials[] = {
    {"%tid.x", Special::kThreadX},       {"%tid.y", Special::kThreadY},
    {"%tid.z", Special::kThreadZ},       {"%ntid.x", Special::kThreadsX},
    {"%ntid.y", Special::kThreadsY},     {"%ntid.z", Special::kThreadsZ},
    {"%ctaid.x", Special::kBlockX},      {"%ctaid.y", Special::kBlockY},
    {"%ctaid.z", Special::kBlockZ},      {"%nctaid.x", Special::kBlocksX},
    {"%nctaid.y", Special::kBlocksY},    {"%nctaid.z", Special::kBlocksZ},
    {"%laneid", Special::kLane},         {"%warpid", Special::kWarp},
    {"%nwarpid", Special::kWarps},       {"%lanemask_eq", Special::kLanesEq},
    {"%lanemask_le", Special::kLanesLe}, {"%lanemask_lt", Special::kLanesLt},
    {"%lanemask_ge", Special::kLanesGe}, {"%lanemask_gt", Special::kLanesGt}};

std::size_t round_up(std::size_t at, std::size_t alignment) {
  return (at + alignment - 1) / alignment * alignment;
}

class Reader {
 public:
  Reader(Kernel& kernel, Lexer& in) : kernel_(kernel), in_(in) { scopes_.emplace_back(); }

  void declare(const Module::Variable& v);
  void declare_symbol(const std::string& name, std::uint64_t value) {
    scopes_.back()[name] = constant(value);
  }
  void read();

 private:
  using Scope = std::unordered_map<std::string, int>;

  int fresh(Type type) {
    kernel_.registers.push_back(type);
    return static_cast<int>(kernel_.registers.size()) - 1;
  }
  int constant(std::uint64_t bits);
  int special(Special which);
  int find(const Token& word);
  int number(const Token& word, bool negative);
  void read_registers();
  void read_location(const Token& t);
  void read_instruction(Token t);
  void read_opcode(Instruction& i, const Token& word);
  void read_operand(Instruction& i);
  void read_address(Instruction& i);
  int read_value();
  void check_operands(const Instruction& i, const Token& word);
  void resolve_labels();

  Kernel& kernel_;
  Lexer& in_;
  std::vector<Scope> scopes_;
  std::unordered_map<std::uint64_t, int> constants_;
  std::unordered_map<int, int> specials_;
  std::unordered_map<std::string, int> labels_;
  struct Jump {
    std::size_t instruction;
    std::string label;
  };
  std::vector<Jump> jumps_;
  std::uint32_t source_ = 0, source_file_ = 0;
};

int Reader::constant(std::uint64_t bits) {
  const auto [it, fresh_one] = constants_.try_emplace(bits, 0);
  if (fresh_one) {
    it->second = fresh(Type::kB64);
    kernel_.constants.emplace_back(it->second, bits);
  }
  return it->second;
}

int Reader::special(Special which) {
  const auto [it, fresh_one] = specials_.try_emplace(static_cast<int>(which), 0);
  if (fresh_one) {
    it->second = fresh(Type::kB32);
    kernel_.specials.emplace_back(it->second, which);
  }
  return it->second;
}

/// Places the variable in its space; its name stands for the address.
void Reader::declare(const Module::Variable& v) {
  if (v.space == Space::kShared && v.bytes == 0) {
    scopes_.back()[v.name] = special(Special::kDynamicShared);
    return;
  }
  std::size_t& used = v.space == Space::kShared  ? kernel_.shared_bytes
                      : v.space == Space::kLocal ? kernel_.local_bytes
                                                 : kernel_.global_bytes;
  const std::size_t at = round_up(used, v.alignment);
  used = at + v.bytes;
  if (v.space == Space::kGlobal) {
    const int r = fresh(Type::kB64);
    kernel_.globals.emplace_back(r, at);
    scopes_.back()[v.name] = r;
  } else {
    declare_symbol(v.name, at);
  }
}

void Reader::read_registers() {
  const Token type = in_.next();
  const auto of = type_named(type.text);
  if (!of) {
    in_.fail(type.line, fmt::format("found '{}'; expected the type of registers", type.text));
  }
  do {
    const std::string name(in_.next().text);
    if (in_.take("<")) {
      const Token count = in_.next();
      const std::int64_t n = integer(in_, count.text, count.line);
      for (std::int64_t i = 0; i < n; ++i) {
        scopes_.back()[name + std::to_string(i)] = fresh(*of);
      }
      in_.expect(">");
    } else {
      scopes_.back()[name] = fresh(*of);
    }
  } while (in_.take(","));
  in_.expect(";");
}

/// .loc FILE LINE COLUMN [, function_name ..., inlined_at ...]: the innermost place.
void Reader::read_location(const Token& t) {
  const Token file = in_.next();
  const Token line = in_.next();
  source_file_ = static_cast<std::uint32_t>(integer(in_, file.text, file.line));
  source_ = static_cast<std::uint32_t>(integer(in_, line.text, line.line));
  in_.skip_line(t);
}

void Reader::read() {
  for (Token t = in_.next(); !t.end(); t = in_.next()) {
    if (t.is("{")) {
      scopes_.emplace_back();
    } else if (t.is("}")) {
      if (scopes_.size() == 1) {
        in_.fail(t.line, "a '}' closes nothing");
      }
      scopes_.pop_back();
    } else if (t.is(".reg")) {
      read_registers();
    } else if (t.is(".loc")) {
      read_location(t);
    } else if (t.is(".pragma")) {
      for (Token next = in_.next(); !next.is(";") && !next.end(); next = in_.next()) {
      }
    } else if (t.is(".shared") || t.is(".local")) {
      declare(read_variable(in_, *space_named(t.text)));
      in_.expect(";");
    } else if (t.is(";")) {
      continue;
    } else if (t.text.front() != '@' && in_.peek().is(":")) {
      in_.next();
      labels_[std::string(t.text)] = static_cast<int>(kernel_.code.size());
    } else {
      read_instruction(t);
    }
  }
  resolve_labels();
}

void Reader::read_opcode(Instruction& i, const Token& word) {
  std::string_view rest = word.text;
  const auto cut = [&rest] {
    const std::size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
    return part;
  };
  const std::string_view name = cut();
  i.opcode = find_opcode(name, rest);
  if (i.opcode == nullptr) {
    in_.fail(word.line, fmt::format("opcode '{}' is not known here", word.text));
  }
  bool has_space = false;
  while (!rest.empty()) {
    const std::string_view part = cut();
    i.modifiers.push_back(part);
    if (const auto type = type_named(part)) {
      i.type = i.type == Type::kNone ? *type : i.type;
      i.from = *type;
    } else if (const auto space = space_named(part)) {
      i.space = has_space ? i.space : *space;
      has_space = true;
    } else if (part == "v2" || part == "v4") {
      i.lanes_of_vector = part[1] - '0';
    } else if (fmt::format(" {} ", i.opcode->modifiers).find(fmt::format(" {} ", part)) ==
               std::string::npos) {
      in_.fail(word.line,
               fmt::format("'{}': '.{}' of '{}' is not known here", word.text, part, name));
    }
  }
}

int Reader::find(const Token& word) {
  const std::string name(word.text);
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto it = scope->find(name); it != scope->end()) {
      return it->second;
    }
  }
  for (const NamedSpecial& s : kSpecials) {
    if (s.name == word.text) {
      return special(s.special);
    }
  }
  in_.fail(word.line, fmt::format("'{}' is no register, number or variable declared here", name));
}

int Reader::number(const Token& word, bool negative) {
  const std::string_view w = word.text;
  if (w.size() > 2 && w[0] == '0' && (w[1] == 'f' || w[1] == 'd' || w[1] == 'F' || w[1] == 'D')) {
    const std::string hex = "0x" + std::string(w.substr(2));
    auto bits = static_cast<std::uint64_t>(integer(in_, hex, word.line));
    if (negative) {
      bits ^= w[1] == 'f' || w[1] == 'F' ? 0x80000000ULL : 0x8000000000000000ULL;
    }
    return constant(bits);
  }
  const std::int64_t value = integer(in_, w, word.line);
  return constant(static_cast<std::uint64_t>(negative ? -value : value));
}

int Reader::read_value() {
  const bool negative = in_.take("-");
  const Token word = in_.next();
  if (word.is("_")) {
    return fresh(Type::kB64);  // never read
  }
  if (!word.end() && word.text.front() >= '0' && word.text.front() <= '9') {
    return number(word, negative);
  }
  return find(word);
}

void Reader::read_address(Instruction& i) {
  const auto at = static_cast<std::size_t>(std::min(i.operands, 3));
  i.registers.push_back(read_value());
  if (in_.take("+")) {
    const bool negative = in_.take("-");
    const Token t = in_.next();
    const std::int64_t value = integer(in_, t.text, t.line);
    i.offsets[at] += negative ? -value : value;
  } else if (in_.take("-")) {
    const Token t = in_.next();
    i.offsets[at] -= integer(in_, t.text, t.line);
  }
  in_.expect("]");
}

void Reader::read_operand(Instruction& i) {
  if (in_.take("{")) {
    do {
      i.registers.push_back(read_value());
    } while (in_.take(","));
    in_.expect("}");
  } else if (in_.take("[")) {
    read_address(i);
  } else if (in_.take("!")) {
    i.negated = true;
    i.registers.push_back(read_value());
  } else if (i.opcode->flow == Flow::kBranch) {
    jumps_.push_back({kernel_.code.size(), std::string(in_.next().text)});
  } else {
    i.registers.push_back(read_value());
    if (in_.take("|")) {
      i.registers.push_back(read_value());
    }
  }
}

void Reader::check_operands(const Instruction& i, const Token& word) {
  if (i.operands < i.opcode->least_operands || i.operands > i.opcode->most_operands) {
    in_.fail(word.line, fmt::format("'{}' has {} operands; expected {} to {}", word.text,
                                    i.operands, i.opcode->least_operands, i.opcode->most_operands));
  }
}

void Reader::read_instruction(Token t) {
  Instruction i;
  i.line = t.line;
  i.source = source_;
  i.source_file = source_file_;
  if (t.is("@")) {
    i.guard_negated = in_.take("!");
    i.guard = find(in_.next());
    t = in_.next();
  }
  read_opcode(i, t);
  while (!in_.take(";")) {
    if (in_.peek().end() || i.operands + 1 >= static_cast<int>(i.first.size())) {
      in_.fail(t.line, fmt::format("'{}' never ends in a ';'", t.text));
    }
    read_operand(i);
    i.first[static_cast<std::size_t>(++i.operands)] = static_cast<std::uint8_t>(i.registers.size());
    if (!in_.take(",") && !in_.peek().is(";")) {
      in_.fail(t.line, fmt::format("'{}': found '{}' behind operand {}; expected ',' or ';'",
                                   t.text, in_.peek().text, i.operands));
    }
  }
  check_operands(i, t);
  if (i.opcode->select != nullptr) {
    i.execute = i.opcode->select(i);
    if (i.execute == nullptr) {
      in_.fail(t.line, fmt::format("'{}' is a form that is not known here", t.text));
    }
  }
  kernel_.code.push_back(std::move(i));
}

void Reader::resolve_labels() {
  for (const Jump& j : jumps_) {
    const auto label = labels_.find(j.label);
    if (label == labels_.end()) {
      in_.fail(kernel_.code[j.instruction].line, fmt::format("there is no label '{}'", j.label));
    }
    kernel_.code[j.instruction].target = label->second;
  }
}

}  // namespace

Kernel Module::kernel(const std::string& name) const {
  const auto found = entries_.find(name);
  STEPCAST_CHECK(found != entries_.end(), "{} has no entry point {}", file_, name);
  const Entry& entry = found->second;
  Kernel kernel;
  kernel.name = name;
  kernel.file = file_;
  kernel.parameters = entry.parameters;
  kernel.most_threads = entry.most_threads;
  kernel.sources = sources_;
  kernel.text = text_;
  Lexer in(entry.body, file_, entry.line);
  Reader reader(kernel, in);
  for (const Parameter& p : entry.parameters) {
    reader.declare_symbol(p.name, p.offset);
    kernel.parameter_bytes = p.offset + p.bytes;
  }
  for (const Variable& v : variables_) {
    if (!v.initialised) {
      reader.declare(v);
    }
  }
  reader.read();
  Instruction last;
  last.opcode = find_opcode("exit", "");
  last.line = in.line();
  kernel.code.push_back(last);  // a body may end in a label
  find_reconvergence(kernel.code);
  return kernel;
}

}  // namespace stepcast::models::ptx
