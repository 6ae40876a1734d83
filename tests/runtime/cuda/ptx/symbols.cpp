#include "tests/runtime/cuda/ptx/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

#include "core/error.h"

namespace stepcast::test {
namespace {

template <class T>
T at(const std::string& file, std::size_t offset) {
  T value;
  STEPCAST_CHECK(offset + sizeof(T) <= file.size(), "the program's file ends early");
  std::memcpy(&value, file.data() + offset, sizeof(T));
  return value;
}

std::uintptr_t load_address() {
  std::uintptr_t base = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        *static_cast<std::uintptr_t*>(to) = info->dlpi_addr;
        return 1;  // the program itself comes first
      },
      &base);
  return base;
}

}  // namespace

std::string file_text(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  STEPCAST_CHECK(in.good(), "{} cannot be read", file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string readable(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? text.get() : mangled;
}

std::unordered_map<const void*, Symbol> program_symbols() {
  const std::string file = file_text("/proc/self/exe");
  const auto header = at<Elf64_Ehdr>(file, 0);
  const std::uintptr_t base = load_address();
  std::unordered_map<const void*, Symbol> symbols;
  for (std::size_t s = 0; s < header.e_shnum; ++s) {
    const auto section = at<Elf64_Shdr>(file, header.e_shoff + s * header.e_shentsize);
    if (section.sh_type != SHT_SYMTAB) {
      continue;
    }
    const auto names = at<Elf64_Shdr>(file, header.e_shoff + section.sh_link * header.e_shentsize);
    std::string source;
    for (std::size_t i = 0; i < section.sh_size / sizeof(Elf64_Sym); ++i) {
      const auto symbol = at<Elf64_Sym>(file, section.sh_offset + i * sizeof(Elf64_Sym));
      const std::string name(file.data() + names.sh_offset + symbol.st_name);
      const bool local = ELF64_ST_BIND(symbol.st_info) == STB_LOCAL;
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FILE) {
        source = name;
      } else if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) {
        symbols[reinterpret_cast<const void*>(base + symbol.st_value)] = {
            readable(name), local ? source : std::string()};
      }
    }
  }
  if (symbols.empty()) {
    throw RunError("the program's file has no symbol table: it was stripped");
  }
  return symbols;
}

}  // namespace stepcast::test
