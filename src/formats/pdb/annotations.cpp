#include "formats/pdb/annotations.h"

#include <cstddef>

namespace windlass::pdb {
namespace {

// BinaryAnnotationOpcode of cvinfo.h.
enum class Op : std::uint32_t {
  kEnd,
  kCodeOffset,
  kCodeOffsetBase,
  kChangeOffset,
  kChangeLength,
  kChangeFile,
  kChangeLine,
  kLineEndDelta,
  kRangeKind,
  kColumnStart,
  kColumnEndDelta,
  kChangeOffsetAndLine,
  kChangeLengthAndOffset,
  kColumnEnd,
};

// Numbers of 1, 2 or 4 bytes, the high byte first (CVUncompressData).
std::optional<std::uint32_t> number(ByteCursor& from) {
  const auto byte = [&] { return std::uint32_t{from.read<std::uint8_t>().value_or(0)}; };
  if (from.at_end()) return std::nullopt;
  const std::uint32_t first = byte();
  const unsigned more = (first & 0x80) == 0 ? 0 : (first & 0xc0) == 0x80 ? 1 : (first & 0xe0) == 0xc0 ? 3 : 4;
  if (more > 3 || from.remaining() < more) return std::nullopt;
  std::uint32_t value = more == 0 ? first : more == 1 ? first & 0x3f : first & 0x1f;
  for (unsigned i = 0; i < more; ++i) value = value << 8 | byte();
  return value;
}

// The sign is the lowest bit.
std::uint32_t signed_number(std::uint32_t stored) { return (stored & 1) != 0 ? 0 - (stored >> 1) : stored >> 1; }

// Runs annotations until the code of `wanted` has been passed. A line begins where the offset is moved. It ends by its
// own length, or where the next line begins.
class LineProgram {
 public:
  LineProgram(SourceLine first, std::uint32_t wanted) : line_(first), wanted_(wanted) {}
  // Finds nothing, and gives out where lines begin and end.
  explicit LineProgram(FunctionRef<void(std::uint32_t)>& visit) : line_(), wanted_(0), visit_(&visit) {}

  // The line of the wanted code, once it is known.
  [[nodiscard]] std::optional<SourceLine> found() const { return found_; }
  // False: the program does not go on.
  bool run(Op op, ByteCursor& operands) {
    const auto operand = number(operands);
    if (!operand) return false;
    switch (op) {
      case Op::kCodeOffset:
        open_.reset();
        offset_ = *operand;
        return true;
      case Op::kChangeOffset: begin_line(*operand); return true;
      case Op::kChangeLength:
        end_line(*operand);
        offset_ += *operand;
        return true;
      case Op::kChangeFile: line_.file = *operand; return true;
      case Op::kChangeLine: line_.line += signed_number(*operand); return true;
      case Op::kChangeOffsetAndLine:
        line_.line += signed_number(*operand >> 4);
        begin_line(*operand & 0xf);
        return true;
      case Op::kChangeLengthAndOffset: {
        const auto delta = number(operands);
        if (!delta) return false;
        begin_line(*delta);
        end_line(*operand);
        return true;
      }
      case Op::kLineEndDelta:
      case Op::kRangeKind:
      case Op::kColumnStart:
      case Op::kColumnEndDelta:
      case Op::kColumnEnd: return true;
      // Code that was moved away from the function: where to is not said here.
      case Op::kCodeOffsetBase:
      case Op::kEnd: break;
    }
    return false;
  }

 private:
  void begin_line(std::uint32_t delta) {
    end_line(delta);
    offset_ += delta;
    open_ = line_;
  }
  void end_line(std::uint32_t length) {
    if (open_ && visit_ != nullptr) {
      (*visit_)(offset_);
      (*visit_)(offset_ + length);
    } else if (open_ && !found_ && wanted_ - offset_ < length) {
      found_ = open_;
    }
    open_.reset();
  }

  SourceLine line_;
  std::uint32_t wanted_;
  std::uint32_t offset_ = 0;
  std::optional<SourceLine> open_;  // the line that began at offset_
  std::optional<SourceLine> found_;
  FunctionRef<void(std::uint32_t)>* visit_ = nullptr;
};

void run_all(LineProgram& program, ByteView annotations) {
  ByteCursor cursor(annotations);
  while (!program.found()) {
    const auto op = number(cursor);
    if (!op || !program.run(static_cast<Op>(*op), cursor)) break;
  }
}

}  // namespace

std::optional<SourceLine> inlined_line(ByteView annotations, SourceLine first, std::uint32_t offset) {
  LineProgram program(first, offset);
  run_all(program, annotations);
  return program.found();
}

void each_inlined_offset(ByteView annotations, FunctionRef<void(std::uint32_t)> add) {
  LineProgram program(add);
  run_all(program, annotations);
}

}  // namespace windlass::pdb
