// Input: bytes to write over the memory of a small process that has registered two functions with GDB: where (2 bytes)
// and 8 bytes. Whatever they say, reading ends, and a function that is found contains what it was looked up for.
#include <memory>

#include "made_up_process.h"
#include "runtimes/gdb/find.h"
#include "support/fake_gdb.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  namespace fake = test::fake_gdb;
  static const fake::FakeMemory whole = fake::make();
  const auto memory = std::make_shared<fake::FakeMemory>(whole);
  fuzz::write_over(*memory, data, size);
  const auto runtime = runtimes::gdb::open(memory, fake::kDescriptor);
  for (const std::uint64_t pc : {fake::kFirst, fake::kFirst + 16, fake::kSecond + 31, fake::kSecond + 32})
    fuzz::look_up(*runtime, pc);
  return 0;
}
