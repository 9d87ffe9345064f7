#include "runtimes/coreclr/find.h"

#include <iterator>
#include <map>
#include <utility>

#include "runtimes/coreclr/code_map.h"
#include "runtimes/coreclr/descriptor.h"
#include "runtimes/coreclr/names.h"
#include "runtimes/coreclr/rows.h"
#include "runtimes/dynamic_symbol.h"

namespace windlass::runtimes::coreclr {
namespace {

// What cannot be read yet, since the process has just begun, is asked for again.
class CoreClr final : public Runtime {
 public:
  CoreClr(std::shared_ptr<const Memory> memory, std::uint64_t descriptor)
      : memory_(std::move(memory)), descriptor_(descriptor) {
    prepare();
  }

  Architecture architecture() const override { return Architecture::kX86_64; }
  std::optional<Error> problem() const override { return problem_; }
  bool is_understood() const override { return !ready_ || code_map_; }

  // Its executable memory is a memfd of this name, mapped once more where it is written (src/coreclr/minipal/Unix/
  // doublemapping.cpp), unless the user has switched that off.
  void note_code(const os::ProcMap& map) override {
    if (!map.path.starts_with("/memfd:doublemapper")) return;
    if (own_.size() >= kMaxRanges) own_.clear();
    own_[map.begin] = map.end;
  }

  Expected<std::unique_ptr<Method>> method_at(std::uint64_t address) override {
    prepare();
    if (!code_map_) return fail(ErrorCode::kNotFound, "nothing is known of the runtime's code", address);
    auto block = code_map_->find(*memory_, address);
    if (!block) {
      // Heaps of stubs that are in no range section: thunks of delegates, helpers made at run time.
      if (block.error().code == ErrorCode::kNotFound && is_own(address)) return Stub::read(*memory_, address);
      return Failure(block.error());
    }
    const std::uint64_t method_desc = block->method_desc;
    auto code = read_code(*memory_, std::move(*block));
    if (!code) return Failure(code.error());
    if (names_ && method_desc != 0) (*code)->name = names_->name_of(*memory_, method_desc);
    return std::move(*code);
  }

  bool is_still(const Method& method) override {
    return code_map_ && static_cast<const Code&>(method).is_still(*code_map_, *memory_);
  }

 private:
  static constexpr std::size_t kMaxRanges = 65536;

  [[nodiscard]] bool is_own(std::uint64_t address) const {
    const auto after = own_.upper_bound(address);
    return after != own_.begin() && address < std::prev(after)->second;
  }

  void prepare() {
    if (ready_) return;
    const auto read = Descriptor::read(*memory_, descriptor_);
    ready_ = read || read.error().code != ErrorCode::kUnreadable;
    if (!read) {
      problem_ = read.error();
      return;
    }
    problem_.reset();
    if (read->text("Architecture").value_or("x64") != "x64") {
      problem_ = Error{ErrorCode::kUnsupported, "code of a .NET runtime for another machine", descriptor_};
      return;
    }
    if (auto map = CodeMap::make(*read))
      code_map_ = *map;
    else
      problem_ = map.error();
    if (auto names = Names::make(*read))
      names_ = std::move(*names);
    else if (!problem_)
      problem_ = names.error();
  }

  std::shared_ptr<const Memory> memory_;
  std::uint64_t descriptor_;
  bool ready_ = false;
  std::map<std::uint64_t, std::uint64_t> own_;  // executable memory: begin, end
  std::optional<CodeMap> code_map_;
  std::optional<Names> names_;
  std::optional<Error> problem_;
};

}  // namespace

Expected<std::uint64_t> find_descriptor(const Memory& memory, std::uint64_t base) {
  return find_dynamic_symbol(memory, base, "DotNetRuntimeContractDescriptor");
}

std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t descriptor) {
  return std::make_unique<CoreClr>(std::move(memory), descriptor);
}

}  // namespace windlass::runtimes::coreclr
