// Other profilers' rules for a leaf's caller in code of a managed runtime. The step judges count how often they are
// right.
//
// The rules of the OpenTelemetry eBPF profiler are rebuilt here; none of its code is used. Their behaviour was read in
// its commit b442421 (2026-08-21): support/ebpf/{hotspot,v8,dotnet,beam}_tracer.ebpf.c, tracemgmt.h and
// nativeunwind/elfunwindinfo/elfgopclntab.go. That profiler asks the runtime which code an address is in. Here
// Windlass's own maps answer, so a rule is never worse than its design.
#pragma once

#include <sys/user.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/go/code_map.h"
#include "runtimes/beam/code_map.h"
#include "runtimes/coreclr/code_map.h"
#include "runtimes/hotspot/code_map.h"
#include "runtimes/v8/heap.h"
#include "windlass/walk.h"

namespace windlass::test {

// The caller's pc; nothing: the stack ends there with an error.
using PeerCaller = std::optional<std::uint64_t>;

inline PeerCaller word_at(const Memory& memory, std::uint64_t address) {
  std::uint64_t word = 0;
  if (!memory.read(address, &word, sizeof word)) return std::nullopt;
  return word;
}

// What the kernel does for perf, and the profiler's unwinder_unwind_frame_pointer().
inline PeerCaller by_frame_pointer(const Memory& memory, const user_regs_struct& now) {
  return word_at(memory, now.rbp + 8);
}

// unwinder_check_frame_size(): no frame is longer.
inline bool otel_has_frame(const user_regs_struct& now, std::uint64_t longest) {
  return now.rbp >= now.rsp && now.rbp < now.rsp + longest;
}

// The slot of the return address, where the code looks like the end of a method.
inline std::optional<std::uint64_t> otel_hotspot_epilogue(const Memory& memory, const user_regs_struct& now) {
  std::array<std::uint8_t, 14> code{};  // from the byte in front of the instruction on
  if (!memory.read(now.rip - 1, code.data(), code.size())) return std::nullopt;
  constexpr std::uint8_t kRet = 0xc3, kPopRbp = 0x5d, kLeave = 0xc9;
  if (code[1] == kRet) return now.rsp;
  if (std::find(code.begin() + 2, code.end(), kRet) == code.end()) return std::nullopt;
  if (code[1] == kPopRbp) return now.rsp + 8;
  const bool polls = code[1] == 0x41 && code[2] == 0x85 && code[3] == 0x02 && code[4] == kRet;
  const bool branches = code[1] == 0x0f && code[2] == 0x85 && code[7] == kRet;
  if (polls || branches || code[0] == kPopRbp || code[0] == kLeave) return now.rsp;
  return std::nullopt;
}

class OtelHotSpot {
 public:
  OtelHotSpot(const Memory& memory, const runtimes::hotspot::VmStructs& structs, const runtimes::hotspot::CodeMap& map)
      : memory_(memory),
        map_(map),
        frame_size_(structs.offset("CodeBlob", "_frame_size").value_or(0)),
        frame_complete_(structs.offset("CodeBlob", "_frame_complete_offset").value_or(0)),
        const_method_(structs.offset("Method", "_constMethod").value_or(0)) {}

  [[nodiscard]] PeerCaller operator()(const user_regs_struct& now) const {
    const auto blob = map_.find(memory_, now.rip);
    std::uint32_t frame_words = 0;
    if (!blob || !memory_.read(blob->address + frame_size_, &frame_words, sizeof frame_words)) return std::nullopt;
    const std::uint64_t frame_size = std::uint64_t{frame_words} * 8;
    using Kind = runtimes::hotspot::Blob::Kind;
    switch (blob->kind) {
      case Kind::kCodelet: return of_interpreter(now);
      case Kind::kVirtual: return word_at(memory_, now.rsp);
      case Kind::kMethod:
      case Kind::kNative: return of_method(now, *blob, frame_size);
      default: return frame_size == 0 ? by_frame_pointer(memory_, now) : word_at(memory_, now.rsp + frame_size - 8);
    }
  }

 private:
  // The frame must have a method in its slot.
  [[nodiscard]] PeerCaller of_interpreter(const user_regs_struct& now) const {
    const PeerCaller method = word_at(memory_, now.rbp - 24);
    if (!otel_has_frame(now, 0x1000) || !method || !word_at(memory_, *method + const_method_)) return std::nullopt;
    return by_frame_pointer(memory_, now);
  }
  [[nodiscard]] PeerCaller of_method(const user_regs_struct& now, const runtimes::hotspot::Blob& blob,
                                     std::uint64_t frame_size) const {
    std::uint16_t complete = 0;
    if (!memory_.read(blob.address + frame_complete_, &complete, sizeof complete)) return std::nullopt;
    if (now.rip < blob.begin + complete)
      return word_at(memory_, now.rsp + (now.rip + 4 >= blob.begin + complete ? 8 : 0));
    if (const auto slot = otel_hotspot_epilogue(memory_, now)) return word_at(memory_, *slot);
    if (otel_has_frame(now, frame_size + 48)) return by_frame_pointer(memory_, now);
    for (unsigned extra = 0; extra < 6; ++extra) {
      const PeerCaller candidate = word_at(memory_, now.rsp + frame_size - 8 + 8 * extra);
      if (candidate && map_.find(memory_, *candidate)) return candidate;
    }
    return std::nullopt;
  }

  const Memory& memory_;
  const runtimes::hotspot::CodeMap& map_;
  std::uint32_t frame_size_, frame_complete_, const_method_;
};

// Frame pointers, for builtins, too; where the frame has neither a marker nor a function in its slots, an error. (That
// the function's own type is asked for besides its SharedFunctionInfo's refuses nothing more.)
inline PeerCaller otel_v8(const runtimes::v8::Heap& heap, const user_regs_struct& now) {
  const runtimes::v8::Layout& layout = heap.layout();
  if (!otel_has_frame(now, 8192)) return std::nullopt;
  const auto slot = [&](std::int32_t offset) {
    return word_at(heap.memory(), now.rbp + static_cast<std::uint64_t>(std::int64_t{offset}));
  };
  const PeerCaller marker = slot(layout.frame_context);
  const PeerCaller function = slot(layout.frame_function);
  if (!marker || !function) return std::nullopt;
  if ((*marker & 1) != 0) {
    const auto shared = heap.field(*function, layout.function_shared);
    if (!shared || !heap.is(*shared, layout.shared_type)) return std::nullopt;
  }
  return by_frame_pointer(heap.memory(), now);
}

// Frame pointers in methods; in stubs that the runtime knows of the return address is on top. Others are in no range
// that the profiler is given.
inline PeerCaller otel_coreclr(const Memory& memory, const runtimes::coreclr::CodeMap& map,
                               const user_regs_struct& now) {
  const auto block = map.find(memory, now.rip);
  if (!block || !otel_has_frame(now, 8192)) return std::nullopt;
  return block->is_stub() ? word_at(memory, now.rsp) : by_frame_pointer(memory, now);
}

// Frame pointers where the source is Go's, the table's bytes on the stack where it is assembly, and some functions by
// their names.
inline PeerCaller otel_go(const Memory& memory, const runtimes::go::CodeMap& map, std::string_view file,
                          const user_regs_struct& now) {
  const auto function = map.function_at(now.rip);
  if (!function) return std::nullopt;
  const std::string_view name = map.name(function->name);
  for (const std::string_view stops : {"runtime.goexit", "runtime.mstart", "runtime.mcall"})
    if (name == stops) return std::nullopt;
  for (const std::string_view framed :
       {"runtime.asmcgocall", "runtime.systemstack", "runtime.nanotime1", "time.now", "runtime.walltime"})
    if (name == framed) return by_frame_pointer(memory, now);
  constexpr std::array kWithoutFramePointer = {
      "/src/crypto/sha1/sha1.go",
      "/src/crypto/sha256/sha256.go",
      "/src/crypto/sha512/sha512.go",
      "/src/crypto/elliptic/p256_asm.go",
      "/src/internal/cpu/cpu_x86.go",
      "golang.org/x/crypto/curve25519/curve25519_amd64.go",
      "golang.org/x/crypto/chacha20poly1305/chacha20poly1305_amd64.go",
  };
  const bool by_table = file.ends_with(".s") || std::ranges::any_of(kWithoutFramePointer, [&](std::string_view suffix) {
                          return file.ends_with(suffix);
                        });
  if (!by_table) return by_frame_pointer(memory, now);
  const std::int32_t bytes = map.value_at(*function, function->stack, now.rip);
  return word_at(memory, now.rsp + static_cast<std::uint64_t>(std::int64_t{bytes}));
}

// The first word that is tagged as a return address, of sixteen behind the top one, in modules' code.
inline PeerCaller otel_beam(const Memory& memory, const runtimes::beam::CodeMap& map, const user_regs_struct& now) {
  if (!map.in_module(memory, now.rip)) return std::nullopt;
  for (unsigned word = 1; word <= 16; ++word) {
    const PeerCaller candidate = word_at(memory, now.rsp + 8 * word);
    if (!candidate || (*candidate & 3) == 0) return candidate;
  }
  return std::nullopt;
}

}  // namespace windlass::test
