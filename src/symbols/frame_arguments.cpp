#include "symbols/frame_arguments.h"

#include <dwarf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "base/registers.h"
#include "formats/dwarf/expression.h"
#include "symbols/debug_lines.h"
#include "symbols/dwarf_location.h"
#include "walk/inside.h"
#include "walk/module.h"

namespace windlass::symbols {
namespace {

constexpr std::size_t kMostArguments = 64;  // of a function
constexpr int kDeepestEntryValue = 16;      // frames that one value is followed through
constexpr int kDeepestScope = 128;          // in the search for a call
constexpr std::size_t kMostNameBytes = 256;

constexpr const char* kOptimizedOut = "<optimized out>";
constexpr const char* kUnknown = "?";

// A variant of DWARF 5's name by GNU, or the name itself.
Dwarf_Attribute* either(Dwarf_Die* die, unsigned name, unsigned gnu, Dwarf_Attribute* memory) {
  Dwarf_Attribute* found = dwarf_attr(die, name, memory);
  return found != nullptr ? found : dwarf_attr(die, gnu, memory);
}

bool is_call_site(int tag) { return tag == DW_TAG_call_site || tag == DW_TAG_GNU_call_site; }

std::optional<Dwarf_Addr> entry_of(Dwarf_Die& function) {
  Dwarf_Addr entry = 0, base = 0, end = 0;
  if (dwarf_entrypc(&function, &entry) == 0) return entry;
  // GCC's of several parts begin with the one that is entered.
  if (dwarf_ranges(&function, 0, &base, &entry, &end) > 0) return entry;
  return std::nullopt;
}

bool is_expression(Dwarf_Attribute* location) {
  switch (dwarf_whatform(location)) {
    case DW_FORM_exprloc:
    case DW_FORM_block:
    case DW_FORM_block1:
    case DW_FORM_block2:
    case DW_FORM_block4: return true;
    default: return false;
  }
}

// Calls callback(call site) for those in a function and not in functions that are nested in it, until it returns false.
template <typename Callback>
bool for_each_call(Dwarf_Die& scope, EntryBudget& budget, int depth, Callback&& callback) {
  Dwarf_Die child;
  if (depth > kDeepestScope || dwarf_child(&scope, &child) != 0) return true;
  do {
    if (!budget.take()) return false;
    const int tag = dwarf_tag(&child);
    if (is_call_site(tag) ? !callback(child)
                          : tag != DW_TAG_subprogram && !for_each_call(child, budget, depth + 1, callback))
      return false;
  } while (dwarf_siblingof(&child, &child) == 0);
  return true;
}

// Of a caller, calls leave the registers alone that they preserve. What a walk knows of others is their value behind
// the call, while debug information speaks of the value before.
Registers described(const Registers& registers) {
  Registers kept = registers;
  if (!registers.pc().is_return_address()) return kept;
  const Architecture architecture = registers.architecture();
  registers.for_each([&](RegisterNumber reg, std::uint64_t) {
    if (reg != stack_pointer(architecture) && reg != Registers::pc_number(architecture) &&
        !is_callee_saved(architecture, reg))
      kept.forget(reg);
  });
  return kept;
}

// Reads in one frame of the stack.
class FrameReader final : public ExpressionFrame {
 public:
  FrameReader(const AddressSpace& space, std::span<const ArgumentFrame> stack, std::size_t index, EntryBudget& budget,
              int depth = 0)
      : ExpressionFrame(described(*stack[index].registers), space.memory(), stack[index].bias,
                        stack[index].registers->pc().is_return_address() ? std::span<const std::byte>()
                                                                         : stack[index].vector_registers),
        space_(space),
        stack_(stack),
        index_(index),
        budget_(budget),
        depth_(depth),
        pc_(stack[index].registers->pc().lookup() - stack[index].bias),
        scopes_(stack[index].debug->scopes_at(pc_)) {}

  // Outermost first. Empty: debug information does not know the code.
  [[nodiscard]] std::vector<Dwarf_Die>& scopes() { return scopes_; }
  [[nodiscard]] Dwarf_Addr code() const { return pc_; }

  // Is the code before the place where a function without optimisation has saved its arguments?
  [[nodiscard]] bool in_prologue() {
    const Dwarf_Addr body = body_begin();
    const auto entry = entry_of(scopes_.front());
    return body != 0 && entry && pc_ >= *entry && pc_ < body;
  }

  std::optional<std::uint64_t> cfa() override {
    if (!cfa_) cfa_ = find_cfa();
    return *cfa_;
  }
  std::optional<std::uint64_t> frame_base() override {
    if (!frame_base_) {
      frame_base_ = std::optional<std::uint64_t>();  // of an expression that asks for itself
      frame_base_ = find_frame_base();
    }
    return *frame_base_;
  }
  std::optional<std::uint64_t> entry_value(std::uint64_t reg) override {
    if (!called_) {
      called_ = true;
      find_call();
    }
    if (caller_ == nullptr) return std::nullopt;
    Dwarf_Die parameter;
    if (dwarf_child(&call_, &parameter) != 0) return std::nullopt;
    do {
      Dwarf_Attribute place, content;
      const auto in = only_register(dwarf_attr(&parameter, DW_AT_location, &place));
      if (!budget_.take()) return std::nullopt;
      if (!in || !in->is_bare || in->number != reg) continue;
      // The callee may have changed memory since.
      return value_of(either(&parameter, DW_AT_call_value, DW_AT_GNU_call_site_value, &content), caller_->pc_, *caller_,
                      MemoryReads::kRefused);
    } while (dwarf_siblingof(&parameter, &parameter) == 0);
    return std::nullopt;
  }

 private:
  [[nodiscard]] std::uint64_t address_of(Dwarf_Addr code) const { return code + bias(); }

  // Where its body begins, by the line table. 0: not known.
  Dwarf_Addr body_begin() {
    if (!body_begin_) {
      body_begin_ = 0;
      Dwarf_Addr* found = nullptr;
      const int count = dwarf_entry_breakpoints(&scopes_.front(), &found);
      const std::unique_ptr<Dwarf_Addr, decltype(&std::free)> freed(found, &std::free);
      if (count > 0) body_begin_ = *std::max_element(found, found + count);
    }
    return *body_begin_;
  }

  [[nodiscard]] bool row_at(Dwarf_Addr code, FrameRow& row) const {
    const walk::Module* module = walk::module_at(space_, address_of(code));
    return module != nullptr && module->row_at(address_of(code), row).has_value();
  }

  std::optional<std::uint64_t> find_cfa() {
    FrameRow row;
    if (!row_at(pc_, row)) return std::nullopt;
    std::optional<std::uint64_t> found;
    if (row.cfa.is(CfaRule::kRegister) && registers().has(row.cfa.reg()))
      found = registers().get(row.cfa.reg()) + static_cast<std::uint64_t>(std::int64_t{row.cfa.offset()});
    if (row.cfa.is(CfaRule::kExpression)) found = cfa_by_expression(row);
    // The walk knows the caller's sp by more than a row that may be wrong.
    if (found && index_ + 1 < stack_.size() && stack_[index_ + 1].registers->has_sp() &&
        stack_[index_ + 1].registers->sp() != *found)
      return std::nullopt;
    return found;
  }
  std::optional<std::uint64_t> cfa_by_expression(const FrameRow& row) const {
    const auto read_register = [&](std::uint64_t reg) -> Expected<std::uint64_t> {
      if (!registers().has(reg)) return fail(ErrorCode::kNotFound, "register is not known", reg);
      return registers().get(reg);
    };
    const auto read_memory = [&](std::uint64_t address, unsigned size) -> Expected<std::uint64_t> {
      std::uint64_t value = 0;
      if (!memory().read(address, &value, size)) return fail(ErrorCode::kNotFound, "memory cannot be read", address);
      return value;
    };
    const auto value = dwarf::evaluate_expression(row.expression(row.cfa),
                                                  {.read_register = read_register,
                                                   .read_memory = read_memory,
                                                   .initial = {},
                                                   .bias = bias(),
                                                   .address_size = Registers::word_size(registers().architecture())});
    return value ? std::optional(*value) : std::nullopt;
  }

  std::optional<std::uint64_t> find_frame_base() {
    Dwarf_Attribute memory;
    Dwarf_Attribute* base = dwarf_attr_integrate(&scopes_.front(), DW_AT_frame_base, &memory);
    if (base == nullptr) return std::nullopt;
    // A register is the base only while the frame is made up. So the CFA must be where it is in the body.
    if (only_register(base)) {
      FrameRow here, body;
      if (body_begin() == 0 || !row_at(pc_, here) || !row_at(body_begin(), body) || !(here.cfa == body.cfa))
        return std::nullopt;
    }
    return value_of(base, pc_, *this, MemoryReads::kAllowed);
  }

  // Finds the caller's call of this function, if it is sure that this call led here.
  void find_call() {
    const std::size_t next = index_ + 1;
    if (depth_ >= kDeepestEntryValue || next >= stack_.size() || stack_[next].debug != stack_[index_].debug ||
        !stack_[next].registers->pc().is_return_address())
      return;
    const auto entry = entry_of(scopes_.front());
    if (!entry || makes_tail_calls()) return;
    auto caller = std::make_unique<FrameReader>(space_, stack_, next, budget_, depth_ + 1);
    if (caller->scopes_.empty()) return;
    const Dwarf_Addr after = stack_[next].registers->pc().value() - caller->bias();
    bool is_found = false;
    for_each_call(caller->scopes_.front(), budget_, 0, [&](Dwarf_Die& call) {
      Dwarf_Attribute memory;
      Dwarf_Addr at = 0;
      is_found = dwarf_formaddr(either(&call, DW_AT_call_return_pc, DW_AT_low_pc, &memory), &at) == 0 && at == after;
      if (is_found) call_ = call;
      return !is_found;
    });
    if (is_found && caller->leads_to(call_, address_of(after), address_of(*entry))) caller_ = std::move(caller);
  }
  // A function that leaves by a jump may have been entered a second time so.
  bool makes_tail_calls() {
    return !for_each_call(scopes_.front(), budget_, 0, [](Dwarf_Die& call) {
      Dwarf_Attribute memory;
      bool is_tail = false;
      Dwarf_Attribute* tail = either(&call, DW_AT_call_tail_call, DW_AT_GNU_tail_call, &memory);
      return !(tail != nullptr && dwarf_formflag(tail, &is_tail) == 0 && is_tail);
    });
  }
  // Does the call before `after` lead to the function itself, and not to one that jumps there?
  bool leads_to(Dwarf_Die& call, std::uint64_t after, std::uint64_t function) {
    Dwarf_Attribute memory;
    if (Dwarf_Attribute* target = either(&call, DW_AT_call_target, DW_AT_GNU_call_site_target, &memory);
        target != nullptr)
      return value_of(target, pc_, *this, MemoryReads::kRefused) == function;
    return direct_target(after) == function;
  }
  std::optional<std::uint64_t> direct_target(std::uint64_t after) const {
    constexpr unsigned kX86Call = 5, kA64Call = 4;  // e8 rel32; bl
    if (registers().architecture() == Architecture::kAArch64) {
      std::uint32_t code = 0;
      if (!read_code(after - kA64Call, &code, sizeof code) || code >> 26 != 0x25) return std::nullopt;
      const auto words = static_cast<std::int32_t>(code << 6) >> 6;
      return after - kA64Call + static_cast<std::uint64_t>(std::int64_t{words} * 4);
    }
    std::uint8_t code[kX86Call];
    if (!read_code(after - kX86Call, code, sizeof code) || code[0] != 0xe8) return std::nullopt;
    std::int32_t distance = 0;
    std::memcpy(&distance, code + 1, sizeof distance);
    return after + static_cast<std::uint64_t>(std::int64_t{distance});
  }
  bool read_code(std::uint64_t address, void* to, std::size_t size) const {
    if (memory().read(address, to, size)) return true;
    const walk::Module* module = walk::module_at(space_, address);
    return module != nullptr && module->read_image(address, to, size);
  }

  const AddressSpace& space_;
  std::span<const ArgumentFrame> stack_;
  std::size_t index_;
  EntryBudget& budget_;
  int depth_;
  Dwarf_Addr pc_;
  std::vector<Dwarf_Die> scopes_;
  std::optional<Dwarf_Addr> body_begin_;
  std::optional<std::optional<std::uint64_t>> cfa_, frame_base_;
  bool called_ = false;
  std::unique_ptr<FrameReader> caller_;  // Null: entry values are not known.
  Dwarf_Die call_{};
};

class ArgumentTexts {
 public:
  ArgumentTexts(FrameReader& frame, EntryBudget& budget)
      : frame_(frame),
        budget_(budget),
        values_(frame.memory(), Registers::word_size(frame.registers().architecture()), budget) {}

  FunctionArguments of(Dwarf_Die& function) {
    FunctionArguments result;
    for (Dwarf_Die& parameter : parameters_of(function)) result.arguments.push_back(text_of(parameter));
    result.known = !result.arguments.empty() || has_type(function);
    return result;
  }

 private:
  // Debug information of -g1 has functions without their types. Then none has parameters.
  static bool has_type(Dwarf_Die& function) {
    return dwarf_hasattr_integrate(&function, DW_AT_type) != 0 ||
           dwarf_hasattr_integrate(&function, DW_AT_prototyped) != 0;
  }

  std::vector<Dwarf_Die> formal_parameters(Dwarf_Die& function) {
    std::vector<Dwarf_Die> found;
    Dwarf_Die child;
    if (dwarf_child(&function, &child) != 0) return found;
    do {
      if (!budget_.take() || found.size() >= kMostArguments) break;
      if (dwarf_tag(&child) == DW_TAG_formal_parameter) found.push_back(child);
    } while (dwarf_siblingof(&child, &child) == 0);
    return found;
  }
  // In the order of the source. A copy of a function lacks parameters that were optimised away: those of the original
  // stand for them.
  std::vector<Dwarf_Die> parameters_of(Dwarf_Die& function) {
    std::vector<Dwarf_Die> own = formal_parameters(function);
    Dwarf_Attribute memory;
    Dwarf_Die original;
    if (dwarf_formref_die(dwarf_attr(&function, DW_AT_abstract_origin, &memory), &original) == nullptr) return own;
    std::vector<Dwarf_Die> all = formal_parameters(original);
    for (Dwarf_Die& parameter : own) {
      Dwarf_Die of;
      const bool is_copy = dwarf_formref_die(dwarf_attr(&parameter, DW_AT_abstract_origin, &memory), &of) != nullptr;
      const auto place = is_copy ? std::ranges::find(all, of.addr, &Dwarf_Die::addr) : all.end();
      if (place != all.end())
        *place = parameter;
      else if (all.size() < kMostArguments)
        all.push_back(parameter);
    }
    return all;
  }

  Argument text_of(Dwarf_Die& parameter) {
    Argument argument;
    if (const char* name = dwarf_diename(&parameter); name != nullptr)
      argument.name.assign(name, ::strnlen(name, kMostNameBytes));
    Dwarf_Die type;
    if (!type_of(&parameter, type)) {
      argument.value = kUnknown;
      return argument;
    }
    argument.type = values_.type_name(type);
    const std::size_t size = values_.size_of(type);
    if (size == 0) {
      argument.value = values_.value(type, {});
      return argument;
    }
    const LocatedValue found = read(parameter, size);
    argument.value = found.presence == Presence::kHere
                         ? values_.value(type, ByteView(found.bytes.data(), found.bytes.size()))
                     : found.presence == Presence::kOptimizedOut ? kOptimizedOut
                                                                 : kUnknown;
    return argument;
  }

  LocatedValue read(Dwarf_Die& parameter, std::size_t size) {
    Dwarf_Attribute memory;
    if (Dwarf_Attribute* location = dwarf_attr_integrate(&parameter, DW_AT_location, &memory); location != nullptr) {
      if (is_expression(location) && frame_.in_prologue()) return {Presence::kUnknown, {}};
      return read_located(location, frame_.code(), size, frame_);
    }
    LocatedValue found;
    Dwarf_Attribute* constant = dwarf_attr_integrate(&parameter, DW_AT_const_value, &memory);
    Dwarf_Word number = 0;
    Dwarf_Block block;
    if (constant == nullptr) return found;
    found.presence = Presence::kUnknown;
    const std::byte* from = nullptr;
    if (size <= sizeof number && dwarf_formudata(constant, &number) == 0)
      from = reinterpret_cast<const std::byte*>(&number);
    else if (dwarf_formblock(constant, &block) == 0 && block.length == size)
      from = reinterpret_cast<const std::byte*>(block.data);
    if (from != nullptr) found = {Presence::kHere, {from, from + size}};
    return found;
  }

  FrameReader& frame_;
  EntryBudget& budget_;
  ValueText values_;
};

}  // namespace

std::vector<FunctionArguments> frame_arguments(const AddressSpace& space, std::span<const ArgumentFrame> stack,
                                               std::size_t index, EntryBudget& budget) {
  std::vector<FunctionArguments> functions;
  FrameReader frame(space, stack, index, budget);
  ArgumentTexts texts(frame, budget);
  for (std::size_t i = frame.scopes().size(); i-- > 0;) functions.push_back(texts.of(frame.scopes()[i]));
  return functions;
}

}  // namespace windlass::symbols
