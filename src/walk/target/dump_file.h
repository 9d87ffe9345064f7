// The bytes of a core file or a minidump, as they stand in the file or unpacked from it.
#pragma once

#include <string>

#include "base/mapped_file.h"
#include "windlass/target.h"

namespace windlass::walk {

// Files that gzip, xz, zstd or lz4 have compressed are unpacked into a nameless file in $TMPDIR, or else in /var/tmp.
// For example, systemd-coredump compresses its cores. Pages of zeroes take no room there.
//
// Errors: those of MappedFile::open. Those of unpack(), with the offset in the compressed file. kUnsupported if the
// result begins with neither a core file nor a minidump. kLimit if that is larger than `limit`.
constexpr std::uint64_t kLargestDump = std::uint64_t{32} << 30;  // systemd-coredump's own limit (coredump.conf)
[[nodiscard]] Expected<MappedFile> open_dump_file(const std::string& path, std::uint64_t limit = kLargestDump);

// open_core() and open_minidump() of such bytes.
[[nodiscard]] Expected<Target> read_core(MappedFile file, const DumpOptions& options);
[[nodiscard]] Expected<Target> read_minidump(MappedFile file, const DumpOptions& options);

// What a dump's first bytes say of it.
enum class DumpKind : std::uint8_t { kOther, kCore, kMinidump };
[[nodiscard]] DumpKind dump_kind_of(ByteView file);

}  // namespace windlass::walk
