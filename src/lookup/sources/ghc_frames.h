// The frame in which a Windows program runs Haskell's code, as GHC compiles it. This code has no unwind codes. It keeps
// its own stack at rbp, and goes on by jumps. rsp stays where StgRun has put it, but around calls of C. So every
// instruction has the same caller: the code behind the call of StgRun.
//
// GHC: rts/StgCRun.c (StgRun, StgReturn), compiler/GHC/CmmToAsm/X86/CodeGen.hs (calls of C).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "formats/image/pe.h"
#include "formats/winx64/unwound.h"
#include "windlass/function_ref.h"
#include "windlass/walk.h"

namespace windlass::sources {

// Immutable; look-ups do not allocate.
class GhcFrames {
 public:
  // Has an entry of the function table an RVA?
  using HasEntry = FunctionRef<bool(std::uint32_t rva)>;

  GhcFrames() = default;
  // None, if the image is of another language. Looks at all code, but only of an image whose function table is far too
  // small for its code.
  [[nodiscard]] static GhcFrames read(const image::PeImage& image);

  // Is it Haskell's code, at an instruction or at the last byte of a call? False: the code has an entry, returns, uses
  // rsp as a stack, or leads elsewhere. Bounded by a fixed number of instructions.
  [[nodiscard]] bool has_code(const image::PeImage& image, std::uint64_t rva, HasEntry has_entry) const {
    return return_rva_ != 0 && (depth_at(image, rva, has_entry) || depth_at(image, rva + 1, has_entry));
  }
  // Leaves Haskell's code at the pc. Errors: kUnreadable. kMalformed if the caller is no call of StgRun.
  [[nodiscard]] Expected<void> unwind(const image::PeImage& image, std::uint64_t bias, const Memory& memory,
                                      const Registers& registers, HasEntry has_entry, winx64::Unwound& to,
                                      winx64::SavedAddresses& saved) const;

 private:
  struct Saved {
    unsigned number;      // of the register in instructions
    std::uint32_t place;  // above the place that StgReturn sets rsp to first
  };
  bool read_return(ByteView code, std::uint32_t rva);
  // How far rsp is below its place: by what the code up to the next computed jump adds to rsp.
  [[nodiscard]] std::optional<std::uint32_t> depth_at(const image::PeImage& image, std::uint64_t rva,
                                                      HasEntry has_entry) const;
  // StgRun before its jump to Haskell's code, or StgReturn.
  [[nodiscard]] bool is_entry_code(std::uint32_t rva) const { return rva >= run_rva_ && rva < return_end_; }

  std::uint32_t run_rva_ = 0, return_rva_ = 0, return_end_ = 0;  // 0: no StgReturn
  std::uint32_t reserved_ = 0, frame_ = 0;                       // what StgReturn adds to rsp, at its begin and its end
  std::vector<Saved> saved_;
};

}  // namespace windlass::sources
