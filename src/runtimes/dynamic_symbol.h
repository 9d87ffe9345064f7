// Finds a dynamic symbol of an ELF file in its loaded image. Runtimes export the data for debuggers, and the file,
// which may be the whole program, need not be at hand. System V gABI 4.1 chapter 5; DT_GNU_HASH as binutils and glibc
// have it.
#pragma once

#include <elf.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "os/proc_maps.h"
#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes {

struct DynamicSymbol {
  std::uint64_t address = 0;  // in the process
  std::uint64_t size = 0;
};

// The symbol that a 64-bit image, whose first byte is mapped at `base`, defines. A fixed
// number of reads, but for the length of its hash chain. kNotFound: it defines none, or is no such image.
[[nodiscard]] Expected<DynamicSymbol> find_dynamic_object(const Memory& memory, std::uint64_t base,
                                                          std::string_view name);
// Its address alone.
[[nodiscard]] Expected<std::uint64_t> find_dynamic_symbol(const Memory& memory, std::uint64_t base,
                                                          std::string_view name);

// `base` where the image there defines it.
[[nodiscard]] Expected<std::uint64_t> find_image_defining(const Memory& memory, std::uint64_t base,
                                                          std::string_view name);

// Of the image whose first byte is mapped at `base`. Empty: it is no 64-bit ELF image. Two reads.
[[nodiscard]] std::vector<Elf64_Phdr> program_headers(const Memory& memory, std::uint64_t base);
// What is added to the addresses in these headers. Nothing: no part of the image is loaded.
[[nodiscard]] std::optional<std::uint64_t> load_bias(std::span<const Elf64_Phdr> segments, std::uint64_t base);

// False while the parts of an ELF image are still being mapped: a loader maps all of the file as its first part, and
// the others over it. `first` is the image's first mapping among `maps`. True for what is no ELF image.
[[nodiscard]] bool is_loaded(const Memory& memory, std::span<const os::ProcMap> maps, const os::ProcMap& first);

// A thread-local variable that the image defines, and finds by its module's number: each thread has its own in the
// module's storage. Drepper, "ELF Handling For Thread-Local Storage", general dynamic model.
struct ThreadLocalSymbol {
  std::uint64_t module = 0;  // where the number is, once the linker has written it
  std::uint64_t offset = 0;  // in the storage
};
// In an x86-64 image. kNotFound: it defines none, or finds it in another way.
[[nodiscard]] Expected<ThreadLocalSymbol> find_thread_local(const Memory& memory, std::uint64_t base,
                                                            std::string_view name);

// The same of any access model but local dynamic.
struct ThreadVariable {
  enum class Model : std::uint8_t {
    kOffset,      // at the thread's pointer + `offset`: the program defines it (local exec)
    kOffsetAt,    // the linker writes the offset to `place` (initial exec)
    kIndex,       // the linker writes the module's number and the offset in its storage to `place` (general dynamic)
    kDescriptor,  // behind `place` it writes the offset from the thread's pointer, or the address of such an index
  };
  Model model = Model::kOffset;
  std::uint64_t place = 0;
  std::int64_t offset = 0;
};
// In an x86-64 or AArch64 image. kNotFound: it defines none, or no code of it uses the variable.
[[nodiscard]] Expected<ThreadVariable> find_thread_variable(const Memory& memory, std::uint64_t base,
                                                            std::string_view name);

}  // namespace windlass::runtimes
