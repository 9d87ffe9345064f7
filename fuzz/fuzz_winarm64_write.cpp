// Input: a byte that chooses, then either an .xdata record, which is decoded and encoded again, or a Prologue, which is
// written and read back. Most Prologues made of arbitrary bytes are refused, so sizes and places are mostly possible.
#include <algorithm>
#include <cstring>
#include <vector>

#include "arm64_image.h"
#include "formats/winarm64/frame_codes.h"
#include "support/pe_builder.h"
#include "windlass/format/winarm64.h"

namespace windlass::fuzz {
namespace {

using namespace prologue;

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  [[nodiscard]] bool empty() const { return size_ == 0; }
  std::uint32_t next() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

// ---- records ------------------------------------------------------------------------------------------------------

bool same_frame(const winarm64::UnwindRecord& a, const winarm64::UnwindRecord& b, std::uint32_t offset) {
  winarm64::SymbolicFrame first, second;
  const auto one = execute_symbolically(a.codes, position_at(a, offset).index, first);
  const auto other = execute_symbolically(b.codes, position_at(b, offset).index, second);
  return one.has_value() == other.has_value() && (!one || first == second);
}

void check_record_again(ByteView bytes) {
  const auto record = winarm64::parse_record(bytes, 0);
  if (!record) return;
  bool sound = true;
  winarm64::check_record(*record, [&](const Error&) { sound = false; });
  (void)winarm64::fragment_of(*record);
  const auto contents = winarm64::decode(*record);
  if (!contents) return;
  const auto encoded = winarm64::encode(*contents);
  if (!encoded) return;
  const ByteView view(encoded->data(), encoded->size());
  const auto again = winarm64::parse_record(view, 0);
  FUZZ_CHECK(again && again->length == record->length);
  const auto twice = winarm64::decode(*again);
  FUZZ_CHECK(twice);
  const auto unchanged = winarm64::encode(*twice);
  FUZZ_CHECK(unchanged && *unchanged == *encoded);
  if (!sound || record->codes.size() > 64 || record->scope_count() > 8) return;
  // Not its size: codes that begin within another's operands overlap in ways that no compiler makes.
  for (std::uint32_t offset = 0; offset < record->length; offset += step_at(offset, record->length))
    FUZZ_CHECK(same_frame(*record, *again, offset));
}

// ---- functions ----------------------------------------------------------------------------------------------------

// What has been done: most of what comes next shall be possible.
struct Done {
  std::uint64_t depth = 0;
  std::uint64_t saved = 0;  // x registers, and v registers behind 32
  bool pointer = false, is_signed = false;
};

RegisterNumber unused(std::uint64_t& saved, std::uint32_t byte) {
  const bool vector = byte % 4 == 3;
  for (unsigned i = 0; i < 12; ++i) {
    const unsigned number = vector ? 8 + (byte / 4 + i) % 8 : 19 + (byte / 4 + i) % 12;
    const std::uint64_t bit = std::uint64_t{1} << (number + (vector ? 32 : 0));
    if ((saved & bit) != 0) continue;
    saved |= bit;
    return static_cast<RegisterNumber>(number + (vector ? 64 : 0));
  }
  return kNoRegister;
}

prologue::Action action(Bytes& in, Done& done) {
  const std::uint32_t kind = in.next();
  if (kind == 255) return Save{static_cast<RegisterNumber>(in.next() % 100), in.next(), in.next(), kNoRegister};
  if (kind % 8 == 2 && !done.is_signed) {
    done.is_signed = true;
    return SignReturnAddress{};
  }
  if (kind % 8 == 1 && !done.pointer && done.depth > 0) {
    done.pointer = true;
    return SetFramePointer{29, static_cast<std::uint32_t>(std::min<std::uint64_t>(done.depth, in.next() * 8))};
  }
  if (kind % 8 >= 3) {
    Save save{unused(done.saved, in.next())};
    const std::uint64_t second = std::uint64_t{1} << (save.reg < 64 ? save.reg + 1 : save.reg + 1 - 32) % 64;
    const bool pair = (kind & 0x40) != 0 && save.reg != 30 && (done.saved & second) == 0;
    if (pair) save.second = static_cast<RegisterNumber>(save.reg + 1), done.saved |= second;
    const std::uint32_t size = pair ? 16 : 8;
    if ((kind & 0x20) != 0 || done.depth < 16)
      done.depth += save.allocate = 16 + in.next() % 15 * 16;
    else
      save.offset = static_cast<std::uint32_t>(in.next() * 8 % std::min<std::uint64_t>(done.depth - size + 8, 512));
    if (save.reg != kNoRegister) return save;
  }
  const Allocate allocate{(in.next() + 1) * (kind & 0x80 ? 4096ULL : 16ULL)};
  done.depth += allocate.size;
  return allocate;
}

std::vector<prologue::Op> ops(Bytes& in, std::uint32_t& at, Done& done) {
  std::vector<prologue::Op> made;
  for (std::uint32_t count = in.next() % 9; count > 0; --count) {
    const std::uint32_t gap = in.next();
    at += gap < 200 ? 4 : gap < 254 ? gap / 16 * 4 : gap - 240;
    made.push_back({at, action(in, done)});
  }
  return made;
}

Epilogue epilogue(Bytes& in, const std::vector<prologue::Op>& done, std::uint32_t& at) {
  Epilogue made{at, at, {}};
  const std::uint32_t flags = in.next();
  for (auto op = done.rbegin(); op != done.rend(); ++op) {
    const bool joined = (flags & 1) != 0 && !made.undone.empty() && std::holds_alternative<Allocate>(op->action);
    if (!joined) made.end += 4;
    if ((flags & 2) != 0 && in.next() % 4 == 0) made.end += 4;
    made.undone.push_back({made.end, op->action});
  }
  if ((flags & 4) == 0) made.end += 4;
  at = made.end;
  return made;
}

Prologue prologue(Bytes& in) {
  Prologue f{.architecture = Architecture::kAArch64};
  std::uint32_t at = 0;
  Done done;
  f.ops = ops(in, at, done);
  if (in.next() % 4 == 0) f.size = at += in.next() % 64 * 4;
  while (!in.empty() && f.epilogues.size() + f.parts.size() < 40) {
    const std::uint32_t kind = in.next();
    at += kind == 255 ? (1U << 20) - 256 : kind / 4 * 4;
    if (kind % 4 != 3) {
      f.epilogues.push_back(epilogue(in, f.ops, at));
      continue;
    }
    prologue::Part part{at, at, {}, {}};
    Done inside = done;
    part.ops = ops(in, at, inside);
    std::vector<prologue::Op> all = f.ops;
    all.insert(all.end(), part.ops.begin(), part.ops.end());
    if (in.next() % 2 == 0) part.epilogues.push_back(epilogue(in, in.next() % 2 == 0 ? all : part.ops, at));
    part.end = at += 4 * (in.next() % 3);
    f.parts.push_back(part);
  }
  f.code_size = at + 4;
  if (at % 32 == 0) f.handler = prologue::Handler{0x1000, true, true, {std::byte{1}}};
  return f;
}

// Both rows know the frame by the same register: then they must say the same.
void compare_rows(const FrameRow& written, const FrameRow& model) {
  FUZZ_CHECK(written.cfa.is(CfaRule::kRegister) && model.cfa.is(CfaRule::kRegister));
  if (written.cfa.reg() != model.cfa.reg()) return;
  FUZZ_CHECK(written.cfa == model.cfa);
  for (RegisterNumber reg = 0; reg < 96; ++reg) {
    if (reg < 19 || (reg > 29 && reg < 72) || reg > 79) continue;  // rows have preserved registers only
    const RegisterRule* first = written.registers.find(reg);
    const RegisterRule* second = model.registers.find(reg);
    if (first != nullptr && first->is(RegisterRule::kAtRegister)) continue;
    FUZZ_CHECK((first == nullptr) == (second == nullptr));
    FUZZ_CHECK(first == nullptr || *first == *second);
  }
}

void check_function(const Prologue& f, winarm64::Fragments fragments) {
  const std::uint32_t begin = 0x1000;
  const auto written = winarm64::write(f, {.function = begin, .info = 0, .fragments = fragments});
  (void)winarm64::directives_of(f, {.handler = "handler"});
  (void)winarm64::directives_of(f, {.assembler = winarm64::Assembler::kArmasm64, .handler = "handler"});
  if (!written) return;
  test::PeBuilder builder(image::PeMachine::kArm64);
  std::vector<std::uint8_t> xdata(written->bytes.size() + 4);
  if (!written->bytes.empty()) std::memcpy(xdata.data(), written->bytes.data(), written->bytes.size());
  builder.add(".text", std::vector<std::uint8_t>(f.code_size), true);
  const std::uint32_t info = builder.add(".xdata", xdata);
  std::vector<winarm64::RuntimeFunction> entries = written->entries;
  for (winarm64::RuntimeFunction& entry : entries) entry.data += entry.packed() ? 0 : info;
  std::vector<std::uint8_t> table(entries.size() * 8);
  if (!entries.empty()) std::memcpy(table.data(), entries.data(), table.size());
  builder.add_function_table(table);
  const std::vector<std::uint8_t> bytes = builder.build();
  const auto image = image::PeImage::parse(ByteView(bytes));
  FUZZ_CHECK(image);
  const winarm64::Functions functions(*image);

  std::uint32_t end = begin;
  for (const winarm64::RuntimeFunction& entry : entries) {
    winarm64::Expansion storage;
    const auto record = winarm64::read_record(*image, entry, storage);
    FUZZ_CHECK(record && entry.begin >= end && record->length > 0);
    end = entry.begin + record->length;
    FUZZ_CHECK(end <= begin + f.code_size);
    winarm64::check_record(*record, [](const Error&) { FUZZ_CHECK(false); });
  }
  const auto rows = rows_of(f);
  FUZZ_CHECK(rows);
  winarm64::RowEvaluator evaluator(functions);
  for (const FrameRow& model : *rows) {
    for (const std::uint64_t offset : {model.begin, (model.end - 1) & ~std::uint64_t{3}}) {
      if (offset < model.begin) continue;
      const auto rva = static_cast<std::uint32_t>(begin + offset);
      winarm64::Expansion storage;
      const auto location = winarm64::locate(functions, rva, storage);
      FUZZ_CHECK(location);
      FrameRow row;
      if (location->position.place == winarm64::Place::kLeaf) continue;
      if (evaluator.row_at(location->function, rva, row)) compare_rows(row, model);
    }
  }
}

}  // namespace
}  // namespace windlass::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  if (size < 1) return 0;
  if (data[0] % 4 == 0) {
    fuzz::check_record_again(ByteView(reinterpret_cast<const std::byte*>(data) + 1, size - 1));
    return 0;
  }
  fuzz::Bytes in(data + 1, std::min<std::size_t>(size - 1, 1024));
  const Prologue f = fuzz::prologue(in);
  if (f.code_size > (std::size_t{5} << 20)) return 0;
  constexpr winarm64::Fragments kFragments[] = {winarm64::Fragments::kWhenNeeded, winarm64::Fragments::kWhenSmaller,
                                                winarm64::Fragments::kNever};
  fuzz::check_function(f, kFragments[data[0] % 4 - 1]);
  return 0;
}
