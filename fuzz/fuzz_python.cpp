// Input: bytes to write over a small CPython's memory: where (2 bytes) and 8 bytes. Whatever they say, reading ends.
#include <algorithm>

#include "check.h"
#include "made_up_process.h"
#include "runtimes/interpreted_frames.h"
#include "runtimes/python/names.h"
#include "support/fake_python.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  namespace fake = test::fake_python;
  fake::FakeMemory memory = fake::make();
  fuzz::write_over(memory, data, size);
  for (const bool versions : {true, false}) {
    const runtimes::python::Layout layout = fake::layout(versions);
    const auto frames = runtimes::read_frames(memory, layout.interpreter, {fake::kPointer, 0});
    if (!frames) continue;
    FUZZ_CHECK(frames->size() <= WL_MAX_INTERPRETED_FRAMES);
    for (std::size_t i = 0; i < std::min<std::size_t>(frames->size(), 8); ++i)
      (void)runtimes::python::read_name(memory, layout, (*frames)[i]);
  }
  return 0;
}
