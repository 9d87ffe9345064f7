// Source lines of a jitdump's functions, as they are asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "os/jitdump.h"
#include "windlass/function_ref.h"

namespace windlass::manager {

// V8 adds the size of perf's ELF header to every address (kElfHeaderSize in src/diagnostics/perf-jit.cc). perf's own
// agent for Java and others do not. The first function shows which form a dump has: in the wrong form its lines would
// begin before the function, or end behind it. Until a function shows that, addresses are taken as they stand.
//
// A function has one file: that of its first line. Lines of other files were inlined. For these the function's own line
// before counts. V8 of node 20 writes names of files that it has freed, with NULs in them. The next entry then begins
// where an address of the function stands behind a NUL. If there is none, the function has no lines.
//
// One thread at a time. Bounds: kMaxLines lines, kMaxText bytes of names of files. Code beyond these bounds has no
// lines.
class JitdumpLineTable {
 public:
  static constexpr std::size_t kMaxLines = std::size_t{1} << 22;
  static constexpr std::size_t kMaxText = std::size_t{16} << 20;

  struct Line {
    std::string_view file;   // empty: not known
    std::uint32_t line = 0;  // 0: not known
  };

  // A function's number, the bytes of its code, and where its lines stand. Each function once.
  void add(std::uint32_t function, std::uint64_t size, const os::JitdumpLines& lines, const os::JitdumpFile& in);
  // Of an offset into its code: the last line that is not behind it.
  [[nodiscard]] Line find(std::uint32_t function, std::uint64_t offset, const os::JitdumpFile& in);

 private:
  static constexpr std::uint64_t kElfHeader = 64;
  enum class Counted : std::uint8_t { kUnknown, kFromCode, kFromElfHeader };
  static constexpr std::uint32_t kNoFile = ~std::uint32_t{0};
  struct Entry {
    std::uint64_t offset = 0;  // as it stands
    std::uint32_t line = 0;
    std::uint32_t file = kNoFile;
  };
  struct Function {
    os::JitdumpLines where;
    std::uint64_t size = 0;  // of the code
    bool is_read = false;
    std::uint32_t file = kNoFile;
    std::vector<Entry> entries;  // ascending
  };

  void read(Function& function, const os::JitdumpFile& in);
  [[nodiscard]] bool read_entries(Function& function, ByteView bytes);
  // How long the name at a position is, with its NUL; 0: no entry follows it.
  [[nodiscard]] static std::size_t name_size(const Function& function, ByteView bytes, std::size_t at, bool last);
  [[nodiscard]] std::uint32_t intern(std::string_view file);

  Counted counted_ = Counted::kUnknown;
  std::unordered_map<std::uint32_t, Function> functions_;
  std::unordered_map<std::string, std::uint32_t> numbers_;  // of files
  std::vector<const std::string*> files_;
  std::size_t lines_ = 0, text_ = 0;
};

}  // namespace windlass::manager
