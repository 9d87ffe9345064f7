// Raw samples of real programs, replayed in three ways. The agent's way: modules shared by all processes, the sample's
// copies, files by build id. A plain StackWalker, whose address space is put together by hand from /proc and the
// library's public interface. The kernel side's code. The first two have one stepper, so both must give the same frames
// and the same end, to the last sample. If the kernel side calls a sample whole, and the agent believes that, the first
// two must call it whole, too, with the same frames and certainty. The kernel side's code is asked twice: before it was
// taught anything, and when it was taught the steps that the agent has checked.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "os/proc_file.h"
#include "profiler/samples/frame_teacher.h"
#include "profiler/samples/raw_unwinder.h"
#include "support/kernel_walk.h"
#include "support/privilege.h"
#include "support/raw_samples.h"
#include "walk/inside.h"
#include "windlass/backtrace.h"
#include "windlass/walk.h"

namespace windlass::profiler {
namespace {

// The copies of the sample of the moment, and the stopped process for code.
class HandMadeMemory final : public Memory {
 public:
  HandMadeMemory(const RawSample& sample, int process) : sample_(sample), process_(process) {}
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    const auto within = [&](std::uint64_t begin, std::span<const std::byte> bytes) {
      if (address < begin || address - begin > bytes.size() || bytes.size() - (address - begin) < size) return false;
      std::memcpy(to, bytes.data() + (address - begin), size);
      return true;
    };
    // perf's copies are in one piece.
    return within(sample_.stack.address, sample_.stack.bytes) || within(sample_.code.address, sample_.code.bytes);
  }
  bool read_code(std::uint64_t address, void* to, std::size_t size) const override {
    return ::pread(process_, to, size, static_cast<off_t>(address)) == static_cast<ssize_t>(size);
  }

 private:
  const RawSample& sample_;
  int process_;
};

// Every mapping by the public interface: a file by its path, the vdso by its bytes, the rest as generated code. It
// refers to `sample`, which may be given other contents between walks.
AddressSpace by_hand(const RawSample& sample, const MapSet& maps, ModuleRegistry& registry, int process) {
  AddressSpace space(sample.registers.architecture(), std::make_unique<HandMadeMemory>(sample, process));
  space.set_pointer_mask(~user_code_mask());
  if (kOwnArchitecture == Architecture::kAArch64) space.set_unsigned_mask(~user_code_mask());
  for (const Mapping& mapping : maps.mappings()) {
    const CodeFile* file = registry.find(mapping.module);
    Expected<void> added;
    if (mapping.generated() || file == nullptr) {
      if (const auto range = space.add({.begin = mapping.begin, .end = mapping.end}); !range)
        added = Failure(range.error());
    } else {
      ModuleInfo info{mapping.begin, mapping.end, mapping.bias, file->path, {}};
      std::vector<std::byte> image(mapping.end - mapping.begin);
      if (file->path != "[vdso]")
        added = space.add_module(info);
      else if (::pread(process, image.data(), image.size(), static_cast<off_t>(mapping.begin)) > 0)
        added = space.add_module(info, std::move(image));
    }
    EXPECT_TRUE(added) << file->path;
  }
  return space;
}

struct Program {
  const char* name;
  const char* command;
  const char* needs;       // a program that may not be here
  bool ever_whole = true;  // false: a frame of all its stacks is not proven
  std::size_t taught = 0;  // percent of its whole stacks that the kernel side walks when it is taught, at least
};
void PrintTo(const Program& program, std::ostream* out) { *out << program.name; }

// The mappings of a process, without those that are not code. Images' headers are among those, by which managed
// runtimes are found. The public interface for spaces made by hand does not look for runtimes, so V8's code has no
// owner here.
bool read_code_maps(std::uint32_t tgid, std::string& text) {
  std::istringstream maps(os::read_proc_file(fmt::format("/proc/{}/maps", tgid)));
  text.clear();
  for (std::string line; std::getline(maps, line);)
    if (line.find('x') == line.find(' ') + 3) text += line + '\n';
  return !text.empty();
}

class RawReplay : public testing::TestWithParam<Program> {};

// vfork's instructions behind its system call: their rows have the return address in a register. The kernel side takes
// what a register leads to for an interrupted instruction, as longjmp's; the agent sees by the code that it is returned
// to.
bool is_returned_by_register(const AddressSpace& space, CodeAddress pc) {
  FrameRow row;
  const walk::Module* module = walk::module_at(space, pc.lookup());
  return module != nullptr && module->row_at(pc.lookup(), row) && row.return_address.is(RegisterRule::kInRegister);
}

TEST_P(RawReplay, AgentAndPlainWalkerAgree) {
  if (const std::string reason = test::no_privilege_to_sample(); !reason.empty()) GTEST_SKIP() << reason;
  const Program& program = GetParam();
  if (program.needs != nullptr && ::access(program.needs, X_OK) != 0) GTEST_SKIP() << program.needs << " is not here";
  const test::Child child(program.command);
  ::usleep(300'000);  // past its start, or most of it
  const std::vector<test::Event> events = test::sample(child.pid(), std::chrono::milliseconds(400));
  child.stop();
  ASSERT_GE(events.size(), test::kFewest);

  ModuleRegistry registry(nullptr);
  ProcessTable table([&](std::uint32_t tgid, std::uint32_t parent,
                         const os::ProcMap& map) { return registry.resolve(tgid, parent, map); },
                     read_code_maps);
  ASSERT_TRUE(table.scan(child.pid(), 1));
  ASSERT_TRUE(table.find(child.pid())->maps->published().empty());
  const MapSet& maps = *table.find(child.pid())->maps;
  const int process = ::open(fmt::format("/proc/{}/mem", child.pid()).c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(process, 0);

  RawSample now;
  const auto parse = [&](const test::Event& event) {
    const auto parsed = parse_raw_event(reinterpret_cast<const wl_event_head&>(event[0]), event.size() * 8);
    if (parsed) now = parsed->sample;
    return parsed.has_value();
  };
  ASSERT_TRUE(parse(events.front()));
  const AddressSpace space = by_hand(now, maps, registry, process);
  RawUnwinder unwinder(registry);
  const HandMadeMemory memory(now, process);
  const auto kernel = test::KernelWalk::make(maps, registry, [&](std::uint64_t address, void* to, std::size_t size) {
    return memory.read(address, to, size) || (maps.find(address) != nullptr && memory.read_code(address, to, size));
  });
  ASSERT_NE(kernel, nullptr);
  std::size_t by_kernel = 0, by_taught = 0;
  std::vector<std::uint64_t> kernel_frames;
  const auto walks_whole = [&] {  // and the agent believes that
    return kernel->walk(now.registers, WL_MAX_USER_FRAMES, kernel_frames) == WL_END_COMPLETE &&
           !is_returned_by_register(space, now.registers.pc()) && unwinder.proves_end(kernel_frames.back(), maps);
  };
  FrameTeacher teacher([&](const wl_learned_key& key, const wl_learned& lesson) { kernel->teach(key, lesson); });
  std::vector<UnwoundStack> stacks;
  std::size_t by_end[WL_END_COUNT] = {};
  std::size_t frames_seen = 0;
  for (const test::Event& event : events) {
    ASSERT_TRUE(parse(event));
    const UnwoundStack& stack = stacks.emplace_back(unwinder.unwind(now, &maps));
    const auto& [end, least, frames, functions, checked] = stack;
    ++by_end[end];
    frames_seen += frames.size();

    StackWalker walker(space, now.registers, {.max_frames = 512});
    std::vector<std::uint64_t> plain;
    for (const Frame& frame : walker)
      plain.push_back(frame.pc().value() | (frame.pc().is_return_address() ? 0 : WL_FRAME_EXACT));
    const bool cut = plain.size() > RawUnwinder::kMaxFrames;
    if (cut) plain.resize(RawUnwinder::kMaxFrames);
    EXPECT_EQ(frames, plain);
    EXPECT_EQ(std::string_view(profile::end_text(end)),
              std::string_view(profile::end_text(cut ? std::uint8_t{WL_END_DEPTH}
                                                     : sample_end(walker.end_reason(), walker.error()))))
        << walker.error().text();
    if (walks_whole()) {
      ++by_kernel;
      EXPECT_EQ(kernel_frames, plain);
      EXPECT_EQ(walker.end_reason(), WalkEnd::kComplete) << walker.error().text();
      const auto certainty = static_cast<std::uint8_t>(walker.certainty());
      EXPECT_EQ(kernel->certainty(), certainty)
          << fmt::format("{} for {}, frames {:#x}", kernel->certainty(), certainty, fmt::join(plain, " "));
    }
    if (HasFailure()) break;
  }
  for (const UnwoundStack& stack : stacks) teacher.teach({0, 0, maps}, stack.checked, 10'000'000'000);
  for (std::size_t i = 0; i < stacks.size() && !HasFailure(); ++i) {
    ASSERT_TRUE(parse(events[i]));
    if (!walks_whole()) continue;
    ++by_taught;
    EXPECT_EQ(kernel_frames, stacks[i].frames);
    EXPECT_EQ(stacks[i].end, WL_END_COMPLETE);
    EXPECT_EQ(kernel->certainty(), stacks[i].certainty) << fmt::format("frames {:#x}", fmt::join(kernel_frames, " "));
  }
  ::close(process);
  fmt::print("{}: {} samples, {} frames, {} whole by the kernel side, {} when it was taught", program.name,
             events.size(), frames_seen, by_kernel, by_taught);
  for (std::uint8_t end = 0; end < WL_END_COUNT; ++end)
    if (by_end[end] != 0) fmt::print(", {} {}", by_end[end], profile::end_text(end));
  fmt::print("\n");
  if (program.ever_whole) {
    EXPECT_GT(by_end[WL_END_COMPLETE], 0u);
  }
  EXPECT_GE(by_taught * 100, by_end[WL_END_COMPLETE] * program.taught);
}

constexpr std::size_t kTaught = kOwnArchitecture == Architecture::kX86_64 ? 90 : 0;
constexpr std::size_t kTaughtAtRunTime = kOwnArchitecture == Architecture::kX86_64 ? 70 : 0;
constexpr Program kPrograms[] = {
    {"c", "exec " WINDLASS_REPLAY_TARGET, nullptr},
    {"stripped", "exec " WINDLASS_REPLAY_TARGET "_stripped", nullptr},
    {"without_rows", "exec " WINDLASS_REPLAY_TARGET "_without_rows", WINDLASS_REPLAY_TARGET "_without_rows", true,
     kTaught},
    {"static_musl", "exec " WINDLASS_REPLAY_TARGET "_musl", WINDLASS_REPLAY_TARGET "_musl"},
    {"cpp_exceptions", "exec " WINDLASS_STANDARD_LIBRARY " 60", nullptr},
    {"known_stacks", "exec " WINDLASS_TRUTH_PROGRAM " 60", nullptr},
    {"bash", "exec bash -c 'while :; do for i in {1..500}; do x=${i%5}$x; x=${x:0:9}; done; done'", nullptr},
    {"perl", "exec perl -e 'for (;;) { my %h = map { $_ => \"a$_\" =~ /a(.)/ } 1..999; }'", nullptr},
    {"python", "exec /usr/bin/python3 -c 'while 1: sorted(str(i) for i in range(9999))'", "/usr/bin/python3"},
    {"shell_that_forks", "while :; do i=0; while [ $i -lt 999 ]; do i=$((i+1)); done; sleep 0.001; done", nullptr},
    {"xz", "exec xz -9e -c /dev/zero", "/usr/bin/xz"},
    {"node", "exec node -e 'for (;;) JSON.parse(JSON.stringify([...Array(999).keys()].map(String))).sort()'",
     "/usr/bin/node"},
    {"awk", "exec awk 'BEGIN { while (1) s = (s * 31 + 7) % 9973 }'", "/usr/bin/awk"},
    {"bc", "exec bc <<E\nwhile (1) s = (s * 31 + 7) % 9973\nE\n", "/usr/bin/bc"},
    {"bzip2", "exec bzip2 -9c /dev/zero", "/usr/bin/bzip2"},
    {"dd", "exec dd if=/dev/zero of=/dev/null bs=512", "/usr/bin/dd"},
    {"gzip", "exec gzip -9c /dev/zero", "/usr/bin/gzip"},
    {"jq", "exec jq -n 'last(range(1e12))'", "/usr/bin/jq"},
    {"openssl", "exec openssl speed -seconds 60 sha256", "/usr/bin/openssl"},
    {"random_text", "exec od -An -tx1 /dev/urandom", "/usr/bin/od"},
    {"ruby", "exec ruby -e 'loop { (1..999).map(&:to_s).sort }'", "/usr/bin/ruby"},
    {"ruby_yjit",
     "exec ruby --yjit -e 'def f(x) = x > 0 ? g(x - 1) + 1 : 0\ndef g(x) = x > 0 ? f(x - 1) + 2 : 1\n"
     "loop { (1..50).each { |i| f(i) + g(i) } }'",
     "/usr/bin/ruby", true, kTaughtAtRunTime},
    {"luajit_traces",
     "exec luajit -e 'while true do local t = {} for i = 1, 500 do t[i] = tostring(i * 7 % 13) end table.sort(t) end'",
     "/usr/bin/luajit"},
    {"sha1sum", "exec sha1sum /dev/zero", "/usr/bin/sha1sum"},
    {"sqlite",
     "exec sqlite3 :memory: 'with recursive c(x) as (select 1 union all select x + 1 from c) "
     "select count(*) from c where x % 7 = 3'",
     "/usr/bin/sqlite3"},
    {"cmake", "exec cmake -E sha256sum /dev/zero", "/usr/bin/cmake"},
    {"gdb", "exec gdb -nx -batch -ex 'python while True: sorted(str(i) for i in range(999))'", "/usr/bin/gdb"},
    {"grep", "exec bash -c 'exec grep -E \"(ab|ba)*[cd]x\" < <(yes aabbab)'", "/usr/bin/grep"},
    {"luajit", "exec luajit -joff -e 'while true do table.sort({3, 1, 2}); tostring(7) end'", "/usr/bin/luajit"},
    {"numpy", "exec /usr/bin/python3 -c 'import numpy as n\na = n.random.rand(99, 99)\nwhile 1: a.dot(a)'",
     "/usr/bin/python3"},
    {"objdump", "exec objdump -d /proc/self/exe /usr/bin/gdb", "/usr/bin/objdump"},
    {"sed", "exec bash -c 'exec sed -n \"s/a\\(b*\\)/c/p\" < <(yes aabbab)'", "/usr/bin/sed"},
    {"tcl", "exec tclsh <<E\nwhile 1 {lsort [split [expr rand()] {}]}\nE\n", "/usr/bin/tclsh"},
    {"threads",
     "exec /usr/bin/python3 -c 'import threading\nwhile 1: t = threading.Thread(target=int); t.start(); t.join()'",
     "/usr/bin/python3"},
    {"busybox", "exec busybox sh -c 'while :; do i=$((i+1)); done'", "/usr/bin/busybox", false},
    {"busybox_awk", "exec busybox awk 'BEGIN { while (1) s = (s * 31 + 7) % 9973 }'", "/usr/bin/busybox", false},
    {"guile", "exec guile --no-auto-compile -c '(let l () (map number->string (iota 999)) (l))'", "/usr/bin/guile"},
    {"racket", "exec racket -l racket/base -l racket/list -e '(let l () (for-each number->string (range 999)) (l))'",
     "/usr/bin/racket", false},
    {"sbcl",
     "exec " WINDLASS_LISP_CORPORA "/sbcl/usr/bin/sbcl --core " WINDLASS_LISP_CORPORA
     "/sbcl/usr/lib/sbcl/sbcl.core --noinform --no-sysinit --no-userinit "
     "--eval '(loop (sort (loop for i below 999 collect (princ-to-string i)) (quote string<)))'",
     WINDLASS_LISP_CORPORA "/sbcl/usr/bin/sbcl", false},
    {"zstd", "exec zstd -19 -T2 -c < /dev/zero", "/usr/bin/zstd"},
};
INSTANTIATE_TEST_SUITE_P(Programs, RawReplay, testing::ValuesIn(kPrograms),
                         [](const auto& program) { return program.param.name; });

// Another program, by hand: WINDLASS_REPLAY='exec bun busy.js'.
std::vector<Program> given_programs() {
  const char* command = std::getenv("WINDLASS_REPLAY");
  return command != nullptr ? std::vector{Program{"given", command, nullptr}} : std::vector<Program>{};
}
INSTANTIATE_TEST_SUITE_P(Given, RawReplay, testing::ValuesIn(given_programs()),
                         [](const auto& program) { return program.param.name; });

}  // namespace
}  // namespace windlass::profiler
