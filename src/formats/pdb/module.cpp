#include "formats/pdb/module.h"

#include <algorithm>

#include "formats/pdb/annotations.h"

namespace windlass::pdb {
namespace {

constexpr std::uint32_t kSignatureSize = 4;

struct Record {
  SymbolKind kind;
  ByteView bytes;  // behind the kind
};

std::optional<Record> next_record(ByteCursor& cursor) {
  const auto header = cursor.read<RecordHeader>();
  if (!header || header->size < 2) return std::nullopt;
  const auto bytes = cursor.bytes(header->size - 2u);
  if (!bytes) return std::nullopt;
  return Record{static_cast<SymbolKind>(header->kind), *bytes};
}

bool is_procedure(SymbolKind kind) {
  switch (kind) {
    case SymbolKind::kLocalProcedure:
    case SymbolKind::kGlobalProcedure:
    case SymbolKind::kLocalProcedureId:
    case SymbolKind::kGlobalProcedureId:
    case SymbolKind::kLocalProcedureDpc:
    case SymbolKind::kLocalProcedureDpcId: return true;
    default: return false;
  }
}

bool opens_scope(SymbolKind kind) {
  return is_procedure(kind) || kind == SymbolKind::kThunk || kind == SymbolKind::kBlock ||
         kind == SymbolKind::kSeparatedCode || kind == SymbolKind::kInlineSite || kind == SymbolKind::kInlineSite2;
}

bool closes_scope(SymbolKind kind) {
  return kind == SymbolKind::kEnd || kind == SymbolKind::kInlineSiteEnd || kind == SymbolKind::kProcedureIdEnd;
}

ByteView behind(ByteView view, std::uint64_t offset) {
  return offset <= view.size() ? *view.sub(offset, view.size() - offset) : ByteView();
}

// The element that begins last at or before a place.
template <typename T>
const T* last_before(const std::vector<T>& sorted, SectionOffset place) {
  const auto after = std::ranges::upper_bound(sorted, place, {}, &T::begin);
  return after != sorted.begin() ? &*std::prev(after) : nullptr;
}

}  // namespace

Expected<Module> Module::read(const Stream& stream, const ModuleInfo& info) {
  Module module;
  if (info.symbols_size > kSignatureSize) {
    const auto symbols = stream.bytes(kSignatureSize, info.symbols_size - kSignatureSize, module.copies_[0]);
    if (!symbols) return Failure(symbols.error());
    module.read_symbols(*symbols);
  }
  const auto lines = stream.bytes(std::uint64_t{info.symbols_size} + info.c11_size, info.c13_size, module.copies_[1]);
  if (!lines) return Failure(lines.error());
  module.lines_ = ModuleLines(*lines);
  module.cross_scope_ = CrossScope(*lines);
  return module;
}

void Module::read_symbols(ByteView records) {
  ByteCursor cursor(records);
  while (const auto record = next_record(cursor)) {
    const ByteView rest = behind(records, cursor.position());
    if (is_procedure(record->kind)) {
      const auto procedure = record->bytes.at<ProcedureRecord>(0);
      const auto name = record->bytes.string_at(kProcedureName);
      if (procedure && name && procedure->size != 0)
        procedures_.push_back(
            {{procedure->section, procedure->offset}, procedure->size, name->substr(0, kLongestName), rest});
    } else if (record->kind == SymbolKind::kThunk) {
      const auto thunk = record->bytes.at<ThunkRecord>(0);
      const auto name = record->bytes.string_at(kThunkName);
      if (thunk && name && thunk->size != 0)
        procedures_.push_back({{thunk->section, thunk->offset}, thunk->size, name->substr(0, kLongestName), {}});
    } else if (record->kind == SymbolKind::kSeparatedCode) {
      const auto part = record->bytes.at<SeparatedCodeRecord>(0);
      if (part)
        separated_.push_back({{part->section, part->offset}, part->size, {part->parent_section, part->parent_offset}});
    }
  }
  std::ranges::stable_sort(procedures_, {}, &Procedure::begin);
  std::ranges::stable_sort(separated_, {}, &Separated::begin);
}

const Procedure* Module::procedure_at(SectionOffset place) const {
  const Separated* part = last_before(separated_, place);
  if (part != nullptr && place.section == part->begin.section && place.offset - part->begin.offset < part->size) {
    const Procedure* parent = last_before(procedures_, part->parent);
    if (parent != nullptr && parent->begin == part->parent) return parent;
  }
  const Procedure* found = last_before(procedures_, place);
  return found != nullptr && found->contains(place) ? found : nullptr;
}

std::size_t Module::inlined_at(const Procedure& procedure, SectionOffset place,
                               FunctionRef<void(const InlinedCall&)> add) const {
  const std::uint32_t offset = place.offset - procedure.begin.offset;
  if (!procedure.contains(place)) return 0;  // separated code: its annotations count from elsewhere
  // Scopes that are open, and how many of the outermost of these contain the place.
  std::uint32_t depth = 0, known = 0, added = 0;
  ByteCursor cursor(procedure.inside);
  while (const auto record = next_record(cursor)) {
    if (closes_scope(record->kind)) {
      if (depth == 0 || known == depth) break;  // the end of the procedure, or of the innermost call at the place
      --depth;
    }
    if (!opens_scope(record->kind)) continue;
    ++depth;
    if (record->kind != SymbolKind::kInlineSite && record->kind != SymbolKind::kInlineSite2) continue;
    const auto site = record->bytes.at<InlineSiteRecord>(0);
    if (!site) break;
    const std::size_t head = sizeof(InlineSiteRecord) + (record->kind == SymbolKind::kInlineSite2 ? 4 : 0);
    InlinedCall call{.id = site->inlinee, .begin = lines_.of_inlinee(site->inlinee), .line = {}};
    const auto line = inlined_line(behind(record->bytes, head), call.begin.value_or(SourceLine()), offset);
    if (!line) continue;
    if (call.begin) call.line = *line;
    add(call);
    if (++added == kMostInlined) break;
    known = depth;
  }
  return cursor.position();
}

void Module::each_place(FunctionRef<void(SectionOffset)> add) const {
  lines_.each_place(add);
  for (const Separated& part : separated_) {
    add(part.begin);
    add({part.begin.section, part.begin.offset + part.size});
  }
  for (const Procedure& procedure : procedures_) {
    const auto add_offset = [&](std::uint32_t offset) {
      add({procedure.begin.section, procedure.begin.offset + offset});
    };
    add_offset(0);
    add_offset(procedure.size);
    std::uint32_t depth = 0;
    ByteCursor cursor(procedure.inside);
    while (const auto record = next_record(cursor)) {
      if (closes_scope(record->kind) && depth-- == 0) break;
      if (!opens_scope(record->kind)) continue;
      ++depth;
      const std::size_t head = sizeof(InlineSiteRecord) + (record->kind == SymbolKind::kInlineSite2 ? 4 : 0);
      if (record->kind == SymbolKind::kInlineSite || record->kind == SymbolKind::kInlineSite2)
        each_inlined_offset(behind(record->bytes, head), add_offset);
    }
  }
}

}  // namespace windlass::pdb
