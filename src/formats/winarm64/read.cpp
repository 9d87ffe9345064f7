#include "formats/winarm64/read.h"

namespace windlass::winarm64 {
namespace {

constexpr std::uint32_t kMaxRva = 0xffff'ffff;

UnwindRecord packed_record(const PackedFields& fields, const Expansion& expansion, std::uint32_t rva) {
  UnwindRecord record;
  record.rva = rva;
  record.length = fields.length;
  record.single_epilogue = expansion.epilogue_index() != Expansion::kNoEpilogue;
  record.epilogue_index = record.single_epilogue ? expansion.epilogue_index() : 0;
  record.codes = expansion.codes();
  return record;
}

Expected<ByteView> bytes_at(const image::PeImage& image, std::uint32_t rva, const char* what) {
  auto bytes = image.from_rva(rva);
  if (!bytes) return fail(ErrorCode::kOutOfRange, what, rva);
  return bytes;
}

}  // namespace

Expected<RecordHead> read_head(ByteView bytes, std::uint32_t rva) {
  const auto word = bytes.at<std::uint32_t>(0);
  if (!word) return fail(ErrorCode::kTruncated, "unwind record reaches past the image", rva);
  // Epilogues and words of codes at bits 22 and 27, 5 bits each, as .NET and LLVM read them; the page's
  // ComputeXdataSize has another shift and mask. With E set it counts scopes, of which there are none.
  RecordHead head{.length = (*word & 0x3ffff) * 4,
                  .version = static_cast<std::uint8_t>(*word >> 18 & 3),
                  .has_handler = (*word >> 20 & 1) != 0,
                  .single_epilogue = (*word >> 21 & 1) != 0,
                  .epilogues = *word >> 22 & 0x1f,
                  .words = *word >> 27 & 0x1f};
  if (head.version != 0) return fail(ErrorCode::kUnsupported, "unwind record of an unknown version", rva, head.version);
  if (head.epilogues != 0 || head.words != 0) return head;
  const auto extension = bytes.at<std::uint32_t>(4);
  if (!extension) return fail(ErrorCode::kTruncated, "unwind record's extension word is past the image", rva);
  head.extended = true;
  head.epilogues = *extension & 0xffff;
  head.words = *extension >> 16 & 0xff;
  return head;
}

Expected<UnwindRecord> parse_record(ByteView bytes, std::uint32_t rva) {
  // The codes' origin is their RVA, so that every error names one.
  const ByteView view(bytes.data(), bytes.size(), rva);
  const auto head = read_head(view, rva);
  if (!head) return Failure(head.error());
  UnwindRecord record;
  record.rva = rva;
  record.length = head->length;
  record.version = head->version;
  record.has_handler = head->has_handler;
  record.single_epilogue = head->single_epilogue;
  if (head->single_epilogue) record.epilogue_index = head->epilogues;
  const auto scopes = view.sub(head->scopes_at(), head->codes_at() - head->scopes_at());
  if (!scopes) return fail(ErrorCode::kTruncated, "epilogue scopes reach past the image", rva, head->epilogues);
  record.scopes = *scopes;
  const auto codes = view.sub(head->codes_at(), std::uint64_t{head->words} * 4);
  if (!codes) return fail(ErrorCode::kTruncated, "unwind codes reach past the image", rva, head->words);
  record.codes = *codes;
  if (record.has_handler) {
    const auto handler = view.at<std::uint32_t>(head->handler_at());
    if (!handler || std::uint64_t{rva} + head->size() > kMaxRva)
      return fail(ErrorCode::kTruncated, "unwind record's handler is past the image", rva);
    record.handler = *handler;
    record.handler_data = rva + head->size();
  }
  return record;
}

Expected<UnwindRecord> expand_packed(RuntimeFunction function, Expansion& storage) {
  const PackedFields fields = packed_fields(function);
  const auto expanded = storage.expand(fields, function.kind() == EntryKind::kPackedFragment, function.begin);
  if (!expanded) return Failure(expanded.error());
  return packed_record(fields, storage, function.begin);
}

Expected<UnwindRecord> read_record(const image::PeImage& image, RuntimeFunction function, Expansion& storage) {
  if (function.kind() == EntryKind::kParent)
    return fail(ErrorCode::kUnsupported, "entry refers to another one", function.begin, function.data);
  if (function.packed()) return expand_packed(function, storage);
  const auto bytes = bytes_at(image, function.target(), "unwind record is outside of the image");
  if (!bytes) return Failure(bytes.error());
  return parse_record(*bytes, function.target());
}

Expected<RuntimeFunction> parent_of(const image::PeImage& image, RuntimeFunction function) {
  if ((function.data & 4) != 0)
    return fail(ErrorCode::kUnsupported, "reserved kind of function table entry", function.begin, function.data);
  const auto bytes = bytes_at(image, function.target(), "parent entry is outside of the image");
  if (!bytes) return Failure(bytes.error());
  const auto begin = bytes->at<std::uint32_t>(0);
  const auto data = bytes->at<std::uint32_t>(4);
  if (!begin || !data) return fail(ErrorCode::kTruncated, "parent entry reaches past the image", function.target());
  const RuntimeFunction parent{*begin, *data};
  if (parent.kind() == EntryKind::kParent)
    return fail(ErrorCode::kMalformed, "parent entry has a parent itself", function.begin, function.target());
  return parent;
}

namespace {

class Checker {
 public:
  Checker(const UnwindRecord& record, ErrorSink report) : record_(record), report_(report) {}

  void run() {
    if (record_.codes.empty()) {
      report_({ErrorCode::kMalformed, "unwind record has no codes", record_.rva});
    } else {
      sequence(0);
    }
    if (record_.single_epilogue) {
      epilogue({0, record_.epilogue_index}, true, record_.rva);
      return;
    }
    std::uint32_t last = 0;
    for (std::uint32_t i = 0; i < record_.scope_count(); ++i) {
      const EpilogueScope scope = record_.scope(i);
      const auto where = record_.scopes.origin() + std::uint64_t{i} * 4;
      // The page wants ascending order, and unwinders stop looking at the first scope behind the pc.
      if (i > 0 && scope.start <= last)
        report_({ErrorCode::kMalformed, "epilogue scopes are not in order", where, scope.start});
      last = scope.start;
      epilogue(scope, false, where);
    }
  }

 private:
  void epilogue(const EpilogueScope& scope, bool at_end, std::uint64_t where) {
    if (scope.index >= record_.codes.size()) {
      if (!record_.codes.empty() || scope.index != 0)
        report_({ErrorCode::kOutOfRange, "epilogue's codes start past the record's", where, scope.index});
      return;
    }
    if (scope.index != 0) sequence(scope.index);
    // Only its start is compared with the length: MSVC cuts functions into fragments in the middle of an epilogue.
    const std::uint64_t end =
        at_end ? std::uint64_t{count_instructions(record_.codes, scope.index)} * 4 + 4 : std::uint64_t{scope.start} + 4;
    if (end > record_.length)
      report_({ErrorCode::kOutOfRange, "epilogue lies outside of its function", where, scope.start});
  }

  // Every code from `index` to the end. Where a sequence was looked at already (epilogues share codes), nothing is said
  // twice.
  void sequence(std::uint64_t index) {
    while (index < record_.codes.size()) {
      if (seen_[index / 64] >> (index % 64) & 1) return;
      seen_[index / 64] |= std::uint64_t{1} << (index % 64);
      const auto code = code_at(record_.codes, index);
      if (!code) {
        report_(code.error());
        return;
      }
      one(*code, record_.codes.origin() + index, record_.codes.u8()[index]);
      if (code->operation == Operation::kEnd) return;
      index += code->size;
    }
    report_({ErrorCode::kTruncated, "unwind codes end without an end code", record_.codes.origin() + index});
  }

  void one(const UnwindCode& code, std::uint64_t where, std::uint8_t first) {
    if (code.operation == Operation::kReserved) {
      report_({ErrorCode::kUnsupported, "undefined unwind code", where, first});
    } else if (code.saves()) {
      const unsigned last = code.pair && code.second > code.reg ? code.second : code.reg;
      const unsigned limit = code.file == RegisterFile::kX ? 30 : code.file == RegisterFile::kP ? 15 : 31;
      if (last > limit)
        report_({ErrorCode::kMalformed, "unwind code saves a register that does not exist", where, last});
    }
  }

  const UnwindRecord& record_;
  ErrorSink report_;
  std::uint64_t seen_[kMaxCodeBytes / 64 + 1] = {};
};

}  // namespace

void check_record(const UnwindRecord& record, ErrorSink report) { Checker(record, report).run(); }

}  // namespace windlass::winarm64
