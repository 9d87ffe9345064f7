// A code manager's table, for walks of this process and of others.
#include "windlass/jit/code_manager.h"

#include <deque>
#include <vector>

#include "jit/registries/batch.h"

namespace windlass::registries {
namespace {

class ManagedCode : public Published {
 public:
  explicit ManagedCode(CodeManager& manager) : manager_(manager) {}
  ~ManagedCode() override { (void)manager_.remove(begins_); }
  ManagedCode(const ManagedCode&) = delete;
  ManagedCode& operator=(const ManagedCode&) = delete;

  Expected<void> add(std::span<const Function> functions) {
    RowsOf rows_of;
    std::deque<std::vector<FrameRow>> rows;
    std::vector<GeneratedFunction> described;
    std::vector<std::uint64_t> begins;
    for (const Function& function : functions) {
      GeneratedFunction& to = described.emplace_back(*function.given);
      begins.push_back(to.address);
      if (to.prologue != nullptr) continue;
      const auto made = rows_of(function);
      if (!made) return Failure(made.error());
      to.rows = rows.emplace_back(made->begin(), made->end());
    }
    if (auto added = manager_.add(described); !added) return added;
    begins_ = std::move(begins);
    return {};
  }

 private:
  CodeManager& manager_;
  std::vector<std::uint64_t> begins_;
};

class ManagerRegistrar : public BatchRegistrar {
 public:
  ManagerRegistrar(CodeManager manager, CodeRangeId known) : manager_(std::move(manager)), known_(known) {}
  ~ManagerRegistrar() override {
    remove_all();
    (void)retire_own_code(known_);
  }

 private:
  Expected<std::unique_ptr<Published>> publish(std::span<const Function> functions, std::span<const Run>) override {
    auto code = std::make_unique<ManagedCode>(manager_);
    if (const auto added = code->add(functions); !added) return Failure(added.error());
    return code;
  }

  CodeManager manager_;
  CodeRangeId known_;
};

}  // namespace

Opened open_code_manager(const RegistrarOptions& options) {
  auto manager = CodeManager::create(options.heap_begin, options.heap_end);
  if (!manager) return Failure(manager.error());
  const auto known = add_own_code(*manager);
  if (!known) return Failure(known.error());
  return std::make_unique<ManagerRegistrar>(std::move(*manager), *known);
}

}  // namespace windlass::registries
