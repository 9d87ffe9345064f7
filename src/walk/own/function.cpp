// What unwind information says about a function of the own process, on every system.
#include "walk/own_modules.h"
#include "windlass/backtrace.h"

namespace windlass {
namespace {

std::uint64_t follow(const sources::Pointer& pointer) {
  std::uint64_t address = pointer.address;
  if (pointer.indirect && !own_process().memory().read(address, &address, sizeof address)) return 0;
  return address;
}

}  // namespace

Expected<OwnFunction> own_function(std::uint64_t pc) {
  const walk::Module* module = walk::find_own_module(pc);
  if (module == nullptr) return fail(ErrorCode::kNotFound, "address lies in no module", pc);
  const auto found = module->function_at(pc);
  if (!found) return Failure(found.error());
  return OwnFunction{found->begin,
                     found->end,
                     follow(found->language_data),
                     follow(found->personality),
                     found->record.address,
                     found->text_base,
                     found->data_base,
                     found->signal_frame};
}

}  // namespace windlass
