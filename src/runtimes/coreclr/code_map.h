// Finds the method of a pc in CoreCLR's generated code, and from the method the place of its unwind information.
//
// dotnet/runtime, docs/design/datacontracts/ExecutionManager.md describes three steps. The range section map has 5
// levels, then a list of fragments. The nibble map of a code heap is searched backwards in version 1, and has pointers
// in version 2. Last comes the header of the code.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/address_range.h"
#include "runtimes/coreclr/descriptor.h"
#include "windlass/format/winx64.h"
#include "windlass/function_ref.h"
#include "windlass/walk.h"
#include "windlass_learned_layout.h"

namespace windlass::runtimes::coreclr {

// A method's code as the runtime knows it, or a stub. The runtime does not tell where a stub begins, so `begin` is then
// the address of the request, and there are no functions.
struct CodeBlock {
  std::uint64_t begin = 0;
  std::uint64_t base = 0;                          // what the functions count from
  std::uint64_t header = 0;                        // its RealCodeHeader
  std::uint64_t method_desc = 0;                   // MethodDesc
  bool lasting = true;                             // it is in no heap whose code is freed
  std::vector<winx64::RuntimeFunction> functions;  // the method, then its funclets; ascending

  [[nodiscard]] bool is_stub() const { return functions.empty(); }
  [[nodiscard]] std::uint64_t end() const { return base + functions.back().end; }
};

class CodeMap {
 public:
  static constexpr std::uint32_t kMaxFunctions = 4096;        // of one method
  static constexpr std::uint32_t kMaxCode = 16U << 20;        // bytes of one method
  static constexpr unsigned kMaxFragments = 4096;             // of 128 KiB
  static constexpr std::uint64_t kMaxUnits = kMaxCode / 256;  // of a nibble map, searched backwards

  // kUnsupported: a version that is not known, or a field that is missing.
  [[nodiscard]] static Expected<CodeMap> make(const Descriptor& descriptor);

  // kNotFound: nothing of the runtime's is there; kUnsupported: a kind of code that is not read
  // (code compiled ahead of time). Others: what is wrong. Bounded by the limits above.
  [[nodiscard]] Expected<CodeBlock> find(const Memory& memory, std::uint64_t pc) const;
  // Where the code around a method tells of itself, if the kernel side can read that (bpf/windlass_coreclr.h) and none
  // of the code is ever freed.
  [[nodiscard]] std::optional<wl_code_heap> heap_of(const Memory& memory, std::uint64_t pc) const;
  // Is what find() gave still there?
  [[nodiscard]] bool is_still(const Memory& memory, const CodeBlock& block) const;

 private:
  struct Section {
    AddressRange range;  // of the fragment
    std::uint64_t begin = 0;
    std::uint32_t flags = 0;
    std::uint64_t heap = 0, r2r_module = 0;
  };

  [[nodiscard]] Expected<Section> section_of(const Memory& memory, std::uint64_t pc) const;
  [[nodiscard]] Expected<std::uint64_t> method_start(const Memory& memory, const Section& section,
                                                     std::uint64_t pc) const;
  [[nodiscard]] Expected<void> read_functions(const Memory& memory, CodeBlock& block) const;

  std::uint64_t version_ = 0;
  std::uint64_t root_ = 0;            // of the map
  std::uint64_t last_stub_kind_ = 0;  // what stands for a header in front of stubs
  std::uint32_t fragment_begin_ = 0, fragment_end_ = 0, fragment_section_ = 0, fragment_next_ = 0;
  std::uint32_t section_begin_ = 0, section_flags_ = 0, section_heap_ = 0, section_r2r_ = 0;
  std::uint32_t heap_begin_ = 0, heap_end_ = 0, heap_map_base_ = 0, heap_map_ = 0;
  std::uint32_t header_method_ = 0, header_count_ = 0, header_functions_ = 0;
  std::uint32_t function_size_ = 0, function_begin_ = 0, function_end_ = 0, function_info_ = 0;
};

// The method's first byte in a nibble map, from its base, for a pc at `offset` from it. `unit(index)` gives its
// 32-bit units. kNotFound. Exposed for tests.
using UnitReader = FunctionRef<std::optional<std::uint32_t>(std::uint64_t index)>;
[[nodiscard]] Expected<std::uint64_t> find_in_nibbles(UnitReader unit, std::uint64_t offset, bool pointers);

}  // namespace windlass::runtimes::coreclr
