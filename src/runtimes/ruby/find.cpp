#include "runtimes/ruby/find.h"

#include "runtimes/dynamic_symbol.h"
#include "runtimes/evaluator.h"
#include "runtimes/interpreted_frames.h"
#include "runtimes/ruby/layout.h"
#include "runtimes/ruby/names.h"

namespace windlass::runtimes::ruby {
namespace {

class Ruby final : public ListedInterpreter {
 public:
  Ruby(const Layout& layout, const Evaluator& evaluator)
      : ListedInterpreter(layout.interpreter, evaluator), layout_(layout) {}

  Expected<sources::NamedFunction> name_of(const Memory& memory,
                                           const manager::InterpretedFrame& frame) const override {
    return read_name(memory, layout_, frame);
  }

 private:
  Layout layout_;
};

}  // namespace

Expected<std::uint64_t> find_version(const Memory& memory, std::uint64_t base) {
  return find_dynamic_symbol(memory, base, "ruby_api_version");
}

Expected<std::unique_ptr<manager::Interpreter>> open(const Memory& memory, std::uint64_t base) {
  const auto version = find_version(memory, base);
  if (!version) return Failure(version.error());
  const auto layout = read_layout(memory, base, *version);
  if (!layout) return Failure(layout.error());
  const auto evaluator = find_vm_exec(memory, base);
  if (!evaluator) return Failure(evaluator.error());
  return std::make_unique<Ruby>(*layout, *evaluator);
}

}  // namespace windlass::runtimes::ruby
