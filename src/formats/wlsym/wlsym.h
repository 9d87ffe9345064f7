// Reads symbol files: functions, inlined calls and lines of one program or library, in a fraction of the size of its
// debug information. docs/reference/symbol-files.md has the format; symbols/symbol_writer.h writes.
//
// A file is a view of bytes, for example a mapped file. Opening reads the lists of blocks. An address is found by two
// binary searches, after one block of ranges has been unpacked. Hostile bytes are safe: every read is checked, and a
// block has at most kMostRaw bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/wlsym/layout.h"
#include "windlass/bytes.h"

namespace windlass::wlsym {

// Where the names came from. A file with more takes the place of one with less.
enum class Detail : std::uint16_t { kFunctions = 1, kLines = 2 };

// The order in which files of one build id take the place of each other.
[[nodiscard]] constexpr std::uint64_t rank_of(std::uint16_t version, Detail detail) {
  return std::uint64_t{version} << 16 | static_cast<std::uint64_t>(detail);
}

struct Function {
  std::string name;  // as in the symbol table or the debug information
  std::string file;  // empty: not known
  std::uint32_t line = 0;
};

struct Frame {
  std::uint32_t function = 0;  // for SymbolFile::function()
  std::uint32_t line = 0;      // 0: not known
};

// The names of an address.
struct Place {
  std::uint64_t begin = 0;    // of the function
  std::vector<Frame> frames;  // the innermost inlined call first; empty: no name
};

// One thread at a time.
class SymbolFile {
 public:
  // A view of the bytes, which must outlive it. Errors: kMalformed, kTruncated, kUnsupported (another version).
  [[nodiscard]] static Expected<SymbolFile> parse(ByteView bytes);

  [[nodiscard]] std::string_view build_id() const { return build_id_; }
  [[nodiscard]] std::string_view name() const { return name_; }
  [[nodiscard]] Detail detail() const { return static_cast<Detail>(header_.detail); }
  [[nodiscard]] std::uint64_t rank() const { return rank_of(header_.version, detail()); }
  [[nodiscard]] std::uint32_t functions() const { return header_.functions; }

  // `address` in the file's own numbering. Errors: kMalformed, for a damaged block.
  [[nodiscard]] Expected<Place> at(std::uint64_t address);
  // kOutOfRange if there is no such function.
  [[nodiscard]] Expected<Function> function(std::uint32_t number);
  // The address that is mapped from an offset in the file. Nothing: none is.
  [[nodiscard]] std::optional<std::uint64_t> address_of(std::uint64_t file_offset) const;
  // Reads all blocks, and says the first error.
  [[nodiscard]] Expected<void> check();

 private:
  // A call chain: the function, and the scope that called it.
  struct Scope {
    std::uint32_t function;
    std::uint32_t parent;    // an index below its own; kNoScope: none
    std::int64_t call_line;  // in the parent, from the line where that begins
    std::uint64_t begin;     // of the outermost function
  };
  struct Range {
    std::uint64_t begin;
    std::uint32_t scope;  // kNoScope: no name
    std::int64_t line;    // from the line where the function begins
  };
  struct RangeBlock {
    std::uint32_t number = ~0u;
    std::vector<Scope> scopes;
    std::vector<Range> ranges;  // ascending
  };
  struct TextBlock {
    std::vector<std::byte> raw;
    std::vector<std::uint32_t> texts;         // offsets in `raw`
    std::vector<std::uint32_t> files, lines;  // of functions
  };
  static constexpr std::uint32_t kNoScope = ~0u;

  explicit SymbolFile(ByteView bytes) : bytes_(bytes) {}
  Expected<void> read_lists();
  Expected<void> check_blocks() const;
  template <typename Entry>
  [[nodiscard]] Entry entry(std::uint64_t list, std::uint32_t number) const;
  // The last of `count` entries that begins at or before a value. Nothing: it is before the first.
  template <typename Entry, typename Value>
  [[nodiscard]] std::optional<std::uint32_t> last_before(std::uint64_t list, std::uint32_t count, Value value) const;
  [[nodiscard]] Expected<std::vector<std::byte>> unpack(std::uint32_t at, std::uint32_t packed,
                                                        std::uint32_t raw) const;
  [[nodiscard]] Expected<RangeBlock> read_ranges(std::uint32_t number) const;
  struct RangeColumns;
  [[nodiscard]] Expected<RangeColumns> unpack_columns(const RangeBlockEntry& about) const;
  class RangeReader;  // of one block
  [[nodiscard]] Expected<TextBlock> read_texts(std::uint64_t list, std::uint32_t blocks, std::uint32_t all,
                                               std::uint32_t number, bool functions) const;
  [[nodiscard]] Expected<const TextBlock*> texts(std::uint32_t number, bool functions);
  struct TextPlace {
    const TextBlock* block;
    std::uint32_t index;
  };
  // Of a function, or of a path. Valid until the next call.
  [[nodiscard]] Expected<TextPlace> find(std::uint32_t number, bool functions);
  [[nodiscard]] static std::string text(const TextPlace& at);

  ByteView bytes_;
  Header header_{};
  std::string_view build_id_, name_;
  std::uint64_t segments_at_ = 0, ranges_at_ = 0, functions_at_ = 0, paths_at_ = 0, blocks_at_ = 0;
  RangeBlock last_;                                                      // that was asked for
  std::unordered_map<std::uint64_t, std::unique_ptr<TextBlock>> texts_;  // by number and kind
  std::size_t kept_ = 0;                                                 // bytes of texts_
};

}  // namespace windlass::wlsym
