// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <cxxabi.h>
#include <elf.h>
#include <fstream>
#include <link.h>
#include <memory>
#include <string>
#include <vector>

#include "emulator/block.h"
#include "lockstep/core/error.h"

namespace emulator {
namespace {

struct Function {
  uintptr_t begin;
  uintptr_t end;
  std::string name;
  std::string file;
};

template <class T>
std::vector<T> read_table(std::ifstream& file, const ElfW(Shdr) & section) {
  std::vector<T> table(section.sh_size / sizeof(T));
  file.seekg(static_cast<std::streamoff>(section.sh_offset));
  file.read(reinterpret_cast<char*>(table.data()), static_cast<std::streamsize>(section.sh_size));
  return table;
}

/// Returns the address at which the program was loaded.
uintptr_t base_address() {
  uintptr_t base = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* result) {
        *static_cast<uintptr_t*>(result) = info->dlpi_addr;
        return 1;
      },
      &base);
  return base;
}

/// Reads the program's functions from its symbol table. Kernels are local symbols, which dladdr cannot find.
std::vector<Function> read_functions() {
  std::vector<Function> functions;
  std::ifstream file("/proc/self/exe", std::ios::binary);
  ElfW(Ehdr) header = {};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof(header))) return functions;
  ElfW(Shdr) sections = {};
  sections.sh_offset = header.e_shoff;
  sections.sh_size = header.e_shnum * sizeof(ElfW(Shdr));
  const auto table = read_table<ElfW(Shdr)>(file, sections);
  const uintptr_t base = base_address();
  for (const auto& section : table) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const auto names = read_table<char>(file, table[section.sh_link]);
    // The name of a file stands before its local symbols. Symbols that other files may use come last.
    std::string source;
    for (const auto& symbol : read_table<ElfW(Sym)>(file, section)) {
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FILE) source = names.data() + symbol.st_name;
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_size == 0) continue;
      const bool is_local = ELF64_ST_BIND(symbol.st_info) == STB_LOCAL;
      functions.push_back({base + symbol.st_value, base + symbol.st_value + symbol.st_size,
                           names.data() + symbol.st_name, is_local ? source : ""});
    }
  }
  std::sort(functions.begin(), functions.end(),
            [](const Function& a, const Function& b) { return a.begin < b.begin; });
  return functions;
}

std::string demangle(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  std::string readable = status == 0 ? text.get() : name;
  for (const char* noise : {"lockstep::", "(anonymous namespace)::"})
    for (size_t at = readable.find(noise); at != std::string::npos; at = readable.find(noise))
      readable.erase(at, std::char_traits<char>::length(noise));
  // The parameter types are omitted, because they are long and not useful.
  return readable.substr(0, readable.find('('));
}

/// Returns the function that contains an address of this program, or null.
const Function* find_function(const void* address) {
  static const auto* functions = new std::vector<Function>(read_functions());
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto next =
      std::upper_bound(functions->begin(), functions->end(), at,
                       [](uintptr_t value, const Function& function) { return value < function.begin; });
  if (next == functions->begin() || at >= std::prev(next)->end) return nullptr;
  return &*std::prev(next);
}

}  // namespace

std::string function_name(const void* address) {
  const Function* function = find_function(address);
  return function == nullptr ? lockstep::concat(address) : demangle(function->name);
}

Symbol symbol_of(const void* address) {
  const Function* function = find_function(address);
  lockstep::expect(function != nullptr, "emulator: no function of this program is at ", address);
  return {function->name, function->file};
}

}  // namespace emulator
