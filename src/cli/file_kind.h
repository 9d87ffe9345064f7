// What a file is, by its first bytes: so that a file given to the wrong command is answered with the right one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "windlass/bytes.h"

namespace windlass::cli {

enum class FileKind : std::uint8_t {
  kUnknown,
  kEmpty,
  kProfile,     // pprof, compressed, by its name
  kPerfData,    // of perf record
  kFolded,      // lines "main;f;g 12"
  kSpeedscope,  // JSON of speedscope
  kCore,
  kMinidump,
  kElf,  // a program, a library or an object
  kPe,
  kPdb,
  kCompressed,
  kText,
};

// O(1): of the first 4 KiB. `path`: a compressed file tells a profile from a core by its name alone.
[[nodiscard]] FileKind file_kind(ByteView bytes, std::string_view path);

// The end of a message on `path`, which `command` cannot read: "is an ELF file. Way out: windlass dump FILE". Empty:
// the file is not known, cannot be read, or is of a kind that `command` reads, so that its own error says more.
[[nodiscard]] std::string other_kind(const std::string& path, std::string_view command);

// Says it on stderr; false: there is nothing to say.
bool say_other_kind(const std::string& path, std::string_view command);

}  // namespace windlass::cli
