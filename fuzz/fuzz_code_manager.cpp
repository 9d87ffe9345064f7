// Input: a code manager's table, read where it is mapped and as another process's memory. Whatever it says, a look-up
// ends after a bounded number of loads, reads nothing outside of the table, and both ways say the same.
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "runtimes/manager/read.h"

namespace {

using namespace windlass;

constexpr std::uint64_t kAddress = 0x7000'0000'0000;

class Bytes final : public Memory {
 public:
  explicit Bytes(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    ++reads;
    if (address < kAddress || address - kAddress > bytes_.size() || size > bytes_.size() - (address - kAddress))
      return false;
    std::memcpy(to, bytes_.data() + (address - kAddress), size);
    return true;
  }
  mutable std::uint64_t reads = 0;

 private:
  std::span<const std::byte> bytes_;
};

// Of one attempt; nothing changes here, so there is only one. The name is read in pieces of 64 bytes.
constexpr std::uint64_t kMaxLoads =
    2 + 2 + 2 + WL_CODE_MAX_HALVINGS + 1 + 1 + 16 + 2 + 1 + RegisterRules::kCapacity + 1 + (WL_CODE_MAX_NAME + 64) / 64;

// Of two of the same question: both answer, or both say the same error.
template <typename T>
bool agree(const Expected<T>& a, const Expected<T>& b) {
  return a.has_value() == b.has_value() && (a.has_value() || a.error().code == b.error().code);
}

void ask(const CodeManagerReader& mapped, const CodeManagerReader& remote, const Bytes& memory, std::uint64_t address) {
  const auto bounded = [&](auto&& question) {
    const std::uint64_t before = memory.reads;
    question();
    FUZZ_CHECK(memory.reads - before <= kMaxLoads);
  };
  bounded([&] {
    const auto found = mapped.find(address), again = remote.find(address);
    FUZZ_CHECK(agree(found, again));
    if (found)
      FUZZ_CHECK(address >= found->begin && address - found->begin < found->size && again->begin == found->begin);
  });
  bounded([&] {
    static char here[1 << 16], there[1 << 16];
    const auto name = mapped.name(address, here), again = remote.name(address, there);
    FUZZ_CHECK(agree(name, again));
    if (name) FUZZ_CHECK(*name == *again);
  });
  bounded([&] {
    FrameRow row, again;
    std::byte here[256], there[256];
    const auto status = mapped.row_at(address, row, here), other = remote.row_at(address, again, there);
    FUZZ_CHECK(agree(status, other));
    if (status) FUZZ_CHECK(row.begin <= address && address < row.end && row.registers.size() == again.registers.size());
    (void)mapped.row_at(address, row);  // with its expressions as views
    for (std::size_t i = 0; i < row.expressions.size(); ++i) FUZZ_CHECK(row.expressions.at<std::byte>(i));
  });
  bounded([&] { FUZZ_CHECK(agree(manager::rule_at(mapped, address), manager::rule_at(remote, address))); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Of exactly this size on the heap, 8-aligned: whatever is read behind it is seen.
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  const Bytes memory(bytes);
  const auto mapped = CodeManagerReader::open(bytes);
  const auto remote = CodeManagerReader::open(memory, kAddress);
  if (!mapped || !remote) {
    FUZZ_CHECK(!mapped);  // the remote one does not know where the memory ends until it comes there
    return 0;
  }
  FUZZ_CHECK(mapped->begin() < mapped->end() && mapped->begin() == remote->begin());
  const std::uint64_t code = mapped->end() - mapped->begin();
  const std::uint64_t step = code / 100 + 1;
  for (std::uint64_t inside = 0; inside < code; inside += step) ask(*mapped, *remote, memory, mapped->begin() + inside);
  ask(*mapped, *remote, memory, mapped->end() - 1);
  ask(*mapped, *remote, memory, mapped->end());
  return 0;
}
