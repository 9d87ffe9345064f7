// The modules that a Symbolizer has met: each file once, however often it is mapped, open for as long as the Symbolizer
// lives.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "formats/image/elf.h"
#include "os/descriptor.h"
#include "symbols/module_symbols.h"
#include "symbols/symbol_result.h"

namespace windlass::symbols {

struct KnownModule {
  KnownModule(profile::Module module, os::Descriptor kept, const SymbolizeOptions& options)
      : file(std::move(kept)), symbols(std::move(module), options) {}

  os::Descriptor file;  // what the module's open_path leads to
  std::mutex lock;      // of what follows
  ModuleSymbols symbols;
  FunctionTable functions;
};

// One thread at a time, but for KnownModule. What it gives stays where it is.
class KnownModules {
 public:
  // `options` must outlive it.
  explicit KnownModules(const SymbolizeOptions& options) : options_(options) {}

  // The regular file that is open.
  KnownModule* of_file(os::Descriptor file, const std::string& path);
  // A file that is not to be had: its debug file may be, by its build id.
  KnownModule* of_build_id(const std::string& build_id, const std::string& path);
  // The map that a JIT compiler writes for perf.
  KnownModule* of_perf_map(os::Descriptor file, std::uint64_t process);
  // The vdso of this kernel.
  KnownModule* of_own_vdso();
  // What is in no file that may be opened, from its bytes.
  KnownModule* of_image(ByteView bytes, const std::string& path);

  [[nodiscard]] std::string_view keep(const std::string& text) { return *texts_.insert(text).first; }

 private:
  KnownModule* add(std::string key, profile::Module module, os::Descriptor file = {});

  const SymbolizeOptions& options_;
  std::map<std::string, std::unique_ptr<KnownModule>> modules_;  // by what makes two the same
  std::set<std::string> texts_;                                  // paths, names
};

}  // namespace windlass::symbols
