#include "runtimes/kinds.h"

#include <utility>

#include "runtimes/beam/find.h"
#include "runtimes/coreclr/find.h"
#include "runtimes/gdb/find.h"
#include "runtimes/hotspot/find.h"
#include "runtimes/mono/find.h"
#include "runtimes/python/find.h"
#include "runtimes/ruby/find.h"
#include "runtimes/sbcl/find.h"
#include "runtimes/v8/find.h"
#include "runtimes/windows/find.h"

namespace windlass::runtimes {
namespace {

template <auto open>
std::unique_ptr<Runtime> by_memory(std::shared_ptr<const Memory> memory, std::uint64_t at,
                                   FunctionRef<Expected<MappedFile>()> /*file*/) {
  return open(std::move(memory), at);
}
template <auto open>
std::unique_ptr<Runtime> by_file(std::shared_ptr<const Memory> memory, std::uint64_t at,
                                 FunctionRef<Expected<MappedFile>()> file) {
  return open(std::move(memory), at, file());
}
constexpr Kind kKinds[] = {{coreclr::find_image, by_memory<coreclr::open_image>},
                           {hotspot::find_tables, by_memory<hotspot::open>},
                           {mono::find_exports, by_memory<mono::open>},
                           {beam::find_exports, by_memory<beam::open>},
                           {sbcl::find_exports, by_memory<sbcl::open>},
                           {v8::find_metadata, by_file<v8::open>},
                           {gdb::find_descriptor, by_memory<gdb::open>},
                           {windows::find_tables, by_memory<windows::open>},
                           {v8::find_large_image, by_file<v8::open_without_symbols>}};
constexpr InterpreterKind kInterpreters[] = {{python::find_runtime, python::open}, {ruby::find_version, ruby::open}};

}  // namespace

std::span<const Kind> kinds() { return kKinds; }
std::span<const InterpreterKind> interpreter_kinds() { return kInterpreters; }

}  // namespace windlass::runtimes
