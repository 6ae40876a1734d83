#pragma once
#include <string>
#include <unordered_map>

namespace stepcast::test {

/// A function of the running program, from the symbol table of its file.
struct Symbol {
  std::string name;    ///< readable, as abi::__cxa_demangle writes it
  std::string source;  ///< file it was compiled from; empty where all files share it
};

/// All of them by address. Errors: RunError where the program's file has no symbol table.
std::unordered_map<const void*, Symbol> program_symbols();
std::string file_text(const std::string& file);
std::string readable(const std::string& mangled);

}  // namespace stepcast::test
