#include "runtimes/ruby/layout.h"

#include <elf.h>

#include <cstring>

#include "runtimes/dynamic_symbol.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes::ruby {
namespace {

struct ApiVersion {
  std::int32_t major, minor, teeny;
};

// The table of identifiers is not exported, but the function that returns its first field is: mov disp32(%rip), %eax;
// ret (Intel SDM volume 2).
Expected<std::uint64_t> find_symbols(const Memory& memory, std::uint64_t base) {
  const auto function = find_dynamic_symbol(memory, base, "rb_sym_immortal_count");
  if (!function) return fail(ErrorCode::kUnsupported, "a Ruby that does not export rb_sym_immortal_count", base);
  std::uint8_t code[7];
  if (!memory.read(*function, code, sizeof code))
    return fail(ErrorCode::kUnreadable, "the code of Ruby's rb_sym_immortal_count cannot be read", *function);
  if (code[0] != 0x8b || code[1] != 0x05 || code[6] != 0xc3)
    return fail(ErrorCode::kUnsupported, "Ruby's rb_sym_immortal_count is other code than is known", *function);
  std::int32_t distance = 0;
  std::memcpy(&distance, code + 2, sizeof distance);
  return *function + 6 + static_cast<std::uint64_t>(std::int64_t{distance});
}

}  // namespace

Expected<Layout> read_layout(const Memory& memory, std::uint64_t base, std::uint64_t version) {
  const auto header = read_value<Elf64_Ehdr>(memory, base);
  if (!header || header->e_machine != EM_X86_64)
    return fail(ErrorCode::kUnsupported, "a Ruby for another machine than x86-64", base);
  const auto api = read_value<ApiVersion>(memory, version);
  if (!api) return fail(ErrorCode::kUnreadable, "Ruby's version cannot be read", version);
  if (api->major != 3 || api->minor != 1) {
    const auto digits = static_cast<std::uint64_t>(api->major) * 10 + static_cast<std::uint64_t>(api->minor);
    return fail(ErrorCode::kUnsupported, "another Ruby than 3.1", version, digits);
  }
  const auto context = find_thread_local(memory, base, "ruby_current_ec");
  if (!context)
    return fail(ErrorCode::kUnsupported, "a Ruby whose threads' contexts cannot be found: it is no library", base);
  const auto symbols = find_symbols(memory, base);
  if (!symbols) return Failure(symbols.error());
  Layout layout{.interpreter = {}, .symbols = *symbols};
  layout.interpreter.kind = WL_RUBY;
  layout.interpreter.ruby = {context->module, context->offset};
  return layout;
}

}  // namespace windlass::runtimes::ruby
