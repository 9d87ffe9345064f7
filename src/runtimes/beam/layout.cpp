#include "runtimes/beam/layout.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtimes/accessor.h"
#include "runtimes/beam/unexported.h"
#include "runtimes/dynamic_symbol.h"
#include "runtimes/memory_reader.h"
#include "runtimes/needed.h"

namespace windlass::runtimes::beam {
namespace {

struct Release {
  std::string_view name;
  std::uint32_t functions, process_end;  // offsets, and the atoms' names: see Layout
  bool has_name_terms;
};
constexpr std::array kReleases = {Release{"25", 0x60, 0x88, false}, Release{"27", 0x88, 0xc8, false},
                                  Release{"29", 0x98, 0xc8, true}};
constexpr const char* kOtherRelease = "an Erlang/OTP release that is not known: 25, 27 and 29 are";
constexpr const char* kOtherMachine = "an Erlang virtual machine for another machine";
constexpr const char* kFramePointers = "an Erlang virtual machine that keeps frame pointers (+JPperf)";

Layout of_release(const Release& release) {
  Layout layout;
  layout.functions = release.functions;
  layout.process_end = release.process_end;
  layout.has_name_terms = release.has_name_terms;
  return layout;
}

class Exports : public Needed {
 public:
  Exports(const Memory& memory, std::uint64_t image) : memory_(memory), image_(image) {}

  std::uint64_t address(std::string_view name) {
    const auto found = find_dynamic_symbol(memory_, image_, name);
    if (!found) note({ErrorCode::kUnsupported, "the Erlang virtual machine does not export what is needed", image_});
    return found.value_or(0);
  }
  // What the variable of that name holds; 0 before it is set.
  std::uint64_t value(std::string_view name) {
    const std::uint64_t at = address(name);
    const auto found = at != 0 ? read_value<std::uint64_t>(memory_, at) : std::nullopt;
    if (found.value_or(0) == 0) note({ErrorCode::kUnreadable, "the Erlang virtual machine has just begun", at});
    return found.value_or(0);
  }
  void need(bool condition, const char* otherwise) {
    if (!condition) note({ErrorCode::kUnsupported, otherwise, image_});
  }
  // erts_lookup_function_info calls find_range, which loads the_active_code_index and takes the address of the ranges.
  std::uint64_t ranges(std::uint64_t code_index) {
    constexpr const char* kOther = "the Erlang virtual machine finds its functions in another way";
    const std::uint64_t lookup = address("erts_lookup_function_info");
    const auto callee = find_rip_relative(lookup, [](const std::uint8_t* at) { return at[0] == 0xe8 ? 1 : 0; });
    const auto index = find_rip_relative(callee.value_or(0), is_load);
    const auto found = find_rip_relative(callee.value_or(0), is_address);
    need(callee && index == code_index && found, kOther);
    return found.value_or(0);
  }

 private:
  static constexpr std::size_t kSearched = 64;

  // Bytes in front of the displacement, with ModRM = rip + disp32 (Intel SDM 2A, table 2-2); 0: something else.
  static int is_load(const std::uint8_t* at) { return at[0] == 0x8b && (at[1] & 0xc7) == 5 ? 2 : 0; }
  static int is_address(const std::uint8_t* at) {
    return (at[0] & 0xfb) == 0x48 && at[1] == 0x8d && (at[2] & 0xc7) == 5 ? 3 : 0;
  }
  template <typename Is>
  std::optional<std::uint64_t> find_rip_relative(std::uint64_t function, Is&& is) {
    std::array<std::uint8_t, kSearched + 8> code{};
    if (function == 0 || !memory_.read(function, code.data(), code.size())) return std::nullopt;
    for (std::size_t i = 0; i < kSearched; ++i) {
      const int before = is(code.data() + i);
      if (before == 0) continue;
      std::int32_t displacement = 0;
      std::memcpy(&displacement, code.data() + i + before, sizeof displacement);
      return function + i + static_cast<std::uint64_t>(before) + 4 +
             static_cast<std::uint64_t>(std::int64_t{displacement});
    }
    return std::nullopt;
  }

  const Memory& memory_;
  std::uint64_t image_;
};

// On the stack of the first scheduler, above its registers: the return address behind a call of process_main().
void find_scheduler_return(const Memory& memory, std::uint64_t scheduler, Layout& to) {
  constexpr std::uint32_t kSearchedStack = 64U << 10, kPiece = 4096, kCallSize = 5;
  const auto registers = read_value<std::uint64_t>(memory, scheduler + Layout::kSchedulerRegisters);
  if (!registers || *registers % 64 != 0) return;
  std::array<std::uint64_t, kPiece / 8> words{};
  for (std::uint32_t at = 0; at < kSearchedStack; at += kPiece) {
    if (!memory.read(*registers + at, words.data(), sizeof words)) return;
    for (std::uint32_t i = 0; i < words.size(); ++i) {
      struct Call {
        std::uint8_t code[kCallSize];
      };
      const auto call = read_value<Call>(memory, words[i] - kCallSize);
      std::int32_t distance = 0;
      if (call) std::memcpy(&distance, call->code + 1, sizeof distance);
      const std::uint64_t called = words[i] + static_cast<std::uint64_t>(std::int64_t{distance});
      if (!call || call->code[0] != 0xe8) continue;
      if (to.process_main != 0 ? called != to.process_main : !is_process_main(memory, called)) continue;
      to.process_main = called;
      to.scheduler_return = words[i];
      to.scheduler_distance = at + i * 8;
      return;
    }
  }
}

// A thread's control block points to itself (ELF handling for TLS 3.4.6; glibc's tcbhead_t). The thread-specific data
// lie within the block, as pairs of a number and a value.
void find_thread_scheduler(const Memory& memory, std::uint64_t scheduler, Layout& to) {
  constexpr std::uint32_t kSelf = 0x10, kSearchedBlock = 2048;
  const auto thread = read_value<std::uint64_t>(memory, scheduler + Layout::kSchedulerThread);
  std::array<std::uint64_t, kSearchedBlock / 8> words{};
  if (!thread || !memory.read(*thread, words.data(), sizeof words) || words[kSelf / 8] != *thread) return;
  for (std::uint32_t i = 1; i < words.size(); ++i)
    if (words[i] == scheduler && words[i - 1] != 0 && words[i - 1] >> 32 == 0) {
      to.thread_scheduler = i * 8;
      return;
    }
}

Expected<Layout> with_scheduler(const Memory& memory, std::uint64_t image, std::uint64_t scheduler, Layout to) {
  find_scheduler_return(memory, scheduler, to);
  find_thread_scheduler(memory, scheduler, to);
  if (to.scheduler_return == 0)
    return fail(ErrorCode::kUnreadable, "no scheduler of the virtual machine runs yet", image);
  return to;
}

Expected<Layout> of_unexported(const Memory& memory, std::uint64_t image, std::string_view name) {
  const auto header = read_value<Elf64_Ehdr>(memory, image);
  if (!header || header->e_machine != EM_X86_64) return fail(ErrorCode::kUnsupported, kOtherMachine, image);
  const auto release = std::ranges::find(kReleases, name, &Release::name);
  if (release == kReleases.end()) return fail(ErrorCode::kUnsupported, kOtherRelease, image);
  Layout to = of_release(*release);
  const auto found = find_unexported(memory, image, to);
  if (!found) return Failure(found.error());
  if (found->has_frame_pointers) return fail(ErrorCode::kUnsupported, kFramePointers, image);
  return with_scheduler(memory, image, found->scheduler, to);
}

}  // namespace

Expected<Layout> Layout::read(const Memory& memory, std::uint64_t image) {
  if (!find_dynamic_symbol(memory, image, "etp_otp_release"))
    if (const std::string release = unexported_release(memory, image); !release.empty())
      return of_unexported(memory, image, release);
  Exports exports(memory, image);
  const auto text = [&](std::string_view name) { return read_text(memory, exports.address(name), 64); };
  const auto number = [&](std::string_view name) {
    return read_value<std::uint32_t>(memory, exports.address(name)).value_or(0);
  };
  const auto release = std::ranges::find(kReleases, text("etp_otp_release"), &Release::name);
  exports.need(release != kReleases.end(), kOtherRelease);
  exports.need(text("etp_arch").starts_with("x86_64") && number("etp_arch_bits") == 64, kOtherMachine);
  exports.need(number("etp_beamasm") != 0, "an Erlang virtual machine without a JIT compiler");
  exports.need(number("etp_debug_compiled") == 0 && number("etp_lock_check") == 0 && number("etp_lock_count") == 0,
               "an Erlang virtual machine that was built to be debugged");
  if (exports.error()) return Failure(*exports.error());
  exports.need(number("erts_frame_layout") == 0, kFramePointers);
  Layout to = of_release(*release);
  to.code_index = exports.address("the_active_code_index");
  to.ranges = exports.ranges(to.code_index);
  to.atoms = exports.address("erts_atom_table");
  to.process_main = exports.address("process_main");
  if (exports.error()) return Failure(*exports.error());
  to.normal_exit = exports.value("beam_normal_exit");
  const std::uint64_t scheduler = exports.value("erts_aligned_scheduler_data");
  if (exports.error()) return Failure(*exports.error());
  return with_scheduler(memory, image, scheduler, to);
}

}  // namespace windlass::runtimes::beam
