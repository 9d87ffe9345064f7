#include "formats/go/rows.h"

#include <algorithm>
#include <string_view>

#include "base/registers.h"
#include "base/x86_64_signal_frame.h"
#include "formats/go/stack_switch.h"

namespace windlass::runtimes::go {
namespace {

constexpr std::uint64_t kLargestSpecial = 4096;  // what is written by hand to change stacks is small

struct Special {
  std::string_view name;
  Role role;
};
// Up to Go 1.16 by name alone; later releases flag those that set the stack pointer, and have a few more.
constexpr Special kSpecial[] = {
    {"runtime.goexit", Role::kOutermost},
    {"runtime.mstart", Role::kOutermost},
    {"runtime.rt0_go", Role::kOutermost},
    {"runtime.sigreturn", Role::kSignalReturn},
    {"runtime.sigreturn__sigaction", Role::kSignalReturn},
    {"runtime.systemstack_switch", Role::kReturnedTo},
    {"runtime.sigtramp", Role::kPlain},  // flagged as outermost: Go walks no further
    {"runtime.cgoSigtramp", Role::kPlain},
    {"runtime.sigpanic", Role::kInjected},
    {"runtime.asyncPreempt", Role::kInjected},
    {"runtime.systemstack", Role::kSystemStack},
    {"runtime.asmcgocall", Role::kSystemStack},
    {"runtime.mcall", Role::kSystemJump},
    {"runtime.morestack", Role::kSystemJump},
    {"runtime.execute", Role::kNext},
    {"runtime.gogo", Role::kResume},
    {"gogo", Role::kResume},  // since Go 1.17, which runtime.gogo jumps to
    {"runtime.nanotime1", Role::kForeignStack},
    {"runtime.walltime1", Role::kForeignStack},
    {"runtime.nanotime", Role::kForeignStack},
    {"runtime.walltime", Role::kForeignStack},
    {"runtime.cgocallback", Role::kForeignStack},
    {"runtime.cgocallback_gofunc", Role::kPlain},  // to Go 1.15: its frame is the same on both of its stacks
};

// The names that assembly is given, for each way of calling.
std::string_view without_suffix(std::string_view name) {
  for (const std::string_view suffix : {".abi0", ".abiinternal"})
    if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  return name;
}

// The frame of the kernel's on top of which a handler returns. sp is the CFA.
FrameRow signal_row(std::uint64_t begin, std::uint64_t end) {
  FrameRow row;
  row.begin = begin, row.end = end;
  row.signal_frame = true;
  row.cfa = CfaRule::loaded(x86_64::kRsp, x86_64::kSignalSp, 0);
  row.return_address = RegisterRule::at_register(x86_64::kRsp, x86_64::kSignalPc);
  std::int32_t at = x86_64::kSignalRegisters;
  for (const std::uint8_t reg : x86_64::kSignalOrder) {
    if (reg != x86_64::kRsp) (void)row.registers.set(reg, RegisterRule::at_register(x86_64::kRsp, at));
    at += 8;
  }
  return row;
}

bool matches(ByteView code, std::initializer_list<std::uint8_t> bytes) {
  return code.size() >= bytes.size() && std::equal(bytes.begin(), bytes.end(), code.u8());
}

}  // namespace

Role GoRows::role_of(const Function& function) const {
  const std::string_view name = map_.name(function.name);
  if (name.starts_with("_rt0_") && !name.ends_with("_lib")) return Role::kOutermost;
  const auto* const found = std::ranges::find(kSpecial, without_suffix(name), &Special::name);
  if (found != std::end(kSpecial)) return found->role;
  if ((function.flags & kMarkedOutermost) != 0) return Role::kOutermost;
  return (function.flags & kMarkedSetsStack) != 0 ? Role::kForeignStack : Role::kPlain;
}

std::uint64_t GoRows::begin_of(const Function& function) const {
  const Role role = role_of(function);
  const bool before = role == Role::kSignalReturn || role == Role::kReturnedTo;
  return function.begin - (before ? std::min(function.begin, kBeforeReturnedTo) : 0);
}

Expected<void> GoRows::row_at(std::uint64_t address, FrameRow& to) const {
  const auto function = map_.function_at(address);
  if (!function) return Failure(function.error());
  bool found = false;
  const auto look = [&](const FrameRow& row) {
    if (address < row.begin || address >= row.end) return;
    to = row;
    found = true;
  };
  const auto done = for_each_row(*function, look);
  if (found) return {};
  if (!done) return done;
  return fail(ErrorCode::kNotFound, "Go's table says nothing of the stack here", address);
}

Expected<void> GoRows::for_each_row(const Function& function, RowSink sink) const {
  const bool x86 = map_.table().architecture == Architecture::kX86_64;
  const Subject subject{function, role_of(function), frame_pointer_saved_from(function)};
  FrameRow row;
  switch (subject.role) {
    case Role::kOutermost:
      row.begin = function.begin, row.end = function.end;
      row.cfa = CfaRule::at(stack_pointer(map_.table().architecture), 0);
      sink(row);
      return {};
    case Role::kSignalReturn:
      if (x86) sink(signal_row(begin_of(function), function.end));
      return {};
    case Role::kPlain:
    case Role::kInjected:
    case Role::kNext:
    case Role::kReturnedTo: return plain_rows(subject, begin_of(function), function.end, sink);
    case Role::kSystemStack:
    case Role::kSystemJump:
    case Role::kResume:
    case Role::kForeignStack: break;
  }
  return x86 ? switched_rows(subject, sink) : Expected<void>{};
}

Expected<void> GoRows::plain_rows(const Subject& subject, std::uint64_t begin, std::uint64_t end, RowSink sink,
                                  std::int32_t uncounted) const {
  const Function& function = subject.function;
  const auto give = [&](std::uint64_t from, std::uint64_t to, std::int32_t depth) {
    from = std::max(from, begin), to = std::min(to, end);
    if (from >= to) return;
    FrameRow row = own_row(from, to, depth + uncounted, depth > 0 && from >= subject.saved);
    row.signal_frame = subject.role == Role::kInjected;
    if (subject.role == Role::kNext && map_.table().architecture == Architecture::kX86_64)
      dwarf::leave_switched_stack(row, map_.table().base != 0);
    sink(row);
  };
  std::int32_t bad = 0;
  const auto each = [&](std::uint64_t from, std::uint64_t to, std::int32_t depth) {
    if (depth < 0) bad = depth;
    if (from == function.begin) from = std::min(from, begin);
    const std::uint64_t middle = std::clamp(subject.saved, from, to);
    if (depth >= 0) give(from, middle, depth), give(middle, to, depth);
    return to < end;
  };
  const auto done = map_.for_each_value(function, function.stack, each);
  if (done && bad != 0)
    return fail(ErrorCode::kMalformed, "Go's table gives a negative stack depth", function.begin,
                static_cast<std::uint64_t>(std::int64_t{bad}));
  return done;
}

// `depth`: bytes between sp and what was there when the function was entered.
FrameRow GoRows::own_row(std::uint64_t begin, std::uint64_t end, std::int32_t depth, bool saved) const {
  FrameRow row;
  row.begin = begin, row.end = end;
  if (map_.table().architecture == Architecture::kX86_64) {
    row.cfa = CfaRule::at(x86_64::kRsp, depth + 8);
    row.return_address = RegisterRule::at_cfa(-8);
    if (saved) row.registers.append(x86_64::kRbp, RegisterRule::at_cfa(-16));
    return row;
  }
  // The return address is at the end of the frame, and the frame pointer below that.
  row.cfa = CfaRule::at(aarch64::kSp, depth);
  row.return_address = depth == 0 ? RegisterRule::in_register(aarch64::kX30) : RegisterRule::at_cfa(-depth);
  if (saved) row.registers.append(aarch64::kX29, RegisterRule::at_register(aarch64::kSp, -8));
  return row;
}

// Where the first instruction is behind that which saves the frame pointer; ~0: none does.
std::uint64_t GoRows::frame_pointer_saved_from(const Function& function) const {
  std::uint64_t from = ~std::uint64_t{0};
  const auto each = [&](std::uint64_t begin, std::uint64_t, std::int32_t depth) {
    if (depth <= 0) return true;
    if (!saves_frame_pointer(begin, depth, from)) from = ~std::uint64_t{0};
    return false;
  };
  (void)map_.for_each_value(function, function.stack, each);
  return from;
}

// By the instruction in front of `address`, where the frame has just been made, or the one there.
bool GoRows::saves_frame_pointer(std::uint64_t address, std::int32_t depth, std::uint64_t& from) const {
  const auto code = program_.from_address(address - 4);
  if (!code || code->size() < 16) return false;
  const ByteView at = *code->sub(4, code->size() - 4);
  from = address;
  if (map_.table().architecture == Architecture::kAArch64) {
    if (*at.at<std::uint32_t>(0) == 0xf81f83fd) from = address + 4;  // stur x29, [sp, #-8]
    // Of large frames the stack pointer moves last: stp x29, x30, [x20, #-8]; mov sp, x20.
    const std::uint32_t before = *code->at<std::uint32_t>(0);
    return from != address || (before & 0xfffffc1f) == 0x9100001f;
  }
  if (depth == 8 && matches(at, {0x48, 0x89, 0x2c, 0x24})) {  // mov [rsp], rbp
    from = address + 4;
    return true;
  }
  if (depth == 8) return code->u8()[3] == 0x55;  // push rbp
  const std::int32_t slot = depth - 8;
  if (matches(at, {0x48, 0x89, 0x6c, 0x24}) && at.u8()[4] == slot) {  // mov [rsp + slot], rbp
    from = address + 5;
    return true;
  }
  from = address + 8;
  return matches(at, {0x48, 0x89, 0xac, 0x24}) && *at.at<std::int32_t>(4) == slot;
}

Expected<void> GoRows::switched_rows(const Subject& subject, RowSink sink) const {
  const Function& function = subject.function;
  const Role role = subject.role;
  const std::uint64_t size = function.end - function.begin;
  const auto code = program_.at_address(function.begin, size);
  if (!code || size > kLargestSpecial) return plain_rows(subject, function.begin, function.end, sink);
  const bool by_thread = role != Role::kForeignStack;
  const auto depth = [&](std::uint64_t address) {
    return std::max(0, map_.value_at(function, function.stack, address));
  };
  Expected<void> done;
  const auto each = [&](std::uint64_t begin, std::uint64_t end, const StackPlace& place) {
    FrameRow row;
    row.begin = begin, row.end = end;
    row.return_address = RegisterRule::at_cfa(-8);
    // What C code preserves; where the frame pointer was set to 0 before it was saved, it is lost.
    if (subject.saved < begin)
      row.registers.append(x86_64::kRbp, RegisterRule::at_cfa(-16));
    else if (role == Role::kSystemJump)
      row.registers.append(x86_64::kRbp, RegisterRule::undefined());
    switch (place.kind) {
      case StackPlace::kOwn:
        if (done) done = plain_rows(subject, begin, end, sink, place.offset);
        return;
      case StackPlace::kUnknown: return;
      case StackPlace::kCopied: row.cfa = CfaRule::at(place.reg, place.offset); break;
      case StackPlace::kStored:
        row.cfa = CfaRule::loaded(x86_64::kRsp, place.slot, static_cast<std::int16_t>(place.offset));
        break;
      case StackPlace::kKept:
      case StackPlace::kOther: {
        if (role == Role::kResume) {
          row.cfa = CfaRule::at(x86_64::kRsp, 0);
          row.return_address = RegisterRule::undefined();
          break;
        }
        const Ways& known = ways();
        const bool jumps = role == Role::kSystemJump;
        const std::size_t words = jumps ? kWays : static_cast<std::size_t>(place.depth / 8);
        row.expressions = ByteView(reinterpret_cast<const std::byte*>(known.bytes.data()), known.bytes.size());
        if (place.kind == StackPlace::kKept && words == 0 && known.kept) {
          row.cfa = CfaRule::expression(*known.kept);
        } else if (known.by_thread && (jumps || words < kWays)) {
          row.cfa = CfaRule::expression(known.cfa[words]);
          row.return_address = RegisterRule::expression_value(known.return_address[words]);
        } else {
          row.cfa = CfaRule::expression({});  // which has no value: else call frame information would be asked
        }
        break;
      }
    }
    sink(row);
  };
  for_each_place(*code, function.begin, by_thread, depth, each);
  return done;
}

const GoRows::Ways& GoRows::ways() const {
  std::call_once(looked_, [this] {
    const auto append = [this](const auto& append_to) {
      const std::size_t begin = ways_.bytes.size();
      append_to(ways_.bytes);
      return ExpressionPlace{static_cast<std::uint32_t>(begin), static_cast<std::uint16_t>(ways_.bytes.size() - begin)};
    };
    if (auto kept = find_kept_stack(code_of("runtime.asmcgocall").bytes, 0)) {
      kept->addend = 8;
      ways_.kept = append([&](dwarf::Block& to) { dwarf::append_cfa(*kept, to); });
    }
    auto way = way_back();
    ways_.by_thread = way.has_value();
    for (std::size_t words = 0; way && words <= kWays; ++words) {
      // Of a jump the return address is where it is until the stack is copied, as morestack has it done.
      way->saves_pc = words == kWays;
      way->addend = way->saves_pc ? 0 : 8 * (words + 1);
      ways_.cfa[words] = append([&](dwarf::Block& to) { dwarf::append_cfa(*way, to); });
      ways_.return_address[words] = append([&](dwarf::Block& to) { dwarf::append_return_address(*way, to); });
    }
  });
  return ways_;
}

std::optional<dwarf::SwitchedStack> GoRows::way_back() const {
  const Code code = code_of("runtime.systemstack");
  return find_way_back(code.bytes, code.address);
}

GoRows::Code GoRows::code_of(std::string_view name) const {
  const auto function = find(name);
  if (!function) return {};
  return {function->begin, program_.at_address(function->begin, function->end - function->begin).value_or(ByteView())};
}

std::optional<Function> GoRows::find(std::string_view name) const {
  for (std::uint64_t i = 0; i < map_.size(); ++i)
    if (const auto function = map_.function(i); function && without_suffix(map_.name(function->name)) == name)
      return *function;
  return std::nullopt;
}

}  // namespace windlass::runtimes::go
