// SPDX-License-Identifier: Apache-2.0
#include "lockstep/program/build.h"

#include <cstdint>
#include <cstring>
#include <elf.h>
#include <filesystem>
#include <link.h>
#include <span>

#include "lockstep/core/error.h"
#include "lockstep/core/version.h"

namespace lockstep {
namespace {

size_t padded(size_t bytes) { return (bytes + 3) / 4 * 4; }

/// Returns the identifier in the notes of a program, in hexadecimal; empty if they have none.
std::string identifier_in(std::span<const std::byte> notes) {
  ElfW(Nhdr) header{};
  while (notes.size() >= sizeof header) {
    std::memcpy(&header, notes.data(), sizeof header);
    const size_t name = sizeof header, text = name + padded(header.n_namesz);
    const size_t end = text + padded(header.n_descsz);
    if (end > notes.size()) return "";
    const bool is_gnu = header.n_namesz == 4 && std::memcmp(&notes[name], "GNU", 4) == 0;
    if (is_gnu && header.n_type == NT_GNU_BUILD_ID) {
      std::string digits;
      for (const std::byte byte : notes.subspan(text, header.n_descsz)) {
        constexpr const char* hex = "0123456789abcdef";
        digits += hex[std::to_integer<int>(byte) / 16];
        digits += hex[std::to_integer<int>(byte) % 16];
      }
      return digits.substr(0, 16);
    }
    notes = notes.subspan(end);
  }
  return "";
}

/// Writes the identifier of the first object, which is the program, to the std::string at `result`.
int find_identifier(dl_phdr_info* object, size_t /*bytes*/, void* result) {
  std::string& identifier = *static_cast<std::string*>(result);
  for (int i = 0; i < object->dlpi_phnum && identifier.empty(); ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    // The loader keeps addresses as integers.
    const auto* notes =
        reinterpret_cast<const std::byte*>(object->dlpi_addr + segment.p_vaddr);  // NOLINT(performance-*)
    identifier = identifier_in({notes, segment.p_memsz});
  }
  return 1;
}

}  // namespace

std::string build_text() {
  std::string identifier;
  dl_iterate_phdr(find_identifier, &identifier);
  return concat(version_text(), ", flags " LOCKSTEP_FLAGS ", code ",
                identifier.empty() ? "unknown" : identifier);
}

std::string program_path() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).string();
}

}  // namespace lockstep
