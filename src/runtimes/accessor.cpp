#include "runtimes/accessor.h"

#include <cstring>
#include <optional>

#include "runtimes/memory_reader.h"

namespace windlass::runtimes {
namespace {

constexpr std::size_t kMostBytes = 12;  // endbr64 and the longest of the loads with its return

struct Load {
  bool from_rip = false;
  std::int32_t displacement = 0;
  std::uint64_t next = 0;  // the address behind it
};

// Intel SDM 2A, 2.1.3 and table 2-2: the ModRM byte of a load to rax from [rdi + disp8], [rdi + disp32], [rdi] or
// [rip + disp32].
std::optional<Load> load_of(const std::uint8_t* code, std::uint64_t address) {
  const std::uint8_t* at = code;
  constexpr std::uint8_t kEndbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
  if (std::memcmp(at, kEndbr64, sizeof kEndbr64) == 0) at += sizeof kEndbr64;
  if (*at == 0x48) ++at;
  if (*at++ != 0x8b) return std::nullopt;
  Load load;
  std::size_t size = 0;
  switch (*at++) {
    case 0x05: load.from_rip = true; [[fallthrough]];
    case 0x87: size = 4; break;
    case 0x47: size = 1; break;
    case 0x07: break;
    default: return std::nullopt;
  }
  if (size == 1) load.displacement = std::int32_t{*at} - (*at >= 0x80 ? 0x100 : 0);  // sign-extended
  if (size == 4) std::memcpy(&load.displacement, at, sizeof load.displacement);
  at += size;
  if (*at != 0xc3) return std::nullopt;
  load.next = address + static_cast<std::uint64_t>(at - code);
  return load;
}

Expected<Load> read_load(const Memory& memory, std::uint64_t function) {
  std::uint8_t code[kMostBytes + 4] = {};
  if (!memory.read(function, code, sizeof code))
    return fail(ErrorCode::kUnreadable, "an accessor's code cannot be read", function);
  const auto load = load_of(code, function);
  if (!load)
    return fail(ErrorCode::kUnsupported, "an accessor of the runtime is more than a load: its release is not known",
                function);
  return *load;
}

}  // namespace

Expected<std::uint32_t> field_of_accessor(const Memory& memory, std::uint64_t function) {
  const auto load = read_load(memory, function);
  if (!load) return Failure(load.error());
  if (load->from_rip || load->displacement < 0)
    return fail(ErrorCode::kUnsupported, "an accessor loads no field", function);
  return static_cast<std::uint32_t>(load->displacement);
}

Expected<std::uint64_t> variable_of_accessor(const Memory& memory, std::uint64_t function) {
  const auto load = read_load(memory, function);
  if (!load) return Failure(load.error());
  if (!load->from_rip) return fail(ErrorCode::kUnsupported, "an accessor loads no variable", function);
  return load->next + static_cast<std::uint64_t>(std::int64_t{load->displacement});
}

}  // namespace windlass::runtimes
