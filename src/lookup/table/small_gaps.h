// Code without rows in the gaps of less than 16 bytes between functions. The unwind information of clone3, for example,
// ends in front of its system call and begins anew where the new thread starts.
#pragma once

#include <span>

#include "base/address_range.h"
#include "flow/synthesis.h"
#include "formats/image/elf.h"
#include "lookup/table/builder.h"

namespace windlass::table {

// Of one file. The work for all of its gaps together is bounded.
class SmallGaps {
 public:
  // Both outlive this. `x_reg`: what the rules' x part is about.
  SmallGaps(const image::ElfImage& image, std::span<const AddressRange> executable, std::uint8_t x_reg)
      : image_(image), executable_(executable), x_reg_(x_reg) {}
  ~SmallGaps();
  SmallGaps(const SmallGaps&) = delete;
  SmallGaps& operator=(const SmallGaps&) = delete;

  // The rule of padding stays. Where each instruction returns as the row before says, that rule is proven by the code
  // (WL_PROOF_CODE). Other code has no rule.
  void look_at(TableBuilder::SmallGap& gap);

 private:
  [[nodiscard]] bool leads_on(std::uint64_t address, const TraceRule& rule);

  const image::ElfImage& image_;
  std::span<const AddressRange> executable_;
  std::uint8_t x_reg_;
  flow::SynthesisScratch* scratch_ = nullptr;
};

}  // namespace windlass::table
