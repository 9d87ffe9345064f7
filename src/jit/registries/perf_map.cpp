// /tmp/perf-PID.map: tools/perf/Documentation/jit-interface.txt of Linux.
#include <fcntl.h>

#include <fmt/format.h>

#include "jit/registries/file.h"

namespace windlass::registries {
namespace {

class PerfMapRegistrar : public FileRegistrar {
 public:
  explicit PerfMapRegistrar(const std::string& folder) : FileRegistrar(folder + "/perf-", ".map") {}
  ~PerfMapRegistrar() override { remove_all(); }

 private:
  [[nodiscard]] int open_flags() const override { return O_WRONLY | O_APPEND; }

  Expected<std::string> text_of(std::span<const Function> functions) override {
    std::string text;
    for (const Function& function : functions) {
      std::string name(function.given->name.empty() ? "[jit]" : function.given->name);
      for (char& c : name)
        if (c == '\n') c = ' ';
      fmt::format_to(std::back_inserter(text), "{:x} {:x} {}\n", function.begin(), function.given->size, name);
    }
    return text;
  }
};

}  // namespace

Opened open_perf_map(const RegistrarOptions& options) {
  auto registrar = std::make_unique<PerfMapRegistrar>(options.folder.empty() ? "/tmp" : options.folder);
  if (const auto ok = registrar->open(); !ok) return Failure(ok.error());
  return registrar;
}

}  // namespace windlass::registries
