// From a function to its entries: the UNWIND_INFO of each piece, one behind another.
#include <algorithm>

#include "winx64/frame_codes.h"

namespace windlass::winx64 {
namespace {

constexpr std::size_t kHeader = 4;

// Puts the informations of a function one behind another.
class Writer {
 public:
  Writer(const Prologue& prologue, const WriteOptions& options) : prologue_(prologue), options_(options) {}

  Expected<void> add(Piece& piece) {
    if (piece.parent)
      piece.content.chained = written_.entries[*piece.parent];
    else if (prologue_.handler) {
      piece.content.handler = prologue_.handler->rva;
      piece.content.handler_data = prologue_.handler->data;
    }
    const auto bytes = encode(piece.content);
    if (!bytes) {
      Error error = bytes.error();
      error.where += piece.begin;
      return std::unexpected(error);
    }
    const std::uint32_t at = place(*bytes, piece);
    written_.entries.push_back({options_.function + piece.begin, options_.function + piece.end, options_.info + at});
    return {};
  }
  [[nodiscard]] const Written& written() const { return written_; }
  [[nodiscard]] Written take() { return std::move(written_); }

 private:
  // Nothing in an information depends on where its function is but the chained entry.
  std::uint32_t place(const std::vector<std::byte>& bytes, const Piece& piece) {
    for (const Span& known : spans_) {
      const auto begin = written_.bytes.begin() + known.at;
      if (known.size == bytes.size() && std::equal(bytes.begin(), bytes.end(), begin)) return known.at;
    }
    const auto at = static_cast<std::uint32_t>(written_.bytes.size());
    spans_.push_back({at, bytes.size()});
    written_.bytes.insert(written_.bytes.end(), bytes.begin(), bytes.end());
    using Base = ImageRelative::Base;
    const auto slots = std::to_integer<std::uint32_t>(bytes[2]);
    const std::uint32_t tail = at + static_cast<std::uint32_t>(kHeader) + (slots + 1) / 2 * 4;
    if (piece.content.chained) {
      written_.relocations.push_back({Base::kFunction, tail});
      written_.relocations.push_back({Base::kFunction, tail + 4});
      written_.relocations.push_back({Base::kInfo, tail + 8});
    } else if (piece.content.flags != 0) {
      written_.relocations.push_back({Base::kHandler, tail});
    }
    return at;
  }

  struct Span {
    std::uint32_t at;
    std::size_t size;
  };
  const Prologue& prologue_;
  const WriteOptions& options_;
  Written written_;
  std::vector<Span> spans_;
};

}  // namespace

Expected<Written> write(const Prologue& prologue, const WriteOptions& options) {
  if (options.info % 4 != 0)
    return fail(ErrorCode::kOutOfRange, "unwind information stands at a multiple of 4", 0, options.info);
  if (prologue.code_size > 0xffff'ffff - options.function)
    return fail(ErrorCode::kOutOfRange, "function reaches past what an RVA can name", prologue.code_size,
                options.function);
  auto pieces = pieces_of(prologue, options.version, options.saves_can_wait);
  if (!pieces) return std::unexpected(pieces.error());
  Writer writer(prologue, options);
  for (Piece& piece : *pieces) {
    if (const auto ok = writer.add(piece); !ok) return std::unexpected(ok.error());
  }
  if (writer.written().bytes.size() > 0xffff'ffff - options.info)
    return fail(ErrorCode::kOutOfRange, "unwind information reaches past what an RVA can name", 0, options.info);
  return writer.take();
}

}  // namespace windlass::winx64
