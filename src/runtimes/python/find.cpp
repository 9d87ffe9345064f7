#include "runtimes/python/find.h"

#include <elf.h>

#include "runtimes/dynamic_symbol.h"
#include "runtimes/interpreted_frames.h"
#include "runtimes/memory_reader.h"
#include "runtimes/python/names.h"

namespace windlass::runtimes::python {
namespace {

class Python final : public ListedInterpreter {
 public:
  Python(const Layout& layout, const Evaluator& evaluator)
      : ListedInterpreter(layout.interpreter, evaluator), layout_(layout) {}

  // 3.11 and 3.12 link a C frame first and write into it afterwards which frame it runs: before that it has whatever
  // was on the stack. Compilers leave that to the evaluator's first 100 to 170 bytes.
  bool is_linking(std::uint64_t address) const override {
    constexpr std::uint64_t kEntry = 256;
    return layout_.interpreter.python.has_c_frame != 0 && address - evaluator().begin < kEntry;
  }
  Expected<sources::NamedFunction> name_of(const Memory& memory,
                                           const manager::InterpretedFrame& frame) const override {
    return read_name(memory, layout_, frame);
  }

 private:
  Layout layout_;
};

}  // namespace

Expected<std::uint64_t> find_runtime(const Memory& memory, std::uint64_t base) {
  return find_dynamic_symbol(memory, base, "_PyRuntime");
}

Expected<std::unique_ptr<manager::Interpreter>> open(const Memory& memory, std::uint64_t base) {
  const auto runtime = find_runtime(memory, base);
  if (!runtime) return Failure(runtime.error());
  const auto header = read_value<Elf64_Ehdr>(memory, base);
  if (!header || header->e_machine != EM_X86_64)
    return fail(ErrorCode::kUnsupported, "a CPython for another machine than x86-64", base);
  const auto layout = read_layout(memory, base, *runtime);
  if (!layout) return Failure(layout.error());
  const auto evaluator = find_evaluator(memory, base, "_PyEval_EvalFrameDefault");
  if (!evaluator) return Failure(evaluator.error());
  return std::make_unique<Python>(*layout, *evaluator);
}

}  // namespace windlass::runtimes::python
