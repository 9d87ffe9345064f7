// From a function to its entries: where it is cut, and which of its pieces are packed.
#include "formats/winarm64/frame_codes.h"

#include <algorithm>
#include <iterator>

#include "rows/written_mark.h"

namespace windlass::winarm64 {
namespace {

constexpr std::uint32_t kMaxLength = 0x3ffff * 4;  // of a record's code
constexpr std::size_t kEntry = kEntrySize;

std::uint32_t last_op_end(const Fragment& fragment) {
  return fragment.ops.empty() ? fragment.begin : fragment.ops.back().end;
}

// Does the last epilogue end the fragment with an instruction that takes something back?
bool open_end(const Fragment& fragment) {
  if (fragment.epilogues.empty()) return false;
  const prologue::Epilogue& last = fragment.epilogues.back();
  return last.end == fragment.end && !last.undone.empty() && last.undone.back().end == last.end;
}

// The first instruction behind a part stands for the jump that its last epilogue has not: the fragment may then say
// that the epilogue is its end.
void lend_jump(Fragment& part, Fragment& next) {
  const bool plain = next.ops.empty() && next.end > next.begin + 4 &&
                     (next.epilogues.empty() || next.epilogues.front().begin > next.begin);
  if (!open_end(part) || next.begin != part.end || !plain) return;
  if (left_in_place(part, part.epilogues.back()) != part.entered.size()) return;  // it leaves the function
  part.end += 4;
  part.epilogues.back().end += 4;
  next.begin += 4;
}

struct Cut {
  Fragment first, second;  // what is between them is a leaf; the second may be empty
};

// The two sides of `at`, which is behind the prologue and in no epilogue.
Cut cut_body(const Fragment& whole, std::uint32_t at) {
  Cut cut{whole, whole};
  cut.first.end = cut.second.begin = at;
  const auto behind = [at](const prologue::Epilogue& epilogue) { return epilogue.begin >= at; };
  std::erase_if(cut.first.epilogues, behind);
  std::erase_if(cut.second.epilogues, [&](const prologue::Epilogue& epilogue) { return !behind(epilogue); });
  for (const prologue::Op& op : whole.ops) cut.second.entered.push_back(op.action);
  cut.second.ops.clear();
  cut.second.prologue_end = 0;
  return cut;
}

// In front of the op that most instructions without one come before.
std::optional<Cut> cut_prologue(const Fragment& whole) {
  std::size_t widest = 0;
  std::uint32_t gap = 0, at = whole.begin;
  for (std::size_t i = 0; i < whole.ops.size(); ++i) {
    if (whole.ops[i].end < at + 4) return std::nullopt;
    const std::uint32_t idle = whole.ops[i].end - 4 - at;
    if (idle > gap) gap = idle, widest = i;
    at = whole.ops[i].end;
  }
  if (gap == 0) return std::nullopt;
  Cut cut{whole, whole};
  const auto op = static_cast<std::ptrdiff_t>(widest);
  cut.first.end = cut.second.begin = whole.ops[widest].end - 4;
  cut.first.ops.erase(cut.first.ops.begin() + op, cut.first.ops.end());
  cut.first.epilogues.clear();
  cut.first.prologue_end = 0;
  for (auto done = whole.ops.begin(); done != whole.ops.begin() + op; ++done)
    cut.second.entered.push_back(done->action);
  cut.second.ops.erase(cut.second.ops.begin(), cut.second.ops.begin() + op);
  return cut;
}

// Cut to what records can cover, not within epilogues. In one pass, as there may be many. A prologue or epilogue that
// is too long stays whole.
std::vector<Fragment> cut_to_length(const Fragment& whole) {
  std::vector<Fragment> pieces;
  Fragment piece = whole;
  piece.epilogues.clear();
  auto epilogue = whole.epilogues.begin();
  while (whole.end - piece.begin > kMaxLength) {
    std::uint32_t at = piece.begin + kMaxLength;
    while (epilogue != whole.epilogues.end() && epilogue->end <= at) piece.epilogues.push_back(*epilogue++);
    if (epilogue != whole.epilogues.end()) at = std::min(at, epilogue->begin);
    if (at <= last_op_end(piece)) break;
    piece.end = at;
    pieces.push_back(piece);
    for (const prologue::Op& op : piece.ops) piece.entered.push_back(op.action);
    piece.ops.clear();
    piece.prologue_end = 0;
    piece.epilogues.clear();
    piece.begin = at;
  }
  piece.epilogues.insert(piece.epilogues.end(), epilogue, whole.epilogues.end());
  piece.end = whole.end;
  pieces.push_back(piece);
  return pieces;
}

// Behind the one instruction that an epilogue has to have behind its last pop, what goes on to the return is a leaf.
// Around the longest of these, if it is worth it.
std::optional<Cut> cut_run_on(const Fragment& whole) {
  constexpr std::uint32_t kWorthIt = 32;  // bytes: an entry has 8
  const prologue::Epilogue* longest = nullptr;
  std::uint32_t most = kWorthIt;
  for (const prologue::Epilogue& epilogue : whole.epilogues) {
    if (epilogue.undone.empty() || epilogue.end < epilogue.undone.back().end + 4 + most) continue;
    if (epilogue.end > whole.end || left_in_place(whole, epilogue) != 0) continue;
    longest = &epilogue;
    most = epilogue.end - epilogue.undone.back().end - 4;
  }
  if (longest == nullptr) return std::nullopt;
  Cut cut = cut_body(whole, longest->end);
  cut.first.end = cut.first.epilogues.back().end = longest->undone.back().end + 4;
  return cut;
}

// A fragment that no record holds, in two.
std::optional<Cut> cut_too_large(const Fragment& whole) {
  if (auto cut = cut_run_on(whole)) return cut;
  std::uint32_t at = whole.begin;
  if (whole.end - whole.begin > kMaxLength) {
    at = whole.begin + kMaxLength;
    for (const prologue::Epilogue& epilogue : whole.epilogues)
      if (epilogue.begin < at && at < epilogue.end) at = epilogue.begin;
  } else if (whole.epilogues.size() > 1) {
    at = whole.epilogues[whole.epilogues.size() / 2].begin;
  }
  if (at > last_op_end(whole) && at > whole.begin) return cut_body(whole, at);
  return cut_prologue(whole);
}

using Pieces = std::vector<Piece>;

std::size_t size_of(const Pieces& pieces) {
  std::size_t size = 0;
  for (const Piece& piece : pieces) size += kEntry + piece.bytes.size();
  return size;
}

// The pieces of one function.
class Cutter {
 public:
  Cutter(const Prologue& prologue, const WriteOptions& options)
      : prologue_(prologue), options_(options), handler_(prologue.handler ? &*prologue.handler : nullptr) {}

  Expected<Pieces> run() {
    std::vector<Fragment> fragments = fragments_of(prologue_);
    if (fragments.size() > 1 && options_.fragments == Fragments::kNever)
      return fail(ErrorCode::kLimit, "parts need fragments, which are forbidden", prologue_.parts.front().begin);
    for (std::size_t i = 0; i + 1 < fragments.size(); ++i) lend_jump(fragments[i], fragments[i + 1]);
    Pieces all;
    for (const Fragment& fragment : fragments) {
      const bool whole = options_.fragments == Fragments::kNever;
      for (const Fragment& part : whole ? std::vector{fragment} : cut_to_length(fragment)) {
        auto pieces = pieces_of(part);
        if (!pieces) return pieces;
        std::move(pieces->begin(), pieces->end(), std::back_inserter(all));
      }
    }
    return all;
  }

 private:
  Expected<Pieces> pieces_of(const Fragment& fragment) {
    if (fragment.leaf() && handler_ == nullptr && !options_.leaf_entries) return Pieces();
    auto whole = piece_of(fragment, handler_, options_.function + fragment.begin);
    if (!whole) {
      if (whole.error().code != ErrorCode::kLimit || options_.fragments == Fragments::kNever)
        return Failure(whole.error());
      const auto cut = cut_too_large(fragment);
      return cut ? both(*cut) : Failure(whole.error());
    }
    Pieces pieces{std::move(*whole)};
    if (options_.fragments == Fragments::kWhenSmaller && !pieces[0].bytes.empty()) make_smaller(fragment, pieces);
    return pieces;
  }

  Expected<Pieces> both(const Cut& cut) {
    const Fragment between{cut.first.end, cut.second.begin, {}, {}, 0, {}};
    Pieces pieces;
    for (const Fragment* part : {&cut.first, &between, &cut.second}) {
      if (part->begin == part->end) continue;
      auto more = pieces_of(*part);
      if (!more) return more;
      std::move(more->begin(), more->end(), std::back_inserter(pieces));
    }
    return pieces;
  }

  // Other ways to cut it that take fewer bytes.
  void make_smaller(const Fragment& fragment, Pieces& best) {
    const auto consider = [&](Expected<Pieces> other) {
      if (other && size_of(*other) < size_of(best)) best = std::move(*other);
    };
    if (const auto cut = cut_prologue(fragment)) consider(both(*cut));
    if (const auto cut = cut_run_on(fragment)) consider(both(*cut));
    if (handler_ != nullptr) return;
    // What lies behind the only epilogue, and fragments without any, have packed entries of their own.
    const std::uint32_t length = fragment.end - fragment.begin;
    if (fragment.epilogues.size() == 1 && fragment.epilogues[0].end < fragment.end) {
      consider(both(cut_body(fragment, fragment.epilogues[0].end)));
    } else if (fragment.ops.empty() && fragment.epilogues.empty() && length > kMaxPackedLength &&
               length / kMaxPackedLength * kEntry < size_of(best)) {
      const Cut cut = cut_body(fragment, fragment.begin + kMaxPackedLength);
      const auto first = piece_of(cut.first, nullptr, 0);
      if (first && first->bytes.empty()) consider(both(cut));
    }
  }

  const Prologue& prologue_;
  const WriteOptions& options_;
  const prologue::Handler* handler_;
};

// Where a record has its handler's RVA.
std::uint32_t handler_offset(const std::vector<std::byte>& record) {
  const auto parsed = parse_record(ByteView(record.data(), record.size()), 0);
  return parsed ? parsed->handler_data - 4 : 0;
}

}  // namespace

std::vector<Fragment> fragments_of(const Prologue& prologue) {
  std::vector<Fragment> fragments;
  Fragment around;
  around.ops = prologue.ops;
  // Only a handler cares where the prologue ends: it is not called there.
  if (prologue.handler) around.prologue_end = prologue.prologue_end();
  std::vector<prologue::Action> entered;
  for (const prologue::Op& op : prologue.ops) entered.push_back(op.action);

  auto epilogue = prologue.epilogues.begin();
  const auto close = [&](std::uint32_t end) {
    around.end = end;
    for (; epilogue != prologue.epilogues.end() && epilogue->begin < end; ++epilogue)
      around.epilogues.push_back(*epilogue);
    if (!around.epilogues.empty()) around.prologue_end = std::min(around.prologue_end, around.epilogues.front().begin);
    around.prologue_end = std::min(around.prologue_end, end);
    if (around.end > around.begin) fragments.push_back(around);
  };
  for (const prologue::Part& part : prologue.parts) {
    if (part.ops.empty() && part.epilogues.empty()) continue;
    // It begins with its first op: up to there it is like what is around it.
    const std::uint32_t first = part.ops.empty() ? part.begin : part.ops.front().end - 4;
    const std::uint32_t begin = std::max(first, part.begin);
    close(begin);
    fragments.push_back({begin, part.end, entered, part.ops, 0, part.epilogues});
    around = Fragment{part.end, part.end, entered, {}, 0, {}};
  }
  close(prologue.code_size);
  return fragments;
}

Expected<Piece> piece_of(const Fragment& fragment, const prologue::Handler* handler, std::uint32_t rva) {
  if (fragment.end - fragment.begin > kMaxLength)
    return fail(ErrorCode::kLimit, "more code than one record can cover, 1 MiB - 4", fragment.begin,
                fragment.end - fragment.begin);
  const auto contents = contents_of(fragment, handler);
  if (!contents) return Failure(contents.error());
  Piece piece{{rva, 0}, {}};
  if (const auto packed = packed_form(*contents)) {
    piece.entry.data = *packed;
    return piece;
  }
  auto bytes = encode(*contents);
  if (!bytes) {
    Error error = bytes.error();
    error.where += fragment.begin;
    return Failure(error);
  }
  piece.bytes = std::move(*bytes);
  return piece;
}

Expected<void> Writer::add_pieces(const Prologue& prologue) {
  if (prologue.architecture != Architecture::kAArch64)
    return fail(ErrorCode::kUnsupported, "prologue is not of AArch64 code", 0);
  if (const auto possible = check(prologue); !possible) return possible;
  if (prologue.code_size % 4 != 0)
    return fail(ErrorCode::kMalformed, "size of the code is no multiple of 4", prologue.code_size, prologue.code_size);
  if (options_.function % 4 != 0 || options_.info % 4 != 0)
    return fail(ErrorCode::kMalformed, "functions and records begin at multiples of 4", 0,
                options_.function % 4 != 0 ? options_.function : options_.info);
  if (options_.function > 0xffff'ffff - prologue.code_size)
    return fail(ErrorCode::kOutOfRange, "function reaches past the last RVA", prologue.code_size, options_.function);
  auto pieces = Cutter(prologue, options_).run();
  if (!pieces) return Failure(pieces.error());
  for (Piece& piece : *pieces) {
    if (!piece.bytes.empty()) {
      while (piece.bytes.size() % 4 != 0) piece.bytes.push_back(std::byte{0});  // of the handler's data
      const auto next = static_cast<std::uint32_t>(written_.bytes.size());
      const auto [known, is_new] = records_.try_emplace(piece.bytes, next);
      piece.entry.data = options_.info + known->second;
      if (is_new) {
        if (0xffff'ffff - options_.info < next + piece.bytes.size())
          return fail(ErrorCode::kOutOfRange, "records reach past the last RVA", 0, options_.info);
        if (prologue.handler)
          written_.relocations.push_back(
              {ImageRelative::Base::kHandler, next + handler_offset(piece.bytes), functions_});
        written_.bytes.insert(written_.bytes.end(), piece.bytes.begin(), piece.bytes.end());
      }
    }
    written_.entries.push_back(piece.entry);
  }
  return {};
}

Expected<void> Writer::add(const Prologue& prologue, std::uint32_t function) {
  options_.function = function;
  const WrittenMark<Written> before(written_);
  const auto done = add_pieces(prologue);
  if (done)
    ++functions_;
  else
    before.restore(written_, records_);
  return done;
}

Expected<Written> write(const Prologue& prologue, const WriteOptions& options) {
  Writer writer(options);
  if (const auto done = writer.add(prologue, options.function); !done) return Failure(done.error());
  return std::move(writer).take();
}

}  // namespace windlass::winarm64
