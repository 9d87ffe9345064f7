// Where a HotSpot's code is: a pc to the blob that has it.
//
// openjdk/jdk, src/hotspot/share/memory/heap.hpp (the segment map: each byte says how many segments back its block
// begins, 0xff: free), code/codeBlob.hpp, code/nmethod.hpp, interpreter/interpreter.hpp (codelets).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtimes/hotspot/continuation.h"
#include "runtimes/hotspot/vm_structs.h"
#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes::hotspot {

inline constexpr std::int32_t kWord = 8;  // bytes: of a pointer, and of a slot of the stack

// A stretch of code that is one thing: all of a blob, or one codelet of the interpreter.
struct Blob {
  enum class Kind : std::uint8_t {
    kMethod,   // compiled
    kNative,   // the wrapper of a native method
    kCodelet,  // of the interpreter
    kAdapter,  // between compiled and interpreted code
    kLinkers,  // through which interpreted code calls method handles
    kVirtual,  // stubs of virtual and interface calls
    kFramed,   // a helper with a frame of its own
    kOther,
  };
  Kind kind = Kind::kOther;
  std::uint64_t address = 0;         // of the CodeBlob
  std::uint64_t begin = 0, end = 0;  // of the code
  std::int32_t frame_bytes = 0;      // without the return address; 0: there is none, or it is not known
  std::string name;                  // the runtime's for it; a codelet's description
  // Of compiled methods and wrappers:
  std::uint64_t method = 0;  // Method
  std::uint32_t id = 0;      // of the compilation
  std::uint64_t entry = 0, verified_entry = 0, osr_entry = 0;
  std::uint64_t stubs = 0, exception_handler = 0, deopt_handler = 0;  // 0: none
  // Where its debug information is; empty: none.
  struct Debug {
    std::uint64_t pcs = 0, pcs_end = 0;            // PcDesc[]
    std::uint64_t scopes = 0, scopes_end = 0;      // what they lead to
    std::uint64_t metadata = 0, metadata_end = 0;  // Metadata*[]
  };
  Debug debug;
  // Of stubs and wrappers: JavaThread::_cont_entry; 0: there are no virtual threads.
  std::uint32_t thread_continuation = 0;
  std::uint32_t continuation_entry = 0;  // sizeof(ContinuationEntry); 0: not known
  std::uint64_t call_return = 0;         // of stubs: where methods that C++ has called return to; 0: there is none

  [[nodiscard]] bool is_compiled() const { return kind == Kind::kMethod || kind == Kind::kNative; }
  // The stubs that bring frames of virtual threads back from the heap.
  [[nodiscard]] bool is_of_continuations() const { return name.starts_with("StubRoutines (continuation"); }
  [[nodiscard]] bool has_thaw_stubs() const {
    return thread_continuation != 0 && continuation_entry != 0 && is_of_continuations();
  }
};

class CodeMap {
 public:
  static constexpr std::uint32_t kMaxHeaps = 16;
  static constexpr std::uint32_t kMaxCode = 4U << 20;  // bytes of one blob
  static constexpr std::uint32_t kMaxCodelets = 4096;
  static constexpr unsigned kMaxSteps = 1U << 16;     // backwards in a segment map
  static constexpr std::uint64_t kMaxMap = 4U << 20;  // bytes of a segment map that new_methods() reads

  // kUnsupported: a field that is missing.
  [[nodiscard]] static Expected<CodeMap> make(const VmStructs& structs);

  // kNotFound: nothing of the runtime's is there. Others: what is wrong. Bounded by the limits above.
  [[nodiscard]] Expected<Blob> find(const Memory& memory, std::uint64_t pc) const;
  // Up to JDK 16 methods of the class archive (classes.jsa) are entered by a jump in the archive: mov r10, TARGET; jmp
  // r10. It is shown as what it leads to. Nothing: `pc` is in no such jump into this code.
  [[nodiscard]] std::optional<Blob> find_archived(const Memory& memory, std::uint64_t pc) const;
  // Begins of the interpreter's codelets.
  [[nodiscard]] std::vector<std::uint64_t> codelets(const Memory& memory) const;
  // Compiled methods that have come since the last call, at most so many. Each is its Method's code, so it is complete.
  // Linear in the code heaps' segments.
  [[nodiscard]] std::vector<Blob> new_methods(const Memory& memory, std::size_t most);
  // Is what find() gave still there? Of a process that has ended, what was there last.
  [[nodiscard]] bool is_still(const Memory& memory, const Blob& blob) const;
  // Where compiled code has Blob::id.
  [[nodiscard]] std::uint64_t id_of(const Blob& blob) const { return blob.address + nmethod_id_; }

 private:
  struct Heap {
    std::uint64_t begin = 0, end = 0, map = 0, map_end = 0;
    unsigned log2_segment = 0;
  };
  [[nodiscard]] Expected<Heap> read_heap(const Memory& memory, std::uint64_t at) const;
  [[nodiscard]] Expected<std::vector<Heap>> read_heaps(const Memory& memory) const;
  [[nodiscard]] Expected<std::uint64_t> block_of(const Memory& memory, const Heap& heap, std::uint64_t pc) const;
  [[nodiscard]] bool is_complete(const Memory& memory, const Blob& blob) const;
  [[nodiscard]] std::optional<Blob> compiled_at(const Memory& memory, std::uint64_t block) const;
  [[nodiscard]] Expected<Blob> read_blob(const Memory& memory, std::uint64_t at) const;
  void read_method(const Memory& memory, Blob& blob) const;
  [[nodiscard]] static std::vector<std::uint8_t> segments_of(const Memory& memory, const Heap& heap);
  void learn_from_native_methods(const Memory& memory, const Heap& heap) const;
  void learn_continuation(const Memory& memory, const Blob& blob) const;
  void read_debug_information(const Memory& memory, Blob& blob) const;
  template <typename Visit>
  Expected<void> each_codelet(const Memory& memory, Visit&& visit) const;
  [[nodiscard]] Expected<void> narrow_to_codelet(const Memory& memory, std::uint64_t pc, Blob& blob) const;

  bool is_one_heap_ = false;  // JDK 8: heaps_ leads to it, and not to an array
  std::uint64_t heaps_ = 0, interpreter_ = 0, call_return_ = 0;
  std::uint32_t array_length_ = 0, array_data_ = 0;
  std::uint32_t heap_memory_ = 0, heap_map_ = 0, heap_log2_ = 0, space_low_ = 0, space_high_ = 0;
  std::uint32_t block_size_ = 0, block_used_ = 0;
  std::uint32_t blob_name_ = 0, blob_size_ = 0, blob_frame_size_ = 0, blob_data_ = 0;
  bool code_is_offset_ = false;  // JDK 8, 22 and later; between them, an address
  std::uint32_t blob_code_ = 0;
  std::uint32_t nmethod_method_ = 0, nmethod_id_ = 0, nmethod_exception_ = 0, nmethod_stubs_ = 0;
  bool entry_is_offset_ = false, deopt_is_offset_ = false;
  std::uint32_t nmethod_entry_ = 0, nmethod_verified_ = 0, nmethod_osr_ = 0, nmethod_deopt_ = 0;
  // Of JDK 17 in the nmethod; of JDK 22 and later the debug information is a block of its own.
  bool data_is_apart_ = false, scopes_are_offset_ = false;
  std::uint32_t nmethod_pcs_ = 0, nmethod_pcs_end_ = 0, nmethod_scopes_ = 0, nmethod_data_ = 0, nmethod_data_size_ = 0;
  std::uint32_t nmethod_metadata_ = 0, mutable_data_ = 0, mutable_size_ = 0, relocation_size_ = 0;
  mutable Continuation continuation_;  // what the tables do not tell is learned from code
  std::uint32_t queue_buffer_ = 0, queue_begin_ = 0, queue_end_ = 0;
  std::uint32_t codelet_size_ = 0, codelet_description_ = 0, codelet_header_ = 0;
  std::uint32_t method_code_ = 0;
  std::set<std::uint64_t> incomplete_;                       // blocks that new_methods() has met once
  std::map<std::uint64_t, std::vector<std::uint8_t>> seen_;  // segment maps as far as new_methods() has come, by place
};

}  // namespace windlass::runtimes::hotspot
