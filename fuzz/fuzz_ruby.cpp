// Input: bytes to write over a small Ruby's memory: where (2 bytes) and 8 bytes. Whatever they say, reading ends.
#include <algorithm>

#include "check.h"
#include "made_up_process.h"
#include "runtimes/interpreted_frames.h"
#include "runtimes/ruby/names.h"
#include "support/fake_ruby.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  namespace fake = test::fake_ruby;
  fake::FakeMemory memory = fake::make();
  fuzz::write_over(memory, data, size);
  const runtimes::ruby::Layout layout = fake::layout();
  const auto frames = runtimes::read_frames(memory, layout.interpreter, {fake::kPointer, fake::kSp});
  if (!frames) return 0;
  FUZZ_CHECK(frames->size() <= WL_MAX_INTERPRETED_FRAMES);
  for (std::size_t i = 0; i < std::min<std::size_t>(frames->size(), 8); ++i)
    (void)runtimes::ruby::read_name(memory, layout, (*frames)[i]);
  return 0;
}
