// An Erlang virtual machine made up in memory, of release 25 unless another one is wanted: its exports, two modules
// (the first has two functions), shared code, atoms, and a running scheduler.
#pragma once

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "runtimes/beam/layout.h"
#include "support/made_up_image.h"

namespace windlass::test::fake_beam {

using runtimes::beam::Layout;

inline constexpr std::uint64_t kBase = 0x10000000;
inline constexpr std::size_t kSize = 0x10000;
inline constexpr std::uint64_t kImage = kBase, kFacts = kBase + 0x1000, kCode = kBase + 0x2000;
inline constexpr std::uint64_t kLookup = kCode, kFindRange = kCode + 0x100, kProcessMain = kCode + 0x200;
inline constexpr std::uint64_t kSchedulerCall = kCode + 0x300, kShared = kCode + 0x400, kNormalExit = kCode + 0x500;
inline constexpr std::uint64_t kRanges = kBase + 0x3000, kRangeList = kBase + 0x3100;
inline constexpr std::uint64_t kModule = kBase + 0x4000, kOtherModule = kBase + 0x5000, kModuleSize = 0x1000;
inline constexpr std::uint64_t kFirst = kModule + 0x100, kSecond = kFirst + 0x80, kCodeEnd = kSecond + 0x80;
inline constexpr std::uint64_t kStub = kCodeEnd - 6;  // a jump behind the last function's code
inline constexpr std::uint64_t kAtoms = kBase + 0x6000, kPages = kAtoms + 0x100, kPage = kAtoms + 0x200;
inline constexpr std::uint64_t kAtomList = kBase + 0x8000;  // behind a page of 1024 atoms' addresses
inline constexpr std::uint64_t kScheduler = kBase + 0x9000, kThread = kBase + 0x9800, kRegisters = kBase + 0xa000;
inline constexpr std::uint32_t kAtomCount = 4, kDistance = 0x148, kThreadData = 0x310;

struct Release {
  std::string_view name;
  std::uint32_t functions, process_end;  // offsets: see Layout
};
inline constexpr Release k25 = {"25", 0x60, 0x88}, k27 = {"27", 0x88, 0xc8}, k29 = {"29", 0x98, 0xc8};

inline constexpr std::uint8_t kTrap = 0xcc;  // between functions' code

// The variables that it exports, with what they hold.
enum Fact : std::uint64_t {
  kRelease = kFacts,
  kMachine = kFacts + 0x10,
  kBits = kFacts + 0x20,
  kBeamAsm = kFacts + 0x28,
  kDebug = kFacts + 0x30,
  kLockCheck = kFacts + 0x38,
  kLockCount = kFacts + 0x40,
  kFrameLayout = kFacts + 0x48,
  kCodeIndex = kFacts + 0x50,
  kExit = kFacts + 0x58,
  kSchedulers = kFacts + 0x60
};

inline constexpr std::uint64_t atom(std::uint64_t index) { return index << 6 | 0x0b; }
inline constexpr std::uint64_t kLists = atom(1), kMap = atom(2), kFilter = atom(3);

class FakeMemory final : public MadeUpMemory {
 public:
  FakeMemory() : MadeUpMemory(kBase, kSize) {}

  // `code`, whose last four bytes lead to `target`.
  template <std::size_t N>
  void put_relative(std::uint64_t at, const std::uint8_t (&code)[N], std::uint64_t target) {
    put_code(at, code);
    put(at + N, static_cast<std::uint32_t>(target - (at + N + 4)));
  }
  template <std::size_t N>
  void put_code(std::uint64_t at, const std::uint8_t (&code)[N]) {
    for (std::size_t i = 0; i < N; ++i) put(at + i, code[i]);
  }
  // A function without code yet: where no clause fits, it calls what all share.
  void put_function(std::uint64_t at, std::uint64_t name, std::uint64_t arity) {
    put_relative(at, {0xe8}, kShared);
    put(at + Layout::kInfoModule, kLists), put(at + Layout::kInfoFunction, name), put(at + Layout::kInfoArity, arity);
  }
  void put_atom(std::uint64_t index, std::string_view text) {
    const std::uint64_t at = kAtomList + index * 0x80;
    put(kPage + index * 8, at);
    put(at + Layout::kAtomLength, static_cast<std::int16_t>(text.size()));
    put(at + Layout::kAtomName, at + 0x40);
    put_bytes(at + 0x40, text);
  }
};

inline MadeUpImage image() {
  MadeUpImage made;
  made.add("etp_otp_release", kRelease), made.add("etp_arch", kMachine), made.add("etp_arch_bits", kBits);
  made.add("etp_beamasm", kBeamAsm), made.add("etp_debug_compiled", kDebug);
  made.add("etp_lock_check", kLockCheck), made.add("etp_lock_count", kLockCount);
  made.add("erts_frame_layout", kFrameLayout), made.add("the_active_code_index", kCodeIndex);
  made.add("erts_lookup_function_info", kLookup), made.add("erts_atom_table", kAtoms);
  made.add("process_main", kProcessMain), made.add("beam_normal_exit", kExit);
  made.add("erts_aligned_scheduler_data", kSchedulers);
  return made;
}

inline void put_modules(FakeMemory& memory, const Release& release) {
  const std::uint64_t active = kRanges + Layout::kRangesSize;
  memory.put(kCodeIndex, std::uint32_t{1});
  memory.put(active, kRangeList), memory.put(active + Layout::kRangesCount, std::uint64_t{2});
  for (unsigned i = 0; i < 2; ++i) {
    const std::uint64_t begin = i == 0 ? kModule : kOtherModule;
    memory.put(kRangeList + 16 * i, begin), memory.put(kRangeList + 16 * i + 8, begin + kModuleSize);
  }
  for (std::uint64_t at = kFirst; at < kCodeEnd; ++at) memory.put(at, kTrap);
  memory.put(kModule, std::uint64_t{2});
  memory.put(kModule + release.functions, std::array{kFirst, kSecond, kCodeEnd});
  memory.put_function(kFirst, kMap, 2);
  memory.put_function(kSecond, kFilter, 3);
  // sub rsp, 16; call; add rsp, 16; ret
  memory.put_code(kFirst + Layout::kInfoSize, {0x48, 0x83, 0xec, 16, 0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 16, 0xc3});
  memory.put_code(kSecond + Layout::kInfoSize, {0xc3});
  memory.put_relative(kStub, {0x40, 0xe9}, kShared);
}

inline void put_scheduler(FakeMemory& memory) {
  memory.put(kSchedulers, kScheduler);
  memory.put(kScheduler + Layout::kSchedulerRegisters, kRegisters);
  memory.put(kScheduler + Layout::kSchedulerThread, kThread);
  memory.put_relative(kSchedulerCall, {0xe8}, kProcessMain);
  memory.put(kRegisters + 0x80, kLookup + 5), memory.put(kRegisters + kDistance, kSchedulerCall + 5);
  memory.put(kThread + 0x10, kThread);
  memory.put(kThread + kThreadData - 8, std::uint64_t{7}), memory.put(kThread + kThreadData, kScheduler);
}

inline FakeMemory make(const Release& release = k25) {
  FakeMemory memory;
  image().put(memory, kImage);
  memory.put_bytes(kRelease, release.name), memory.put_bytes(kMachine, "x86_64-pc-linux");
  memory.put(kBits, std::uint32_t{64}), memory.put(kBeamAsm, std::uint32_t{1});
  memory.put_relative(kLookup, {0x55, 0xe8}, kFindRange);
  memory.put_relative(kFindRange, {0x8b, 0x05}, kCodeIndex);
  memory.put_relative(kFindRange + 6, {0x48, 0x8d, 0x15}, kRanges);
  memory.put_code(kShared, {0x50, 0x58, 0xc3});  // push rax; pop rax; ret
  memory.put(kExit, kNormalExit);
  put_modules(memory, release);
  memory.put(kAtoms + Layout::kAtomCount, kAtomCount), memory.put(kAtoms + Layout::kAtomPages, kPages);
  memory.put(kPages, kPage);
  memory.put_atom(1, "lists"), memory.put_atom(2, "map"), memory.put_atom(3, "filter");
  put_scheduler(memory);
  return memory;
}

// One of release 29 that exports the functions for loaded libraries alone.
inline constexpr std::uint64_t kSystemInfo = kCode + 0x600, kGetAtom = kCode + 0x640, kSegments = kBase + 0xf000;
inline constexpr std::uint64_t kKeepInRbp = kCode + 0x680, kIndexInCode = kCode + 0x6a0, kIndexInOther = kCode + 0x6c0;

inline void put_segments(FakeMemory& memory) {
  const auto load = [](std::uint64_t begin, std::uint64_t end, std::uint32_t flags) {
    Elf64_Phdr made{};
    made.p_type = PT_LOAD, made.p_flags = flags, made.p_vaddr = begin - kImage, made.p_memsz = end - begin;
    made.p_offset = made.p_vaddr;
    return made;
  };
  Elf64_Phdr dynamic{};
  std::memcpy(&dynamic, memory.bytes.data() + sizeof(Elf64_Ehdr) + sizeof dynamic, sizeof dynamic);
  memory.put(kSegments, std::array{load(kImage, kFacts, PF_R), load(kFacts, kCode, PF_R | PF_W),
                                   load(kCode, kRanges, PF_R | PF_X), load(kRanges, kModule, PF_R | PF_W), dynamic});
  memory.put(kImage + offsetof(Elf64_Ehdr, e_phoff), kSegments - kImage);
  memory.put(kImage + offsetof(Elf64_Ehdr, e_phnum), std::uint16_t{5});
}

// An atom whose name is a term: bits on the heap.
inline void put_atom_term(FakeMemory& memory, std::uint64_t index, std::string_view text) {
  memory.put_atom(index, text);
  const std::uint64_t bits = kAtomList + index * 0x80 + 0x30;
  memory.put(kAtomList + index * 0x80 + Layout::kAtomName, bits | 2);
  memory.put(bits, std::uint64_t{0xa0});
}

inline FakeMemory make_unexported() {
  FakeMemory memory = make(k29);
  std::fill(memory.bytes.begin(), memory.bytes.begin() + (kFacts - kBase), 0);
  MadeUpImage image;
  image.add("driver_system_info", kSystemInfo), image.add("enif_get_atom", kGetAtom);
  image.add("enif_system_info", kSystemInfo);
  image.put(memory, kImage);
  put_segments(memory);
  memory.put_relative(kSystemInfo, {0x48, 0x8d, 0x05}, kRelease);
  memory.put_relative(kGetAtom, {0x48, 0x8b, 0x05}, kAtoms + Layout::kAtomPages);
  memory.put_code(kKeepInRbp, {0x48, 0x89, 0xe5, 0x48, 0x8d, 0x63, 0xc0});
  memory.put(kIndexInCode, std::uint64_t{kCodeIndex});
  memory.put(kRanges + Layout::kRangesSize + 16, std::uint64_t{2});  // allocated
  memory.put_code(kProcessMain, {0xe8, 0, 0, 0, 0, 0x48, 0x89, 0xdf, 0x5b, 0x48, 0x8b, 0x00, 0xff, 0xe0});
  memory.put(kAtoms + Layout::kAtomCount, kAtomCount + 2);
  put_atom_term(memory, 1, "lists"), put_atom_term(memory, 2, "map"), put_atom_term(memory, 3, "filter");
  put_atom_term(memory, 4, "erts_beamasm"), put_atom_term(memory, 5, "normal_exit");
  const std::uint64_t info = kNormalExit - Layout::kInfoSize;
  memory.put(info + Layout::kInfoModule, atom(4)), memory.put(info + Layout::kInfoFunction, atom(5));
  return memory;
}

}  // namespace windlass::test::fake_beam
