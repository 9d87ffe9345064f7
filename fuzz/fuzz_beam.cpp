// Input: bytes to write over a small Erlang virtual machine's memory: where (2 bytes) and 8 bytes. Whatever they say,
// reading ends, and a function that is found contains what it was looked up for.
#include <memory>

#include "made_up_process.h"
#include "runtimes/beam/find.h"
#include "support/fake_beam.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  namespace fake = test::fake_beam;
  static const fake::FakeMemory whole = fake::make();
  const auto memory = std::make_shared<fake::FakeMemory>(whole);
  fuzz::write_over(*memory, data, size);
  const auto runtime = runtimes::beam::open(memory, fake::kImage);
  (void)runtime->way_to_stack();
  for (const std::uint64_t pc :
       {fake::kFirst, fake::kFirst + fake::Layout::kInfoSize + 4, fake::kSecond, fake::kCodeEnd - 1, fake::kShared,
        fake::kNormalExit - 1, fake::kOtherModule, fake::kProcessMain})
    fuzz::look_up(*runtime, pc);
  return 0;
}
