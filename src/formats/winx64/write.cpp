// From functions to their entries: the UNWIND_INFO of each piece, one behind another, equal ones once.
#include "formats/winx64/frame_codes.h"
#include "rows/written_mark.h"

namespace windlass::winx64 {
namespace {

constexpr std::uint32_t kHeader = 4;

// Where they are in `bytes`, which stand at `at`: behind the codes.
void add_relocations(const Piece& piece, const std::vector<std::byte>& bytes, std::uint32_t at, std::uint32_t function,
                     std::vector<ImageRelative>& to) {
  using Base = ImageRelative::Base;
  const auto slots = std::to_integer<std::uint32_t>(bytes[2]);
  const std::uint32_t tail = at + kHeader + (slots + 1) / 2 * 4;
  if (piece.content.chained) {
    to.push_back({Base::kFunction, tail, function});
    to.push_back({Base::kFunction, tail + 4, function});
    to.push_back({Base::kInfo, tail + 8, function});
  } else if ((piece.content.flags & (kEhandler | kUhandler)) != 0) {
    to.push_back({Base::kHandler, tail, function});
  }
}

}  // namespace

Expected<void> Writer::add_pieces(const Prologue& prologue, std::span<const std::byte> code) {
  if (options_.info % 4 != 0)
    return fail(ErrorCode::kOutOfRange, "unwind information stands at a multiple of 4", 0, options_.info);
  if (prologue.code_size > 0xffff'ffff - options_.function)
    return fail(ErrorCode::kOutOfRange, "function reaches past what an RVA can name", prologue.code_size,
                options_.function);
  auto pieces = pieces_of(prologue, options_.version, options_.saves_can_wait, code);
  if (!pieces) return Failure(pieces.error());
  const std::size_t first = written_.entries.size();
  for (Piece& piece : *pieces) {
    if (piece.parent) {
      piece.content.chained = written_.entries[first + *piece.parent];
    } else if ((piece.content.flags & (kEhandler | kUhandler)) != 0) {
      piece.content.handler = prologue.handler->rva;
      piece.content.handler_data = prologue.handler->data;
    }
    const auto bytes = encode(piece.content);
    if (!bytes) {
      Error error = bytes.error();
      error.where += piece.begin;
      return Failure(error);
    }
    // Nothing in an information depends on where its function is but the chained entry.
    const auto next = static_cast<std::uint32_t>(written_.bytes.size());
    const auto [known, is_new] = records_.try_emplace(*bytes, next);
    if (is_new) {
      if (bytes->size() > 0xffff'ffff - options_.info - next)
        return fail(ErrorCode::kOutOfRange, "unwind information reaches past what an RVA can name", 0, options_.info);
      written_.bytes.insert(written_.bytes.end(), bytes->begin(), bytes->end());
      add_relocations(piece, *bytes, next, functions_, written_.relocations);
    }
    written_.entries.push_back(
        {options_.function + piece.begin, options_.function + piece.end, options_.info + known->second});
  }
  return {};
}

Expected<void> Writer::add(const Prologue& prologue, std::uint32_t function, std::span<const std::byte> code) {
  options_.function = function;
  const WrittenMark<Written> before(written_);
  const auto done = add_pieces(prologue, code);
  if (done)
    ++functions_;
  else
    before.restore(written_, records_);
  return done;
}

Expected<Written> write(const Prologue& prologue, const WriteOptions& options, std::span<const std::byte> code) {
  Writer writer(options);
  if (const auto done = writer.add(prologue, options.function, code); !done) return Failure(done.error());
  return std::move(writer).take();
}

}  // namespace windlass::winx64
