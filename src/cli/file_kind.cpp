#include "cli/file_kind.h"

#include <elf.h>

#include <algorithm>
#include <cctype>
#include <cstdint>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "cli/say.h"
#include "cli/store_range.h"
#include "profiler/export/gzip.h"
#include "windlass/bytes.h"

namespace windlass::cli {
namespace {

enum class FileKind : std::uint8_t {
  kUnknown,
  kEmpty,
  kProfile,     // pprof, compressed
  kStore,       // of windlass agent
  kPerfData,    // of perf record
  kFolded,      // lines "main;f;g 12"
  kSpeedscope,  // JSON of speedscope
  kFirefox,     // JSON of the Firefox Profiler
  kJfr,         // of JDK Flight Recorder
  kTrace,       // JSON of the Trace Event Format
  kCore,
  kMinidump,
  kElf,  // a program, a library or an object
  kPe,
  kPdb,
  kCompressed,
  kText,
};

struct Known {
  FileKind kind;
  const char* what;     // "is ..."
  const char* command;  // of windlass, that reads it; empty: none does
  const char* way_out;  // where no command reads it
};
constexpr Known kKnown[] = {
    {FileKind::kEmpty, "is empty", "", "make it anew"},
    {FileKind::kProfile, "is a profile", "report", ""},
    {FileKind::kStore, "is a store of profiles", "report", ""},
    {FileKind::kPerfData, "is a recording of perf", "report", ""},
    {FileKind::kFolded, "is a file of folded stacks", "report", ""},
    {FileKind::kSpeedscope, "is a profile in speedscope's format", "report", ""},
    {FileKind::kFirefox, "is a profile in the Firefox Profiler's format", "report", ""},
    {FileKind::kJfr, "is a recording of JDK Flight Recorder", "report", ""},
    {FileKind::kTrace, "is a trace in Chrome's format", "",
     "ui.perfetto.dev reads it; windlass report reads profiles (.pb.gz)"},
    {FileKind::kCore, "is a core file", "walk", ""},
    {FileKind::kMinidump, "is a minidump", "walk", ""},
    {FileKind::kElf, "is an ELF file", "dump", ""},
    {FileKind::kPe, "is a PE image", "dump", ""},
    {FileKind::kPdb, "is a file of debug information (PDB)", "", "give the program or library that it belongs to"},
    {FileKind::kCompressed, "is compressed", "", "windlass walk, if it is a core file; unpack others"},
    {FileKind::kText, "is a text file", "", "give a program, a dump or a profile"},
};

bool is_text(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte >= 0x20 && byte < 0x7f) || byte == '\n' || byte == '\r' || byte == '\t';
  });
}

// "main;f;g 12"
bool is_folded(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  const std::size_t space = line.rfind(' ');
  return space != std::string_view::npos && line.find(';') < space && space + 1 < line.size() &&
         std::ranges::all_of(line.substr(space + 1), [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool reads(const Known& known, std::string_view command) {
  const bool is_code = known.kind == FileKind::kElf || known.kind == FileKind::kPe;
  return command == known.command || (is_code && command == "rows") ||
         ((command == "view" || command == "serve") && std::string_view(known.command) == "report") ||
         (known.kind == FileKind::kElf && command == "emit") ||
         (known.kind == FileKind::kCompressed && command == "walk") ||
         (command == "record" && (is_code || known.kind == FileKind::kText));  // programs and scripts
}

// A message of pprof's begins with the types of its values, field 1 of profile.proto: a length, and within it the
// numbers of two strings.
bool begins_profile(std::string_view head) {
  return head.size() > 3 && head[0] == 0x0a && head[1] >= 2 && head[1] <= 12 && head[2] == 0x08;
}

// By the first 4 KiB. `path`: a damaged profile is one by its name.
FileKind file_kind(ByteView bytes, std::string_view path) {
  constexpr std::size_t kLook = 4096;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kLook));
  if (text.empty()) return FileKind::kEmpty;
  if (text.starts_with(ELFMAG)) {
    const bool is_core = text.size() > EI_NIDENT + 2 && (text[EI_NIDENT] == ET_CORE || text[EI_NIDENT + 1] == ET_CORE);
    return is_core ? FileKind::kCore : FileKind::kElf;
  }
  if (text.starts_with("MDMP")) return FileKind::kMinidump;
  if (text.starts_with("MZ")) return FileKind::kPe;
  if (text.starts_with("Microsoft C/C++ MSF 7.00")) return FileKind::kPdb;
  if (text.starts_with("PERFILE2") || text.starts_with("2ELIFREP")) return FileKind::kPerfData;
  if (text.starts_with(std::string_view("FLR\0", 4))) return FileKind::kJfr;
  if (is_store(text)) return FileKind::kStore;
  const bool gzip = text.starts_with("\x1f\x8b");
  if (gzip && (path.ends_with(".pb.gz") || begins_profile(exporter::gunzip_head(bytes, 16)))) return FileKind::kProfile;
  if (gzip ||
      text.starts_with("\xfd"
                       "7zXZ") ||
      text.starts_with("\x28\xb5\x2f\xfd") || text.starts_with("\x04\x22\x4d\x18"))
    return FileKind::kCompressed;
  if (text.starts_with("{\"meta\"") && text.find("\"preprocessedProfileVersion\"") != std::string_view::npos)
    return FileKind::kFirefox;
  if (text.starts_with('{') && text.find("\"traceEvents\"") != std::string_view::npos) return FileKind::kTrace;
  if (!is_text(text)) return FileKind::kUnknown;
  if (text.find("speedscope.app/file-format-schema") != std::string_view::npos) return FileKind::kSpeedscope;
  return is_folded(text) ? FileKind::kFolded : FileKind::kText;
}

// "is an ELF file. Way out: windlass dump FILE"
std::string other_kind(const std::string& path, std::string_view command) {
  const auto file = MappedFile::open(path);
  if (!file) return {};
  const FileKind kind = file_kind(file->bytes(), path);
  const auto* known = std::ranges::find(kKnown, kind, &Known::kind);
  if (known == std::end(kKnown) || reads(*known, command)) return {};
  return *known->command == 0 ? fmt::format("{}. Way out: {}", known->what, known->way_out)
                              : fmt::format("{}. Way out: windlass {} {}", known->what, known->command, path);
}

}  // namespace

bool say_other_kind(const std::string& path, std::string_view command) {
  const std::string text = other_kind(path, command);
  if (!text.empty()) say("windlass: {} {}\n", path, text);
  return !text.empty();
}

}  // namespace windlass::cli
