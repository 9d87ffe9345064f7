// The symbols and lines of one module: procedures, and the calls inlined into them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "formats/pdb/cross_scope.h"
#include "formats/pdb/dbi.h"
#include "formats/pdb/lines.h"
#include "formats/pdb/msf.h"
#include "windlass/function_ref.h"

namespace windlass::pdb {

struct Procedure {
  SectionOffset begin;
  std::uint32_t size = 0;
  std::string_view name;
  ByteView inside;  // the records of its scope

  [[nodiscard]] bool contains(SectionOffset place) const {
    return place.section == begin.section && place.offset - begin.offset < size;
  }
};

struct InlinedCall {
  std::uint32_t id = 0;             // of the function, in the id stream
  std::optional<SourceLine> begin;  // of the function
  SourceLine line;                  // of the code that was asked for; 0: not known
};

// Deeper calls of a hostile file are left out.
inline constexpr std::uint32_t kMostInlined = 256;

class Module {
 public:
  // Errors: kOutOfRange if the stream is smaller than its parts. Damaged records end the reading.
  [[nodiscard]] static Expected<Module> read(const Stream& stream, const ModuleInfo& info);
  Module(Module&&) = default;
  Module& operator=(Module&&) = default;

  // The procedure or thunk that a place lies in. Separated code is a part of its procedure.
  [[nodiscard]] const Procedure* procedure_at(SectionOffset place) const;
  // The calls inlined at a place, the outermost first, kMostInlined at most. Returns how many bytes were read.
  std::size_t inlined_at(const Procedure& procedure, SectionOffset place,
                         FunctionRef<void(const InlinedCall&)> add) const;
  // Each place at which procedure_at(), inlined_at() or the lines may have another answer.
  void each_place(FunctionRef<void(SectionOffset)> add) const;
  [[nodiscard]] const ModuleLines& lines() const { return lines_; }
  [[nodiscard]] const CrossScope& cross_scope() const { return cross_scope_; }
  // Bytes of copies and lists.
  [[nodiscard]] std::size_t memory() const {
    return copies_[0].size() + copies_[1].size() + procedures_.capacity() * sizeof(Procedure) +
           separated_.capacity() * sizeof(Separated) + lines_.memory();
  }

 private:
  struct Separated {
    SectionOffset begin;
    std::uint32_t size;
    SectionOffset parent;
  };
  Module() : lines_(ByteView()), cross_scope_(ByteView()) {}
  void read_symbols(ByteView records);
  void add_procedure(ByteView record, std::uint16_t kind, ByteView behind);

  std::vector<std::byte> copies_[2];   // of symbols and lines that are not in one piece
  std::vector<Procedure> procedures_;  // ascending
  std::vector<Separated> separated_;   // ascending
  ModuleLines lines_;
  CrossScope cross_scope_;
};

}  // namespace windlass::pdb
