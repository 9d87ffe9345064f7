#include "profiler/import/perf_sample_record.h"

#include <algorithm>
#include <bit>

#include "base/registers.h"
#include "profiler/import/perf_layout.h"

namespace windlass::importer {
namespace {

// perf_event.h, enum perf_callchain_context: they stand before the addresses that they are about.
constexpr std::uint64_t kContextKernel = static_cast<std::uint64_t>(-128),
                        kContextUser = static_cast<std::uint64_t>(-512),
                        kContextMax = static_cast<std::uint64_t>(-4095);

constexpr std::uint64_t kNarrow = 1;  // PERF_SAMPLE_REGS_ABI_32

// Which DWARF number has the register of a bit in sample_regs_user; kNoRegister: none of those that walks use.
constexpr unsigned kNoRegister = ~0u;
// arch/x86/include/uapi/asm/perf_regs.h: AX BX CX DX SI DI BP SP IP, flags and segments, R8 to R15 from 16 on.
unsigned x86_number(unsigned bit) {
  constexpr unsigned kFirst[] = {0, 3, 2, 1, 4, 5, 6, 7, x86_64::kReturnAddress};
  if (bit < std::size(kFirst)) return kFirst[bit];
  return bit >= 16 && bit < 24 ? bit - 8 : kNoRegister;
}
// arch/arm64/include/uapi/asm/perf_regs.h: X0 to X29, LR, SP, PC.
unsigned arm_number(unsigned bit) { return bit <= 32 ? bit : kNoRegister; }

// i386's DWARF numbers are in the order of instructions' encoding, as x86_64::kDwarfNumbers has them.
std::optional<unsigned> i386_number(unsigned x86) {
  if (x86 == x86_64::kReturnAddress) return i386::kReturnAddress;
  for (unsigned number = 0; number < 8; ++number)
    if (x86_64::dwarf_number(number) == x86) return number;
  return std::nullopt;
}

class SampleParser {
 public:
  SampleParser(const PerfFile& file, ByteView record) : file_(file), record_(record) {}

  Expected<PerfSampleRecord> parse() {
    find_attr();
    const PerfAttr& attr = file_.attrs[sample_.attr];
    types_ = attr.sample_type;
    if (has(kSampleIdentifier)) (void)word();
    if (has(kSampleIp)) sample_.ip = word();
    if (has(kSampleTid)) {
      const std::uint64_t ids = word();
      sample_.pid = static_cast<std::uint32_t>(ids);
      sample_.tid = static_cast<std::uint32_t>(ids >> 32);
    }
    for (const auto one : {kSampleTime, kSampleAddr, kSampleId, kSampleStreamId, kSampleCpu})
      if (has(one)) (void)word();
    if (has(kSamplePeriod)) sample_.period = word();
    if (has(kSampleRead)) read_counts(attr.read_format);
    sample_.in_kernel = (record_.at<PerfHeader>(0)->misc & kMiscModeMask) == kMiscKernel;
    if (has(kSampleCallchain)) read_chain();
    if (has(kSampleRaw)) skip(sized32());
    if (has(kSampleBranchStack)) read_branches(attr.branch_sample_type);
    if (has(kSampleRegsUser)) read_registers(attr.regs_user);
    if (has(kSampleStackUser)) read_stack();
    if (bad_) return fail(ErrorCode::kMalformed, "a sample is smaller than its parts", record_.origin() + at_);
    if (sample_.kernel.empty() && sample_.user.empty() && has(kSampleIp) && (sample_.in_kernel || !sample_.registers))
      (sample_.in_kernel ? sample_.kernel : sample_.user).push_back(sample_.ip);
    return std::move(sample_);
  }

 private:
  [[nodiscard]] bool has(std::uint64_t type) const { return (types_ & type) != 0; }
  std::uint64_t word() {
    const auto value = record_.at<std::uint64_t>(at_);
    bad_ |= !value;
    at_ += 8;
    return value.value_or(0);
  }
  void skip(std::uint64_t bytes) {
    bad_ |= bytes > record_.size();
    at_ += std::min<std::uint64_t>(bytes, record_.size());
  }
  // u32 size, then the bytes; they end at a multiple of 8.
  std::uint64_t sized32() const {
    return (4 + std::uint64_t{record_.at<std::uint32_t>(at_).value_or(~std::uint32_t{0})} + 7) & ~std::uint64_t{7};
  }
  std::uint64_t most_words() const { return at_ < record_.size() ? (record_.size() - at_) / 8 : 0; }

  // All samples have the id in one place, or there is one event.
  void find_attr() {
    const std::uint64_t types = file_.attrs[0].sample_type;
    if (file_.attrs.size() == 1 || (types & (kSampleIdentifier | kSampleId)) == 0) return;
    const std::uint64_t before = types & (kSampleIp | kSampleTid | kSampleTime | kSampleAddr);
    const unsigned at = (types & kSampleIdentifier) != 0 ? 0 : static_cast<unsigned>(std::popcount(before));
    sample_.attr = attr_of(file_, record_.at<std::uint64_t>(8 + std::uint64_t{at} * 8).value_or(0));
  }

  // perf_event.h, enum perf_event_read_format.
  void read_counts(std::uint64_t format) {
    constexpr std::uint64_t kGroup = 8, kId = 4;
    const unsigned times = static_cast<unsigned>(std::popcount(format & 3)),
                   of_each = 1u + static_cast<unsigned>(std::popcount(format & 0x14));
    if ((format & kGroup) == 0) return skip(8 * (std::uint64_t{times} + of_each));
    const std::uint64_t count = word();
    skip(8 * std::uint64_t{times});
    if (count > most_words() / of_each) bad_ = true;
    for (std::uint64_t i = 0; i < count && !bad_; ++i) {
      PerfReadValue value{.value = word()};
      if ((format & kId) != 0) value.id = word();
      skip(8 * std::uint64_t{of_each - ((format & kId) != 0 ? 2u : 1u)});
      if (value.id != 0) sample_.group.push_back(value);
    }
  }

  void read_chain() {
    const std::uint64_t count = word();
    if (count > most_words()) bad_ = true;
    std::vector<std::uint64_t>* to = sample_.in_kernel ? &sample_.kernel : &sample_.user;
    for (std::uint64_t i = 0; i < count && !bad_; ++i) {
      const std::uint64_t address = word();
      if (address < kContextMax) {
        if (to != nullptr) to->push_back(address);
      } else {  // a hypervisor's and a guest's are left out
        to = address == kContextKernel ? &sample_.kernel : address == kContextUser ? &sample_.user : nullptr;
      }
    }
  }

  // u64 count, with HW_INDEX u64 index, then { u64 from, to, flags }.
  void read_branches(std::uint64_t kind) {
    const std::uint64_t count = word();
    if ((kind & kBranchHwIndex) != 0) (void)word();
    if (count > most_words() / 3) bad_ = true;
    for (std::uint64_t i = 0; i < count && !bad_; ++i) {
      const std::uint64_t from = word();
      skip(16);
      if ((kind & kBranchCallStack) != 0 && from >> 63 == 0 && from != 0) sample_.branches.push_back(from);
    }
  }

  void read_registers(std::uint64_t mask) {
    const std::uint64_t abi = word();
    if (abi == 0) return;  // a kernel thread
    sample_.narrow = abi == kNarrow;
    const auto wide = architecture_of(file_);
    const bool is_x86 = wide == Architecture::kX86_64;
    Registers registers(is_x86 && sample_.narrow ? Architecture::kI386 : wide.value_or(Architecture::kX86_64));
    for (unsigned bit = 0; bit < 64; ++bit) {
      if ((mask >> bit & 1) == 0) continue;
      const std::uint64_t value = word();
      std::optional<unsigned> number = is_x86 ? x86_number(bit) : arm_number(bit);
      if (number == kNoRegister) continue;
      if (registers.architecture() == Architecture::kI386) number = i386_number(*number);
      if (number) registers.set(*number, sample_.narrow ? static_cast<std::uint32_t>(value) : value);
    }
    // Without a copy of the stack they say nothing about callers. 32-bit code of Arm has other rows.
    if (!has(kSampleStackUser) || !wide || (sample_.narrow && !is_x86) || !registers.has_sp() ||
        !registers.has(Registers::pc_number(registers.architecture())))
      return;
    registers.set_pc(CodeAddress::instruction(registers.pc().value()));
    sample_.registers = registers;
    sample_.stack_address = registers.sp();
  }

  void read_stack() {
    const std::uint64_t size = word();
    if (size == 0) return;
    const auto stack = record_.sub(at_, size);
    bad_ |= !stack;
    skip(size);
    const std::uint64_t filled = word();
    if (!bad_) sample_.stack = *stack->sub(0, std::min(filled, size));
  }

  const PerfFile& file_;
  ByteView record_;
  std::uint64_t at_ = 8, types_ = 0;
  bool bad_ = false;
  PerfSampleRecord sample_;
};

}  // namespace

std::optional<Architecture> architecture_of(const PerfFile& file) {
  if (file.machine == "aarch64") return Architecture::kAArch64;
  if (file.machine == "x86_64" || file.machine == "i686" || file.machine == "i386") return Architecture::kX86_64;
#if defined(__aarch64__)
  return file.machine.empty() ? std::optional(Architecture::kAArch64) : std::nullopt;
#else
  return file.machine.empty() ? std::optional(Architecture::kX86_64) : std::nullopt;
#endif
}

Expected<PerfSampleRecord> parse_perf_sample(const PerfFile& file, ByteView record) {
  return SampleParser(file, record).parse();
}

}  // namespace windlass::importer
