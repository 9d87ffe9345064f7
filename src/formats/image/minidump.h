// Minidumps (DbgHelp's MINIDUMP_HEADER and what it leads to), as Windows, Breakpad and Crashpad write them. Source:
// Microsoft's minidumpapiset.h; Breakpad's minidump_format.h for what is its own. Reads hostile bytes: every count,
// size and offset is checked against the bytes there are, and a damaged stream costs only itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/image/elf.h"
#include "windlass/bytes.h"

namespace windlass::image {

struct MinidumpThread {
  std::uint32_t id = 0;
  std::string name;  // ThreadNames; empty if there are none
  ByteView context;  // CONTEXT of the machine, or Breakpad's form of it
};

struct MinidumpModule {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string path;
  std::string build_id;           // lower-case hex: Breakpad's BpEL record, or an RSDS record's GUID; empty if neither
  bool elf_id = false;            // it is a whole ELF build id
  std::uint32_t timestamp = 0;    // of a PE image
  std::string codeview_identity;  // of a PE image, as PeImage::build_id
};

struct MinidumpMemory {
  std::uint64_t begin = 0;
  ByteView bytes;
};

struct MinidumpException {
  std::uint32_t thread = 0;
  std::uint32_t code = 0;  // a signal number on Linux
  std::uint64_t address = 0;
  ByteView context;
  // Somebody asked for a dump of a program that went on (Breakpad's and Crashpad's codes for it).
  [[nodiscard]] bool requested() const { return code == 0 || code == 0xffffffff || code == 0x0517a7ed; }
};

// A view: it points into the bytes given to `parse`, which must outlive it.
class MinidumpFile {
 public:
  // Entries of any list at most; what is above is reported and left out.
  static constexpr std::uint64_t kMaxEntries = std::uint64_t{1} << 20;
  static constexpr std::size_t kMaxModules = 65536;
  static constexpr std::uint32_t kMaxStreams = 4096;
  static constexpr std::size_t kMaxProblems = 256;

  // Errors: no minidump, or of neither machine. Anything else that is wrong is in `problems`.
  [[nodiscard]] static Expected<MinidumpFile> parse(ByteView file);

  Machine machine = Machine::kX86_64;
  bool windows = false;
  std::vector<MinidumpThread> threads;
  std::vector<MinidumpModule> modules;
  std::vector<MinidumpMemory> memory;  // stacks, MemoryList and Memory64List, in the file's order; may overlap
  std::optional<MinidumpException> exception;
  std::uint64_t process = 0;
  ByteView linux_maps;          // the text of /proc/PID/maps (Breakpad)
  ByteView linux_command_line;  // of /proc/PID/cmdline
  std::vector<Error> problems;  // `where` is the file offset

 private:
  struct Stream {
    std::uint32_t type;
    ByteView bytes;
  };
  explicit MinidumpFile(ByteView file) : file_(file) {}
  void report(const Error& problem);
  std::vector<Stream> read_directory(std::uint32_t count, std::uint32_t at);
  bool read_system(const std::vector<Stream>& streams);
  void read(const Stream& stream);
  template <typename Handle>
  void each(const Stream& stream, std::uint64_t entry_size, const char* what, Handle handle);
  void read_threads(const Stream& stream, std::uint64_t entry_size);
  void read_thread_names(const Stream& stream);
  void read_modules(const Stream& stream);
  void read_memory(const Stream& stream);
  void read_memory64(const Stream& stream);
  void read_exception(const Stream& stream);
  void read_linux_status(const Stream& stream);
  void read_module_id(MinidumpModule& module, ByteView record) const;
  void add_memory(std::uint64_t begin, std::uint64_t rva, std::uint64_t size);
  // The bytes a MINIDUMP_LOCATION_DESCRIPTOR leads to; what cannot be read is reported and empty.
  ByteView located(ByteView from, std::uint64_t descriptor, const char* what);
  std::string string_at(std::uint64_t rva);

  ByteView file_;
};

}  // namespace windlass::image
