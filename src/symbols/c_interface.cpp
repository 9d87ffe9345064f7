// windlass/c/symbols.h
#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "capi/shells.h"
#include "capi/structs.h"
#include "symbols/named_for_c.h"
#include "windlass/backtrace.h"
#include "windlass/c/symbols.h"
#include "windlass/symbols.h"

using namespace windlass;
using namespace windlass::capi;

struct windlass_symbols : Shell<windlass_symbols> {
  std::optional<Target> target;       // of a dump
  std::optional<AddressSpace> space;  // of one that was opened empty
  std::optional<Symbolizer> symbolizer;
};

namespace windlass::capi {

template <>
inline constexpr std::size_t kFirstSize<windlass_symbols_options> = 24;

}  // namespace windlass::capi

namespace {

Shells<windlass_symbols> closed;

bool usable(const windlass_symbols* symbols) { return symbols != nullptr && symbols->open(); }

bool options_from_c(const windlass_symbols_options* from, SymbolizerOptions& to) {
  if (from == nullptr) return true;
  windlass_symbols_options given;
  if (!take(from, given) || (given.flags & ~WINDLASS_SYMBOLS_NO_LINES) != 0) return false;
  to.lines = (given.flags & WINDLASS_SYMBOLS_NO_LINES) == 0;
  to.threads = given.threads;
  if (given.debug_directory != nullptr) to.debug_directory = given.debug_directory;
  if (given.symbol_path != nullptr) to.symbol_path = given.symbol_path;
  for (const char* const* file = given.pdb_files; file != nullptr && *file != nullptr; ++file)
    to.pdb_files.emplace_back(*file);
  return true;
}

void discard(windlass_symbols& shell) {
  shell.symbolizer.reset();
  shell.target.reset();
  shell.space.reset();
  closed.keep(shell);
}

// fill(shell, options) -> Expected<void> makes the shell's contents.
template <typename Fill>
windlass_status open(const windlass_symbols_options* options, windlass_symbols** to, windlass_error* error, Fill fill) {
  if (to == nullptr) return invalid("nowhere to put the handle", error);
  *to = nullptr;
  SymbolizerOptions how;
  if (!options_from_c(options, how)) return invalid("windlass_symbols_options is not set up", error);
  windlass_symbols* shell = closed.take();
  if (shell == nullptr) return no_memory(error);
  try {
    if (const Expected<void> filled = fill(*shell, how); !filled) {
      discard(*shell);
      return report(filled.error(), error);
    }
  } catch (const std::exception&) {
    discard(*shell);
    return no_memory(error);
  }
  shell->change();
  *to = shell;
  return WINDLASS_OK;
}

Expected<void> put(Expected<Symbolizer> made, windlass_symbols& shell) {
  if (!made) return Failure(made.error());
  shell.symbolizer.emplace(std::move(*made));
  return {};
}

using OpenDump = Expected<Target> (*)(const std::string&, const DumpOptions&);

windlass_status open_dump(OpenDump open_target, const char* path, const windlass_files* files,
                          const windlass_symbols_options* options, windlass_symbols** symbols, windlass_error* error) {
  DumpOptions dump;
  if (path == nullptr) return invalid("there is no path", error);
  if (!from_c(files, dump.files)) return invalid("windlass_files is not set up", error);
  return open(options, symbols, error, [&](windlass_symbols& shell, const SymbolizerOptions& how) -> Expected<void> {
    auto target = open_target(path, dump);
    if (!target) return Failure(target.error());
    shell.target.emplace(std::move(*target));
    return put(Symbolizer::of_target(*shell.target, how), shell);
  });
}

class NoMemory final : public Memory {
 public:
  [[nodiscard]] bool read(std::uint64_t, void*, std::size_t) const override { return false; }
};

// pc_at(i) -> CodeAddress
template <typename PcAt>
windlass_status name(const windlass_symbols* symbols, std::size_t count, windlass_symbols_callback callback, void* user,
                     windlass_error* error, PcAt pc_at) {
  try {
    std::vector<CodeAddress> pcs;
    pcs.reserve(count);
    for (std::size_t i = 0; i < count; ++i) pcs.push_back(pc_at(i));
    const std::vector<NamedAddress> names = symbols->symbolizer->name(pcs);
    windlass::symbols::NamedForC for_c;
    for (std::size_t i = 0; i < count; ++i)
      if (callback(&for_c.fill(names[i]), i, user) != 0) break;
  } catch (const std::exception&) {
    return no_memory(error);
  }
  return WINDLASS_OK;
}

CodeAddress code_address(std::uint64_t pc, std::uint32_t flags) {
  return (flags & WINDLASS_RETURN_ADDRESS) != 0 ? CodeAddress::return_address(pc) : CodeAddress::instruction(pc);
}

}  // namespace

extern "C" {

windlass_status windlass_symbols_open_file(const char* path, const windlass_symbols_options* options,
                                           windlass_symbols** symbols, windlass_error* error) {
  if (path == nullptr) return invalid("there is no path", error);
  return open(options, symbols, error, [&](windlass_symbols& shell, const SymbolizerOptions& how) {
    return put(Symbolizer::of_file(path, how), shell);
  });
}

windlass_status windlass_symbols_open_process(int64_t pid, const windlass_symbols_options* options,
                                              windlass_symbols** symbols, windlass_error* error) {
  if (pid <= 0) return invalid("no process has this id", error);
  return open(options, symbols, error, [&](windlass_symbols& shell, const SymbolizerOptions& how) {
    return put(Symbolizer::of_process(static_cast<std::uint64_t>(pid), how), shell);
  });
}

windlass_status windlass_symbols_open_self(const windlass_symbols_options* options, windlass_symbols** symbols,
                                           windlass_error* error) {
  return open(options, symbols, error, [&](windlass_symbols& shell, const SymbolizerOptions& how) {
    return put(Symbolizer::of_self(how), shell);
  });
}

windlass_status windlass_symbols_open_core(const char* path, const windlass_files* files,
                                           const windlass_symbols_options* options, windlass_symbols** symbols,
                                           windlass_error* error) {
  return open_dump(open_core, path, files, options, symbols, error);
}

windlass_status windlass_symbols_open_minidump(const char* path, const windlass_files* files,
                                               const windlass_symbols_options* options, windlass_symbols** symbols,
                                               windlass_error* error) {
  return open_dump(open_minidump, path, files, options, symbols, error);
}

windlass_status windlass_symbols_open_empty(const windlass_symbols_options* options, windlass_symbols** symbols,
                                            windlass_error* error) {
  return open(options, symbols, error, [&](windlass_symbols& shell, const SymbolizerOptions& how) {
    shell.space.emplace(kOwnArchitecture, std::make_unique<NoMemory>());
    return put(Symbolizer::of_space(*shell.space, how), shell);
  });
}

windlass_status windlass_symbols_add_module(windlass_symbols* symbols, const windlass_module* module,
                                            windlass_error* error) {
  windlass_module given;
  if (!usable(symbols) || !symbols->space) return invalid("the handle was not opened empty", error);
  if (!take(module, given) || given.image != nullptr || given.image_size != 0)
    return invalid("windlass_module is not set up", error);
  const auto added =
      symbols->space->add_module({given.begin, given.end, given.bias, given.path != nullptr ? given.path : "",
                                  given.file != nullptr ? given.file : ""});
  return added ? WINDLASS_OK : report(added.error(), error);
}

windlass_status windlass_symbols_close(windlass_symbols* symbols) {
  if (!usable(symbols)) return WINDLASS_INVALID;
  symbols->change();
  discard(*symbols);
  return WINDLASS_OK;
}

windlass_status windlass_symbols_name(const windlass_symbols* symbols, const uint64_t* addresses, size_t count,
                                      uint32_t flags, windlass_symbols_callback callback, void* user,
                                      windlass_error* error) {
  if (!usable(symbols)) return invalid("the handle is not open", error);
  if (callback == nullptr || (addresses == nullptr && count != 0))
    return invalid("there is no callback, or there are no addresses", error);
  if ((flags & ~WINDLASS_RETURN_ADDRESS) != 0) return invalid("unknown flags", error);
  return name(symbols, count, callback, user, error, [&](std::size_t i) { return code_address(addresses[i], flags); });
}

windlass_status windlass_symbols_name_frames(const windlass_symbols* symbols, const windlass_frame* frames,
                                             size_t count, windlass_symbols_callback callback, void* user,
                                             windlass_error* error) {
  if (!usable(symbols)) return invalid("the handle is not open", error);
  if (callback == nullptr || (count != 0 && !sized(frames)))
    return invalid("there is no callback, or windlass_frame is not set up", error);
  return name(symbols, count, callback, user, error, [&](std::size_t i) {
    // Of the caller's version of the struct, which may be longer.
    windlass_frame frame{};
    const auto* at = reinterpret_cast<const std::byte*>(frames) + i * frames->size;
    std::memcpy(&frame, at, std::min(frames->size, sizeof frame));
    return code_address(frame.pc, frame.flags);
  });
}

}  // extern "C"
