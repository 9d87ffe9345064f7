#include "runtimes/ruby/layout.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "formats/winx64/instruction_length.h"
#include "runtimes/dynamic_symbol.h"
#include "runtimes/image_text.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes::ruby {
namespace {

struct ApiVersion {
  std::int32_t major, minor, teeny;
};

// What differs between releases.
struct Compiled {
  std::uint8_t second, third;
};
struct Release {
  std::int32_t minor;
  std::uint16_t frame_bytes, machine_stack, lines;
  std::uint8_t string_begin;
  std::uint16_t compiled;
  Compiled with_yjit, without_yjit;  // as it was built
};
constexpr Release kReleases[] = {
    {1, 64, 0x90, 120, 16, 280, {3, 0}, {3, 0}},  // MJIT's function; YJIT's list
    {2, 64, 0x98, 112, 24, 288, {3, 0}, {0, 0}},  // a function; what YJIT has
    {3, 56, 0x98, 112, 24, 288, {4, 5}, {2, 0}},  // a function; what RJIT has, and YJIT
};

// A place that code refers to, relative to the end of the four bytes that say so.
std::uint64_t place_of(std::uint64_t address, const std::uint8_t* code, std::size_t at) {
  std::int32_t distance = 0;
  std::memcpy(&distance, code + at, sizeof distance);
  return address + at + sizeof distance + static_cast<std::uint64_t>(std::int64_t{distance});
}

// `endbr64` may stand in front (Intel SDM volume 1, 17.3).
std::uint64_t skip_mark(const Memory& memory, std::uint64_t function) {
  constexpr std::uint32_t kEndBranch = 0xfa1e0ff3;
  return function + (read_value<std::uint32_t>(memory, function) == kEndBranch ? sizeof kEndBranch : 0);
}

// The table of identifiers is not exported, but the function that returns its first field is: mov disp32(%rip), %eax;
// ret (Intel SDM volume 2).
Expected<std::uint64_t> find_symbols(const Memory& memory, std::uint64_t base) {
  const auto function = find_dynamic_symbol(memory, base, "rb_sym_immortal_count");
  if (!function) return fail(ErrorCode::kUnsupported, "a Ruby that does not export rb_sym_immortal_count", base);
  const std::uint64_t begin = skip_mark(memory, *function);
  std::uint8_t code[7];
  if (!memory.read(begin, code, sizeof code))
    return fail(ErrorCode::kUnreadable, "the code of Ruby's rb_sym_immortal_count cannot be read", *function);
  if (code[0] != 0x8b || code[1] != 0x05 || code[6] != 0xc3)
    return fail(ErrorCode::kUnsupported, "Ruby's rb_sym_immortal_count is other code than is known", *function);
  return place_of(begin, code, 2);
}

// Ruby 3.3 does not export ruby_current_ec, but rb_errinfo(), which returns a field of that context. It reads the
// variable by the general dynamic model (Drepper, "ELF Handling For Thread-Local Storage", 4.4.6): sub $8, %rsp; data16
// lea INDEX(%rip), %rdi; data16 data16 rex.W call __tls_get_addr; mov (%rax), %rax. With frame pointers it begins with
// push %rbp; mov %rsp, %rbp, and pop %rbp is in front of the load.
std::optional<ThreadLocalSymbol> find_context(const Memory& memory, std::uint64_t base) {
  if (const auto exported = find_thread_local(memory, base, "ruby_current_ec")) return *exported;
  using Four = std::array<std::uint8_t, 4>;
  constexpr std::size_t kLea = 4, kIndex = 8, kCall = 12, kLoad = 20;
  constexpr Four kPlain = {0x48, 0x83, 0xec, 0x08}, kFramed = {0x55, 0x48, 0x89, 0xe5};
  constexpr Four kLeas = {0x66, 0x48, 0x8d, 0x3d}, kCalls = {0x66, 0x66, 0x48, 0xe8};
  constexpr std::array<std::uint8_t, 3> kLoads = {0x48, 0x8b, 0x00};
  constexpr Four kPopAndLoad = {0x5d, 0x48, 0x8b, 0x00};
  const auto function = find_dynamic_symbol(memory, base, "rb_errinfo");
  if (!function) return std::nullopt;
  const std::uint64_t begin = skip_mark(memory, *function);
  std::array<std::uint8_t, kLoad + kPopAndLoad.size()> code{};
  if (!memory.read(begin, code.data(), code.size())) return std::nullopt;
  const auto has = [&](std::size_t at, std::span<const std::uint8_t> bytes) {
    return std::ranges::equal(bytes, std::span(code).subspan(at, bytes.size()));
  };
  const bool loads = (has(0, kPlain) && has(kLoad, kLoads)) || (has(0, kFramed) && has(kLoad, kPopAndLoad));
  if (!loads || !has(kLea, kLeas) || !has(kCall, kCalls)) return std::nullopt;
  const std::uint64_t index = place_of(begin, code.data(), kIndex);
  const auto offset = read_value<std::uint64_t>(memory, index + sizeof(std::uint64_t));
  return offset ? std::optional(ThreadLocalSymbol{index, *offset}) : std::nullopt;
}

Expected<const Release*> release_of(const Memory& memory, std::uint64_t version) {
  const auto api = read_value<ApiVersion>(memory, version);
  if (!api) return fail(ErrorCode::kUnreadable, "Ruby's version cannot be read", version);
  const auto* release = std::ranges::find(kReleases, api->minor, &Release::minor);
  if (api->major != 3 || release == std::end(kReleases)) {
    const auto digits = static_cast<std::uint64_t>(api->major) * 10 + static_cast<std::uint64_t>(api->minor);
    return fail(ErrorCode::kUnsupported, "another Ruby than 3.1 to 3.3", version, digits);
  }
  return release;
}

// From 3.2 on, one that was built without YJIT has this as an answer to `--yjit`.
bool has_yjit(const Memory& memory, std::uint64_t base) {
  return !find_text(memory, base, SegmentKind::kConstant, "Ruby was built without YJIT");
}

}  // namespace

Expected<Evaluator> find_vm_exec(const Memory& memory, std::uint64_t base) {
  if (auto exported = find_evaluator(memory, base, "rb_vm_exec")) return exported;
  constexpr std::uint64_t kLongest = 4096;
  const auto unknown = [&] { return fail(ErrorCode::kUnsupported, "a Ruby whose rb_vm_exec cannot be found", base); };
  const auto caller = find_dynamic_object(memory, base, "rb_iseq_eval");
  if (!caller || caller->size > kLongest) return unknown();
  std::vector<std::byte> bytes(caller->size);
  if (!memory.read(caller->address, bytes.data(), bytes.size())) return unknown();
  const auto* code = reinterpret_cast<const std::uint8_t*>(bytes.data());
  std::uint64_t target = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const unsigned length = winx64::instruction_length(ByteView(bytes.data() + at, bytes.size() - at));
    if (length == 0 || length > bytes.size() - at) return unknown();
    if (code[at] == 0xe9 && length == 5) {
      const std::uint64_t to = place_of(caller->address, code, at + 1);
      const bool leaves = to - caller->address >= caller->size;
      if (leaves && target != 0 && target != to) return unknown();
      if (leaves) target = to;
    }
    at += length;
  }
  return target != 0 ? find_evaluator_at(memory, base, target) : unknown();
}

Expected<Layout> read_layout(const Memory& memory, std::uint64_t base, std::uint64_t version) {
  const auto header = read_value<Elf64_Ehdr>(memory, base);
  if (!header || header->e_machine != EM_X86_64)
    return fail(ErrorCode::kUnsupported, "a Ruby for another machine than x86-64", base);
  const auto release = release_of(memory, version);
  if (!release) return Failure(release.error());
  const auto context = find_context(memory, base);
  if (!context)
    return fail(ErrorCode::kUnsupported, "a Ruby whose threads' contexts cannot be found: it is no library", base);
  const auto symbols = find_symbols(memory, base);
  if (!symbols) return Failure(symbols.error());
  const Release& known = **release;
  const Compiled& compiled = has_yjit(memory, base) ? known.with_yjit : known.without_yjit;
  Layout layout{.interpreter = {}, .symbols = *symbols, .lines = known.lines};
  layout.interpreter.kind = WL_RUBY;
  layout.interpreter.ruby = {.module = context->module,
                             .context = context->offset,
                             .frame_bytes = known.frame_bytes,
                             .machine_stack = known.machine_stack,
                             .compiled = known.compiled,
                             .compiled_second = compiled.second,
                             .compiled_third = compiled.third,
                             .string_begin = known.string_begin,
                             .reserved = {}};
  return layout;
}

}  // namespace windlass::runtimes::ruby
