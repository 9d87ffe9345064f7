#include "lookup/sources/ocaml_stacks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/registers.h"
#include "flow/stack_effect.h"
#include "formats/dwarf/expression_ops.h"
#include "formats/image/pe_names.h"
#include "formats/winx64/registers.h"
#include "formats/winx64/unwound.h"

namespace windlass::sources {
namespace {

using flow::StackEffect;
using Kind = StackEffect::Kind;

constexpr RegisterNumber kR10 = 10, kR11 = 11, kR13 = 13;
constexpr std::uint64_t kMostCode = 1 << 16;
constexpr std::int32_t kWord = 8;
constexpr std::int32_t kNoSlot = INT32_MIN;
constexpr std::size_t kSavedRegisters = 8;  // rbx rbp rsi rdi r12-r15

// An instruction as assemblers write it, with one byte of displacement or immediate behind it, or none.
template <std::size_t kSize>
std::optional<std::int32_t> match(ByteView code, unsigned length, const std::array<std::uint8_t, kSize>& bytes) {
  if (length < kSize || length > kSize + 1 || std::memcmp(code.data(), bytes.data(), kSize) != 0) return std::nullopt;
  return length == kSize ? 0 : static_cast<std::int8_t>(code.u8()[kSize]);
}

constexpr std::array<std::uint8_t, 3> kStoreSpByR11 = {0x49, 0x89, 0x63};      // mov [r11 + d8], rsp
constexpr std::array<std::uint8_t, 3> kStoreSpAtR10 = {0x49, 0x89, 0x22};      // mov [r10], rsp
constexpr std::array<std::uint8_t, 3> kSubR10 = {0x49, 0x83, 0xea};            // sub r10, imm8
constexpr std::array<std::uint8_t, 3> kRbxIsSp = {0x48, 0x89, 0xe3};           // mov rbx, rsp
constexpr std::array<std::uint8_t, 3> kR13IsSp = {0x49, 0x89, 0xe5};           // mov r13, rsp
constexpr std::array<std::uint8_t, 3> kR13FromR10 = {0x4d, 0x8b, 0x2a};        // mov r13, [r10]
constexpr std::array<std::uint8_t, 4> kSpFromSp = {0x48, 0x8b, 0x64, 0x24};    // mov rsp, [rsp + d8]
constexpr std::array<std::uint8_t, 3> kSpFromState = {0x49, 0x8b, 0x66};       // mov rsp, [r14 + d8]
constexpr std::array<std::uint8_t, 4> kR11AboveSp = {0x4c, 0x8d, 0x5c, 0x24};  // lea r11, [rsp + d8]
constexpr std::array<std::uint8_t, 3> kR10FromR11 = {0x4d, 0x8b, 0x53};        // mov r10, [r11 + d8]

// Reads the runtime's hand-written code, instruction by instruction.
class StackReader {
 public:
  StackReader(std::vector<FrameRow>& rows, dwarf::Block& expressions) : rows_(rows), expressions_(expressions) {}

  void see(ByteView code, const StackEffect& effect, std::uint64_t rva) {
    const std::uint64_t next = rva + effect.length;
    switch (stack_) {
      case Stack::kCallers: on_callers(code, effect, next); break;
      case Stack::kOfC: on_c(code, effect, next); break;
      case Stack::kKept:
        if (effect.kind == Kind::kUnknown || effect.kind == Kind::kSet) back(rva + effect.length);
        break;
      case Stack::kOfOcaml:
      case Stack::kFiber: on_called(code, effect, next); break;
      case Stack::kLeaving: leave(effect); break;
    }
    if (effect.kind == Kind::kReturn && stack_ != Stack::kOfC) forget();
  }

 private:
  enum class Stack : std::uint8_t {
    kCallers,  // the one it was called on
    kOfC,      // C's, which has the caller's rsp in a word
    kKept,     // C's, and r13 is the caller's rsp
    kOfOcaml,  // OCaml's, which has C's rsp in a word
    kFiber,    // a fiber's, whose handler leads to the one that started it
    kLeaving,  // C's again, up to its return
  };

  void on_callers(ByteView code, const StackEffect& effect, std::uint64_t next) {
    const auto is = [&](const auto& bytes) { return match(code, effect.length, bytes); };
    if (const auto place = is(kStoreSpByR11)) c_slot_ = *place;
    if (is(kStoreSpAtR10)) ocaml_slot_ = 0;
    if (const auto size = is(kSubR10); size && ocaml_slot_ != kNoSlot) ocaml_slot_ += *size;
    if (is(kR13IsSp)) is_kept_ = true;
    if (effect.kind == Kind::kSet && effect.reg == kR11)
      enter(c_slot_ != kNoSlot ? Stack::kOfC : Stack::kFiber, next);
    else if (effect.kind == Kind::kSet && effect.reg == kR10 && ocaml_slot_ != kNoSlot)
      enter(Stack::kOfOcaml, next);
    else if (effect.kind == Kind::kUnknown && is(kSpFromState) && is_kept_)
      enter(Stack::kKept, next);
    base_ = x86_64::kRsp;
  }

  void on_c(ByteView code, const StackEffect& effect, std::uint64_t next) {
    const auto is = [&](const auto& bytes) { return match(code, effect.length, bytes); };
    if (is(kRbxIsSp) || is(kSpFromState)) {
      add(next, CfaRule::loaded(base_, c_slot_, kWord));
      base_ = is(kRbxIsSp) ? x86_64::kRbx : x86_64::kRsp;
    } else if (is(kSpFromSp)) {
      back(next);
    }
  }

  // The other side's code is called; behind that call its rsp may be another one.
  void on_called(ByteView code, const StackEffect& effect, std::uint64_t next) {
    const auto is = [&](const auto& bytes) { return match(code, effect.length, bytes); };
    if (effect.kind == Kind::kCall && called_ == 0) called_ = next;
    if (const auto place = is(kR11AboveSp); place && handler_ == 0) handler_ = *place;
    if (const auto place = is(kR10FromR11); place && handler_ != 0 && parent_ == 0) parent_ = *place;
    if (is(kR13FromR10)) is_kept_ = true;
    if (!is(kSpFromState)) return;
    const bool is_fiber = stack_ == Stack::kFiber;
    if (is_fiber && called_ != 0 && parent_ != 0) add_fiber();
    if (is_fiber && is_kept_) return enter(Stack::kKept, next);
    moved_ = 0;
    pops_.clear();
    if (is_fiber || called_ == 0)
      forget();
    else
      stack_ = Stack::kLeaving;
  }

  // The way from C's stack to its return says how large the frame there is, and where its registers are.
  void leave(const StackEffect& effect) {
    if (effect.kind == Kind::kPop) pops_.push_back({effect.reg, moved_});
    if (effect.kind == Kind::kPop || effect.kind == Kind::kMove) moved_ += static_cast<std::int32_t>(effect.delta);
    const bool is_known = effect.kind == Kind::kPop || effect.kind == Kind::kMove || effect.kind == Kind::kNone;
    if (effect.kind == Kind::kReturn && pops_.size() == kSavedRegisters && moved_ > 0) {
      const std::int32_t size = moved_ + kWord;
      if (size % kWord == 0 && size <= INT16_MAX) add_called(size);
    }
    if (!is_known) forget();
  }

  void enter(Stack stack, std::uint64_t begin) {
    stack_ = stack;
    begin_ = begin;
    called_ = 0;
  }
  // On the caller's stack from `next` on.
  void back(std::uint64_t next) {
    if (stack_ == Stack::kOfC)
      add(next, CfaRule::loaded(base_, c_slot_, kWord));
    else
      add(next, CfaRule::at(kR13, kWord));
    forget();
  }
  void forget() {
    stack_ = Stack::kCallers;
    c_slot_ = kNoSlot;
    ocaml_slot_ = kNoSlot;
    is_kept_ = false;
    handler_ = parent_ = 0;
  }

  // For [begin_, end); what follows begins there. The caller is OCaml's code, which keeps no register.
  void add(std::uint64_t end, const CfaRule& cfa) {
    FrameRow row = row_of(end, cfa);
    for (const unsigned number : winx64::kPreservedNumbers)
      (void)row.registers.set(winx64::dwarf_number(number), RegisterRule::undefined());
    rows_.push_back(row);
    begin_ = end;
  }
  void add_called(std::int32_t size) {
    FrameRow row = row_of(called_, CfaRule::loaded(x86_64::kRsp, ocaml_slot_, static_cast<std::int16_t>(size)));
    for (const auto& [reg, at] : pops_) (void)row.registers.set(reg, RegisterRule::at_cfa(at - size));
    rows_.push_back(row);
  }
  // CFA = [[rsp + handler + parent]] + 8: the first word of a stack's description is its rsp.
  void add_fiber() {
    const auto begin = static_cast<std::uint32_t>(expressions_.size());
    expressions_.push_back(dwarf::DW_OP_breg0 + x86_64::kRsp);
    dwarf::put_sleb(expressions_, handler_ + parent_);
    expressions_.insert(expressions_.end(), {dwarf::DW_OP_deref, dwarf::DW_OP_deref, dwarf::DW_OP_plus_uconst, kWord});
    const auto size = static_cast<std::uint16_t>(expressions_.size() - begin);
    const std::uint64_t next = begin_;
    add(called_, CfaRule::expression({begin, size}));
    begin_ = next;
  }
  [[nodiscard]] FrameRow row_of(std::uint64_t end, const CfaRule& cfa) const {
    FrameRow row;
    row.begin = begin_;
    row.end = end;
    row.cfa = cfa;
    row.return_address = RegisterRule::at_cfa(-kWord);
    return row;
  }

  struct Pop {
    RegisterNumber reg;
    std::int32_t at;  // above rsp where C's stack was returned to
  };
  std::vector<FrameRow>& rows_;
  dwarf::Block& expressions_;
  Stack stack_ = Stack::kCallers;
  std::uint64_t begin_ = 0, called_ = 0;  // of the other stack; behind the call that is made there
  std::int32_t c_slot_ = kNoSlot, ocaml_slot_ = kNoSlot;
  RegisterNumber base_ = x86_64::kRsp;
  bool is_kept_ = false;
  std::int32_t handler_ = 0, parent_ = 0;
  std::int32_t moved_ = 0;
  std::vector<Pop> pops_;
};

// [first, second) of the runtime's code; equal: there is none.
std::pair<std::uint32_t, std::uint32_t> find_code(const image::PeImage& image) {
  constexpr std::string_view kBegin = "caml_system__code_begin", kEnd = "caml_system__code_end";
  const ByteView names = image.coff_strings();
  const std::string_view text(reinterpret_cast<const char*>(names.data()), names.size());
  std::pair<std::uint32_t, std::uint32_t> code{};
  if (text.find(kBegin) == text.npos) return code;
  image::each_coff_symbol(image, [&](std::string_view name, std::uint32_t rva, bool) {
    if (name == kBegin) code.first = rva;
    if (name == kEnd) code.second = rva;
  });
  return code;
}

}  // namespace

OcamlStacks OcamlStacks::read(const image::PeImage& image) {
  OcamlStacks stacks;
  const auto [begin, end] = find_code(image);
  if (begin >= end || end - begin > kMostCode) return stacks;
  const auto code = image.at_rva(begin, end - begin);
  if (!code) return stacks;
  StackReader reader(stacks.rows_, stacks.expressions_);
  flow::StraightCode line(*code, begin, code->size());
  while (const auto effect = line.next())
    reader.see(*code->sub(line.offset(), code->size() - line.offset()), *effect, begin + line.offset());
  const ByteView expressions(reinterpret_cast<const std::byte*>(stacks.expressions_.data()),
                             stacks.expressions_.size());
  for (FrameRow& row : stacks.rows_) row.expressions = expressions;
  std::ranges::sort(stacks.rows_, {}, &FrameRow::begin);
  return stacks;
}

}  // namespace windlass::sources
