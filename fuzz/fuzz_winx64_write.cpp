// Input: first byte even: decisions of a made-up function, which is written, and run without a processor; in every
// state the caller must come out. Odd: a version and UNWIND_INFO bytes, decoded, encoded and decoded again.
#include <cstring>
#include <memory>
#include <random>

#include "check.h"
#include "formats/winx64/encode.h"
#include "support/written_function.h"

namespace {

using namespace windlass;
using namespace windlass::prologue;

void make(const std::uint8_t* data, std::size_t size) {
  std::size_t at = 1;
  test::X64FunctionMaker maker([&](std::uint32_t bound) {
    std::uint32_t value = at < size ? data[at++] : 0;
    if (bound > 256 && at < size) value |= static_cast<std::uint32_t>(data[at++]) << 8;
    return value % bound;
  });
  const test::MadeFunction made = maker.make();
  FUZZ_CHECK(check(made.prologue).has_value());
  const auto function =
      test::WrittenFunction::make(made.prologue, made.code.bytes(), (data[0] & 2) != 0 ? 2 : 1, (data[0] & 4) != 0);
  if (!function) return;
  constexpr std::uint64_t kTop = 0x7fff'0000'0000, kReturn = 0x1122'3344'5566;
  test::MadeRun call;
  std::mt19937_64 random(data[0]);
  for (auto& value : call.state.integer) value = random();
  for (auto& value : call.state.xmm) value = {random(), random()};
  call.state.integer[winx64::kRsp] = kTop;
  call.stack.write(kTop, kReturn);
  test::X64State caller = call.state;
  caller.integer[winx64::kRsp] += 8;
  run_made(made, call, [&](std::uint32_t offset, const test::MadeRun& run) {
    const std::string wrong = (*function)->wrong_at(offset, run.state, run.stack, caller, kReturn);
    if (!wrong.empty()) std::fprintf(stderr, "at %u:%s\n", offset, wrong.c_str());
    FUZZ_CHECK(wrong.empty());
  });
}

void recode(const std::uint8_t* data, std::size_t size) {
  const auto info = winx64::parse_unwind_info(ByteView(std::span(data + 1, size - 1)), 0x1000);
  if (!info || info->version > 2) return;
  const auto content = winx64::decode(*info);
  const auto bytes = content ? winx64::encode(*content) : Failure(content.error());
  if (!bytes) return;
  const auto again = winx64::parse_unwind_info(ByteView(bytes->data(), bytes->size()), 0x1000);
  FUZZ_CHECK(again.has_value());
  const auto same = winx64::decode(*again);
  FUZZ_CHECK(same.has_value());
  FUZZ_CHECK(winx64::encode(*same).value() == *bytes);
  FUZZ_CHECK(same->codes.size() == content->codes.size());
  for (std::size_t i = 0; i < same->codes.size(); ++i)
    FUZZ_CHECK(same->codes[i].offset == content->codes[i].offset && same->codes[i].value == content->codes[i].value);
  FUZZ_CHECK(same->epilog_offsets == content->epilog_offsets && same->epilog_size == content->epilog_size);
}

// The writer must bear any Prologue, not only those that functions have.
void write_anything(const std::uint8_t* data, std::size_t size) {
  std::size_t at = 1;
  const auto byte = [&] { return at < size ? std::uint32_t{data[at++]} : 0U; };
  const auto number = [&] {
    const std::uint32_t value = byte();
    return value < 0xf0 ? value * 8 : value == 0xff ? 0xffff'fff8U : byte() << 24 | byte() << 4;
  };
  Prologue f{.architecture = byte() == 1 ? Architecture::kAArch64 : Architecture::kX86_64, .code_size = 0x2000};
  const auto ops = [&](std::uint32_t begin) {
    std::vector<prologue::Op> list;
    for (std::uint32_t count = byte() % 12, end = begin; count > 0; --count) {
      end += byte() % 64;
      const auto reg = static_cast<RegisterNumber>(byte());
      switch (byte() % 5) {
        case 0: list.push_back({end, push(reg)}); break;
        case 1: list.push_back({end, Allocate{number()}}); break;
        case 2: list.push_back({end, Save{reg, number(), number(), byte() == 0 ? reg : kNoRegister}}); break;
        case 3: list.push_back({end, SetFramePointer{reg, number()}}); break;
        default: list.push_back({end, MachineFrame{reg % 2 == 0}}); break;
      }
    }
    return list;
  };
  f.ops = ops(0);
  f.size = byte() % 3 == 0 ? number() : 0;
  if (byte() % 2 == 0) f.parts.push_back({number(), number(), ops(byte() * 16), {}});
  for (std::uint32_t count = byte() % 4; count > 0; --count) f.epilogues.push_back(mirrored(f, number()));
  if (byte() % 4 == 0) f.handler = prologue::Handler{number(), byte() % 2 == 0, byte() % 2 == 0, {std::byte{1}}};
  for (const std::uint8_t version : {1, 2}) {
    const auto written = winx64::write(f, {.version = version, .saves_can_wait = byte() % 2 == 0, .function = 0x1000});
    if (!written) continue;
    for (const winx64::RuntimeFunction& entry : written->entries) {
      const ByteView all(written->bytes.data(), written->bytes.size());
      const auto rest = all.sub(entry.info, all.size() - entry.info);
      FUZZ_CHECK(rest.has_value() && entry.begin < entry.end);
      FUZZ_CHECK(winx64::parse_unwind_info(*rest, entry.info).has_value());
    }
    (void)winx64::directives_of(f, {.assembler = winx64::Assembler::kClang, .version = version, .handler = "h"});
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  if (data[0] % 2 == 1)
    recode(data, size);
  else if (data[0] % 16 == 8)
    write_anything(data, size);
  else
    make(data, size);
  return 0;
}
