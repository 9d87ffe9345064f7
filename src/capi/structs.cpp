#include "capi/structs.h"

#include <array>
#include <string_view>

#define WINDLASS_DOTTED_TEXT(major, minor, patch) #major "." #minor "." #patch
#define WINDLASS_DOTTED(major, minor, patch) WINDLASS_DOTTED_TEXT(major, minor, patch)
static_assert(std::string_view(WINDLASS_VERSION) ==
                  WINDLASS_DOTTED(WINDLASS_VERSION_MAJOR, WINDLASS_VERSION_MINOR, WINDLASS_VERSION_PATCH),
              "windlass/c/windlass.h has another version than the file VERSION");

namespace windlass::capi {
namespace {

constexpr auto kSlotNumbers = [] {
  std::array<std::array<RegisterNumber, Registers::kSlots>, kArchitectures> numbers{};
  for (const Architecture architecture : {Architecture::kX86_64, Architecture::kAArch64, Architecture::kI386}) {
    const Registers registers(architecture);
    for (RegisterNumber number = 0; number < 128; ++number)
      if (registers.holds(number)) numbers[static_cast<std::size_t>(architecture)][registers.slot_of(number)] = number;
  }
  return numbers;
}();

static_assert(Registers::kSlots == sizeof(windlass_registers::value) / sizeof(std::uint64_t));
static_assert(WINDLASS_X86_64 == static_cast<int>(Architecture::kX86_64));
static_assert(WINDLASS_AARCH64 == static_cast<int>(Architecture::kAArch64));
static_assert(WINDLASS_I386 == static_cast<int>(Architecture::kI386));

// ErrorCode in its order; the C statuses follow it from WINDLASS_TRUNCATED on.
constexpr int kFirstErrorStatus = WINDLASS_TRUNCATED;
static_assert(kFirstErrorStatus + static_cast<int>(ErrorCode::kUnsupported) == WINDLASS_UNSUPPORTED);
static_assert(kFirstErrorStatus + static_cast<int>(ErrorCode::kNotFound) == WINDLASS_NOT_FOUND);
static_assert(kFirstErrorStatus + static_cast<int>(ErrorCode::kSystem) == WINDLASS_SYSTEM);

windlass_status refuse(windlass_status status, const char* what, windlass_error* to) {
  windlass_error full{};
  full.status = status;
  std::strncpy(full.text, what, sizeof full.text - 1);
  if (to != nullptr) (void)give(full, to);
  return status;
}

}  // namespace

windlass_status status_of(ErrorCode code) { return kFirstErrorStatus + static_cast<int>(code); }

windlass_status report(const Error& error, windlass_error* to) {
  windlass_error full{};
  full.status = status_of(error.code);
  full.where = error.where;
  full.detail = error.detail;
  if (to != nullptr) {
    error.text_to(full.text, sizeof full.text);
    (void)give(full, to);
  }
  return full.status;
}

windlass_status invalid(const char* what, windlass_error* to) { return refuse(WINDLASS_INVALID, what, to); }

windlass_status no_memory(windlass_error* to) { return refuse(WINDLASS_NO_MEMORY, "no memory for a handle", to); }

bool is_architecture(std::uint32_t architecture) { return architecture < kArchitectures; }

windlass_registers to_c(const Registers& registers) {
  windlass_registers to{};
  to.size = sizeof to;
  to.architecture = static_cast<std::uint32_t>(registers.architecture());
  to.flags = registers.pc().is_return_address() ? WINDLASS_RETURN_ADDRESS : 0;
  registers.for_each([&](RegisterNumber number, std::uint64_t value) {
    const unsigned slot = registers.slot_of(number);
    to.value[slot] = value;
    to.known |= std::uint64_t{1} << slot;
  });
  return to;
}

bool from_c(const windlass_registers& from, Registers& to) {
  if (!is_architecture(from.architecture) || (from.flags & ~WINDLASS_RETURN_ADDRESS) != 0 ||
      from.known >> Registers::kSlots != 0)
    return false;
  to = Registers(static_cast<Architecture>(from.architecture));
  for (std::uint64_t rest = from.known; rest != 0; rest &= rest - 1) {
    const auto slot = static_cast<unsigned>(std::countr_zero(rest));
    to.set(kSlotNumbers[from.architecture][slot], from.value[slot]);
  }
  const RegisterNumber pc = Registers::pc_number(to.architecture());
  if (to.has(pc) && (from.flags & WINDLASS_RETURN_ADDRESS) != 0) to.set_pc(CodeAddress::return_address(to.get(pc)));
  return true;
}

windlass_module to_c(const ModuleInfo& info) {
  windlass_module to{};
  to.size = sizeof to;
  to.begin = info.begin;
  to.end = info.end;
  to.bias = info.bias;
  to.path = info.path.c_str();
  to.file = info.file.empty() ? nullptr : info.file.c_str();
  return to;
}

bool from_c(const windlass_files* from, FileSearch& to) {
  if (from == nullptr) return true;
  windlass_files given;
  if (!take(from, given)) return false;
  if (given.sysroot != nullptr) to.sysroot = given.sysroot;
  if (given.executable != nullptr) to.executable = given.executable;
  return true;
}

}  // namespace windlass::capi

using namespace windlass;
using namespace windlass::capi;

extern "C" {

const char* windlass_status_name(windlass_status status) {
  static constexpr const char* kNames[] = {"WINDLASS_OK",          "WINDLASS_END",          "WINDLASS_INVALID",
                                           "WINDLASS_NO_MEMORY",   "WINDLASS_TRUNCATED",    "WINDLASS_MALFORMED",
                                           "WINDLASS_UNSUPPORTED", "WINDLASS_OUT_OF_RANGE", "WINDLASS_NOT_FOUND",
                                           "WINDLASS_LIMIT",       "WINDLASS_UNREADABLE",   "WINDLASS_SYSTEM"};
  return status >= 0 && static_cast<std::size_t>(status) < std::size(kNames) ? kNames[status] : "?";
}

uint32_t windlass_version(void) {
  return WINDLASS_VERSION_MAJOR << 16 | WINDLASS_VERSION_MINOR << 8 | WINDLASS_VERSION_PATCH;
}
const char* windlass_version_text(void) { return WINDLASS_VERSION; }

uint32_t windlass_native_architecture(void) {
#if defined(__x86_64__)
  return WINDLASS_X86_64;
#else
  return WINDLASS_AARCH64;
#endif
}

}  // extern "C"
