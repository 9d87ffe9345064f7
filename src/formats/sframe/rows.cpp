#include "formats/sframe/rows.h"

#include "base/registers.h"
#include "formats/sframe/format.h"

namespace windlass::sframe {
namespace {

constexpr std::uint32_t kLinkRegister = aarch64::kX30;

Expected<RegisterRule> rule_of(const Place& place, std::uint64_t where) {
  if ((place.control & kReservedControl) != 0)
    return fail(ErrorCode::kUnsupported, "control word with an unknown bit", where, place.control);
  if (!place.from_register())
    return place.loaded() ? RegisterRule::at_cfa(place.offset) : RegisterRule::cfa_value(place.offset);
  if (place.reg() > kMaxRowRegister) return fail(ErrorCode::kLimit, "register above those of rows", where, place.reg());
  const auto reg = static_cast<RegisterNumber>(place.reg());
  if (place.loaded()) return RegisterRule::at_register(reg, place.offset);
  return place.offset == 0 ? RegisterRule::in_register(reg) : RegisterRule::register_value(reg, place.offset);
}

Expected<CfaRule> cfa_of(const Place& place, std::uint64_t where) {
  if (!place.from_register()) return fail(ErrorCode::kMalformed, "a CFA that counts from itself", where, place.control);
  const auto rule = rule_of(place, where);
  if (!rule) return Failure(rule.error());
  return place.loaded() ? CfaRule::loaded(rule->reg(), place.offset, 0) : CfaRule::at(rule->reg(), place.offset);
}

// Ascending, as a row has them.
void put_registers(Architecture architecture, const RegisterRule* frame_pointer, RegisterRules& to) {
  constexpr RegisterNumber kEnd = 80;  // behind AArch64's v15
  to.clear();
  for (RegisterNumber reg = 0; reg < kEnd; ++reg) {
    if (!is_callee_saved(architecture, reg)) continue;
    if (reg != windlass::frame_pointer(architecture))
      to.append(reg, RegisterRule::undefined());
    else if (frame_pointer != nullptr)
      to.append(reg, *frame_pointer);
  }
}

// Of the return address or the frame pointer. `reg` is told of in an error.
Expected<Place> place_of(const RegisterRule& rule, const FrameRow& row, RegisterNumber reg) {
  switch (rule.kind()) {
    case RegisterRule::kAtCfa: return at_cfa(rule.offset());
    case RegisterRule::kInRegister: return in_register(rule.reg(), 0);
    case RegisterRule::kRegisterValue: return in_register(rule.reg(), rule.offset());
    case RegisterRule::kAtRegister: return at_register(rule.reg(), rule.offset());
    case RegisterRule::kSameValue: return in_register(reg, 0);
    case RegisterRule::kUndefined:
      return fail(ErrorCode::kUnsupported, "SFrame cannot say that a register is lost", row.begin, reg);
    case RegisterRule::kCfaValue:
      return fail(ErrorCode::kUnsupported, "SFrame has no value that counts from the CFA", row.begin, reg);
    case RegisterRule::kAtExpression:
    case RegisterRule::kExpressionValue: break;
  }
  return fail(ErrorCode::kUnsupported, "SFrame has no expressions", row.begin, reg);
}

Expected<Place> place_of(const CfaRule& cfa, const FrameRow& row) {
  switch (cfa.kind()) {
    case CfaRule::kRegister: return in_register(cfa.reg(), cfa.offset());
    case CfaRule::kLoaded:
      if (cfa.addend() == 0) return at_register(cfa.reg(), cfa.offset());
      return fail(ErrorCode::kUnsupported, "SFrame cannot add to a CFA loaded from memory", row.begin, cfa.reg());
    case CfaRule::kExpression: break;
  }
  return fail(ErrorCode::kUnsupported, "SFrame has no expressions", row.begin);
}

// Where calls leave it.
Place usual_return_address(Architecture architecture) {
  return architecture == Architecture::kAArch64 ? in_register(kLinkRegister, 0)
                                                : at_cfa(fixed_return_address(architecture));
}

}  // namespace

bool Place::from_register() const { return (control & kFromRegister) != 0; }
bool Place::loaded() const { return (control & kLoaded) != 0; }
std::uint32_t Place::reg() const { return control >> kRegisterShift; }

Place in_register(RegisterNumber reg, std::int32_t offset) {
  return {std::uint32_t{reg} << kRegisterShift | kFromRegister, offset};
}
Place at_register(RegisterNumber reg, std::int32_t offset) {
  return {std::uint32_t{reg} << kRegisterShift | kLoaded | kFromRegister, offset};
}
Place at_cfa(std::int32_t offset) { return {kLoaded, offset}; }

bool StoredRow::says_the_same(const StoredRow& other) const {
  return outermost == other.outermost && is_signed == other.is_signed && cfa == other.cfa &&
         return_address == other.return_address && frame_pointer == other.frame_pointer;
}

Expected<void> lower(const StoredRow& stored, Architecture architecture, std::uint64_t where, FrameRow& to) {
  to.expressions = {};
  to.return_signed = stored.is_signed;
  if (stored.outermost) {
    to.cfa = CfaRule::at(stack_pointer(architecture), -fixed_return_address(architecture));
    to.return_address = RegisterRule::undefined();
    put_registers(architecture, nullptr, to.registers);
    return {};
  }
  const auto cfa = cfa_of(stored.cfa, where);
  if (!cfa) return Failure(cfa.error());
  const Place& said = stored.return_address;
  const auto return_address = rule_of(said.said() ? said : usual_return_address(architecture), where);
  if (!return_address) return Failure(return_address.error());
  to.cfa = *cfa;
  to.return_address = *return_address;
  if (!stored.frame_pointer.said()) {
    put_registers(architecture, nullptr, to.registers);
    return {};
  }
  const auto frame_pointer = rule_of(stored.frame_pointer, where);
  if (!frame_pointer) return Failure(frame_pointer.error());
  put_registers(architecture, &*frame_pointer, to.registers);
  return {};
}

Expected<StoredRow> stored_of(const FrameRow& row, Architecture architecture) {
  StoredRow stored;
  if (row.return_address.is(RegisterRule::kUndefined)) {
    stored.outermost = true;
    return stored;
  }
  const auto cfa = place_of(row.cfa, row);
  if (!cfa) return Failure(cfa.error());
  stored.cfa = *cfa;
  const RegisterNumber pc =
      architecture == Architecture::kAArch64 ? aarch64::kX30 : std::uint16_t{x86_64::kReturnAddress};
  const auto return_address = place_of(row.return_address, row, pc);
  if (!return_address) return Failure(return_address.error());
  if (*return_address != usual_return_address(architecture)) stored.return_address = *return_address;
  const RegisterNumber fp = windlass::frame_pointer(architecture);
  if (const RegisterRule* rule = row.registers.find(fp); rule != nullptr && !rule->is(RegisterRule::kSameValue)) {
    const auto frame_pointer = place_of(*rule, row, fp);
    if (!frame_pointer) return Failure(frame_pointer.error());
    stored.frame_pointer = *frame_pointer;
  }
  stored.is_signed = row.return_signed && architecture == Architecture::kAArch64;
  return stored;
}

}  // namespace windlass::sframe
