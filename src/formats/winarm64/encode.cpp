#include "formats/winarm64/encode.h"

#include <algorithm>

#include "formats/winarm64/encode_codes.h"

namespace windlass::winarm64 {
namespace {

constexpr std::uint32_t kMaxWords = 0x3ffff;     // of code
constexpr std::uint32_t kMaxEpilogues = 0xffff;  // with the extension word
constexpr std::uint32_t kMaxHeaderCount = 0x1f;  // of either without it
constexpr std::uint8_t kNop = 0xe3, kEnd = 0xe4;

std::uint32_t instructions(const std::vector<UnwindCode>& codes) {
  std::uint32_t count = 0;
  for (const UnwindCode& code : codes) {
    if (code.ends()) break;
    count += code.instructions;
  }
  return count;
}

Expected<CodeBytes> bytes_of(const std::vector<UnwindCode>& codes, std::uint64_t where) {
  CodeBytes bytes;
  for (const UnwindCode& code : codes)
    if (const auto done = append_code(bytes, code, where); !done) return Failure(done.error());
  bytes.push_back(kEnd);
  return bytes;
}

// The codes of a record, and where each epilogue's start in them.
struct Pool {
  CodeBytes bytes;
  std::vector<std::uint32_t> indexes;
};

// Every sequence ends with `end`, so one that is found anywhere in the others' bytes is the rest of one of them.
// Longest first: the short ones are then found in the long ones.
Expected<Pool> share(const RecordContents& contents) {
  auto prologue = bytes_of(contents.prologue, 0);
  if (!prologue) return Failure(prologue.error());
  Pool pool{std::move(*prologue), std::vector<std::uint32_t>(contents.epilogues.size())};
  std::vector<std::pair<CodeBytes, std::size_t>> sequences;
  for (std::size_t i = 0; i < contents.epilogues.size(); ++i) {
    auto bytes = bytes_of(contents.epilogues[i].codes, contents.epilogues[i].start);
    if (!bytes) return Failure(bytes.error());
    sequences.emplace_back(std::move(*bytes), i);
  }
  std::stable_sort(sequences.begin(), sequences.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  for (const auto& [bytes, i] : sequences) {
    const auto found = std::search(pool.bytes.begin(), pool.bytes.end(), bytes.begin(), bytes.end());
    pool.indexes[i] = static_cast<std::uint32_t>(found - pool.bytes.begin());
    if (found == pool.bytes.end()) pool.bytes.insert(pool.bytes.end(), bytes.begin(), bytes.end());
    if (pool.bytes.size() > kMaxCodeBytes)
      return fail(ErrorCode::kLimit, "more than 1,020 bytes of unwind codes", contents.epilogues[i].start,
                  pool.bytes.size());
  }
  if (pool.bytes.size() > kMaxCodeBytes)
    return fail(ErrorCode::kLimit, "more than 1,020 bytes of unwind codes", 0, pool.bytes.size());
  return pool;
}

Expected<void> check_layout(const RecordContents& contents) {
  if (contents.length % 4 != 0)
    return fail(ErrorCode::kMalformed, "length of the code is no multiple of 4", contents.length, contents.length);
  if (contents.length / 4 > kMaxWords)
    return fail(ErrorCode::kLimit, "more code than one record can cover, 1 MiB - 4", contents.length, contents.length);
  if (contents.epilogues.size() > kMaxEpilogues)
    return fail(ErrorCode::kLimit, "more than 65,535 epilogues", contents.epilogues[kMaxEpilogues].start,
                contents.epilogues.size());
  for (std::size_t i = 0; i < contents.epilogues.size(); ++i) {
    const std::uint32_t start = contents.epilogues[i].start;
    if (start % 4 != 0)
      return fail(ErrorCode::kMalformed, "epilogue does not start at an instruction, a multiple of 4", start);
    if (start >= contents.length) return fail(ErrorCode::kOutOfRange, "epilogue is outside of the code", start);
    if (i > 0 && start <= contents.epilogues[i - 1].start)
      return fail(ErrorCode::kMalformed, "epilogues are not in ascending order", start);
  }
  return {};
}

void append_word(std::vector<std::byte>& to, std::uint32_t word) {
  for (unsigned shift = 0; shift < 32; shift += 8) to.push_back(static_cast<std::byte>(word >> shift));
}

}  // namespace

std::uint64_t EpilogueCodes::end() const { return start + (std::uint64_t{instructions(codes)} + 1) * 4; }

Expected<std::vector<std::byte>> encode(const RecordContents& contents) {
  if (const auto done = check_layout(contents); !done) return Failure(done.error());
  auto pool = share(contents);
  if (!pool) return Failure(pool.error());
  while (pool->bytes.size() % 4 != 0) pool->bytes.push_back(kNop);

  const auto words = static_cast<std::uint32_t>(pool->bytes.size() / 4);
  const auto scopes = static_cast<std::uint32_t>(contents.epilogues.size());
  const bool single = scopes == 1 && contents.epilogues[0].end() == contents.length;
  const std::uint32_t count = single ? pool->indexes[0] : scopes;
  const bool extended = words > kMaxHeaderCount || count > kMaxHeaderCount;

  std::vector<std::byte> out;
  const std::uint32_t header = contents.length / 4 | (contents.handler ? 1U << 20 : 0) | (single ? 1U << 21 : 0);
  append_word(out, extended ? header : header | count << 22 | words << 27);
  if (extended) append_word(out, count | words << 16);
  if (!single)
    for (std::uint32_t i = 0; i < scopes; ++i)
      append_word(out, contents.epilogues[i].start / 4 | pool->indexes[i] << 22);
  for (const std::uint8_t byte : pool->bytes) out.push_back(static_cast<std::byte>(byte));
  if (contents.handler) {
    append_word(out, contents.handler->rva);
    out.insert(out.end(), contents.handler->data.begin(), contents.handler->data.end());
  }
  return out;
}

namespace {

// From `index` to `end`, or to the end of the codes as unwinders bear it.
Expected<std::vector<UnwindCode>> sequence_at(ByteView codes, std::uint32_t index) {
  std::vector<UnwindCode> sequence;
  while (index < codes.size()) {
    const auto code = code_at(codes, index);
    if (!code) return Failure(code.error());
    if (code->operation == Operation::kEnd) break;
    sequence.push_back(*code);
    index += code->size;
  }
  return sequence;
}

}  // namespace

Expected<RecordContents> decode(const UnwindRecord& record) {
  RecordContents contents;
  contents.length = record.length;
  auto prologue = sequence_at(record.codes, 0);
  if (!prologue) return Failure(prologue.error());
  contents.prologue = std::move(*prologue);
  const auto add = [&](std::uint32_t index) -> Expected<void> {
    if (index >= record.codes.size())
      return fail(ErrorCode::kOutOfRange, "epilogue's codes start past the record's", record.rva, index);
    auto codes = sequence_at(record.codes, index);
    if (!codes) return Failure(codes.error());
    contents.epilogues.push_back({0, std::move(*codes)});
    return {};
  };
  if (record.single_epilogue) {
    if (const auto done = add(record.epilogue_index); !done) return Failure(done.error());
    EpilogueCodes& epilogue = contents.epilogues.back();
    if (epilogue.end() > record.length)
      return fail(ErrorCode::kOutOfRange, "epilogue is longer than its function", record.rva, epilogue.end());
    epilogue.start = static_cast<std::uint32_t>(record.length - epilogue.end());
  }
  for (std::uint32_t i = 0; i < record.scope_count(); ++i) {
    const EpilogueScope scope = record.scope(i);
    if (const auto done = add(scope.index); !done) return Failure(done.error());
    contents.epilogues.back().start = scope.start;
  }
  if (record.has_handler) contents.handler = prologue::Handler{record.handler, true, true, {}};
  return contents;
}

}  // namespace windlass::winarm64
