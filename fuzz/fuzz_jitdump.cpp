// Input: where the first piece of a jitdump ends (2 bytes), and the jitdump, which comes in two pieces. Whatever it
// says, it is read in bounded time and memory, a record never twice, and names and rows are those of functions that
// were told of.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "check.h"
#include "runtimes/jitdump_code.h"

namespace {

using namespace windlass;

constexpr std::uint64_t kNever = ~std::uint64_t{0};

void look(manager::JitdumpCode& code, std::uint64_t time) {
  code.set_time(time);
  const auto source = code.make_source();
  std::uint64_t reached = 0;
  unsigned functions = 0;
  const auto ignore = [](const Error&) {};
  const auto rows_of = [&](const sources::Function& function) {
    FUZZ_CHECK(function.begin < function.end && function.begin >= reached);
    reached = function.begin;
    FrameRow row;
    for (const std::uint64_t at : {function.begin, function.begin + (function.end - function.begin) / 2}) {
      std::vector<sources::NamedFunction> names;
      (void)code.functions_at(at, 0, time, names);
      FUZZ_CHECK(names.size() <= 1);
      for (const auto& known : names)
        FUZZ_CHECK(known.name.size() <= code.kMaxName && known.file.size() < std::size_t{1} << 20);
      if (source->row_at(at, row)) FUZZ_CHECK(row.begin <= at && at < row.end);
    }
    unsigned rows = 0;
    source->for_each_row(
        function, [&](const FrameRow& it) { FUZZ_CHECK(it.begin <= it.end && ++rows < 1u << 24); }, ignore);
    return ++functions < 1000;
  };
  source->for_each_function(rows_of, ignore);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 1 << 16) return 0;
  std::uint16_t first = 0;
  std::memcpy(&first, data, sizeof first);
  data += sizeof first;
  size -= sizeof first;
  const std::size_t piece = std::min<std::size_t>(first, size);
  os::Descriptor file(::memfd_create("fuzz", MFD_CLOEXEC));
  if (!file || ::write(file.get(), data, piece) != static_cast<ssize_t>(piece)) return 0;
  const auto code =
      std::make_shared<manager::JitdumpCode>(os::Descriptor(::dup(file.get())), 0x1000, os::FileIdentity());
  look(*code, 1000);
  if (::write(file.get(), data + piece, size - piece) != static_cast<ssize_t>(size - piece)) return 0;
  (void)code->is_settled(1000, kNever);
  look(*code, kNever);
  (void)code->problem();
  return 0;
}
