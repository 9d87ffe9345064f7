// Code managers.
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "capi/code.h"
#include "capi/handles.h"
#include "windlass/backtrace.h"

using namespace windlass;
using namespace windlass::capi;

namespace {

Shells<windlass_code_manager> closed_managers;

constexpr const char* kNotSetUp = "windlass_managed is not set up";

// Its rows, by whichever form, at offsets. An error's address is the function's.
Expected<void> rows_of(const windlass_managed& from, std::vector<FrameRow>& to) {
  const auto wrong = [&](const char* what) { return fail(ErrorCode::kMalformed, what, from.address); };
  if (from.prologue == nullptr) {
    if (!capi::from_c(from.rows, from.row_count, kOwnArchitecture, to)) return wrong("windlass_row is not set up");
    for (FrameRow& row : to) {
      if (row.begin < from.address) return wrong("row begins before its function");
      row.begin -= from.address;
      row.end -= from.address;
    }
    return {};
  }
  windlass_generated given;
  Prologue prologue;
  if (from.row_count != 0 || !take(from.prologue, given) || given.code_size != from.code_size ||
      !prologue_from_c(given, prologue))
    return wrong("windlass_generated is not set up, not of the function's size, or beside rows");
  auto rows = prologue::rows_of(prologue);
  if (!rows) return Failure(rows.error());
  to = std::move(*rows);
  return {};
}

// An array of a caller's structs, of whichever version; each has the size of the first.
Expected<void> from_c(const windlass_managed* from, std::size_t count, std::vector<GeneratedFunction>& to,
                      std::deque<std::vector<FrameRow>>& rows) {
  const auto* at = reinterpret_cast<const std::byte*>(from);
  for (std::size_t i = 0; i < count; ++i, at += from->size) {
    windlass_managed given;
    if (!sized(from) || !take(reinterpret_cast<const windlass_managed*>(at), given) || given.size != from->size)
      return fail(ErrorCode::kMalformed, kNotSetUp, 0, i);
    if (const auto done = rows_of(given, rows.emplace_back()); !done) return done;
    to.push_back({.address = given.address,
                  .size = given.code_size,
                  .name = given.name != nullptr ? given.name : std::string_view(),
                  .user = given.user,
                  .rows = rows.back()});
  }
  return {};
}

}  // namespace

extern "C" {

windlass_status windlass_open_code_manager(uint64_t begin, uint64_t end, uint32_t functions,
                                           windlass_code_manager** manager, windlass_error* error) {
  if (manager == nullptr) return invalid("nowhere to put the code manager", error);
  CodeManagerOptions options;
  if (functions != 0) options.functions = functions;
  auto created = CodeManager::create(begin, end, options);
  if (!created) return report(created.error(), error);
  windlass_code_manager* shell = closed_managers.take();
  if (shell == nullptr) return no_memory(error);
  if (const auto status = windlass_add_own_managed_code(created->fd(), &shell->own, error); status != WINDLASS_OK) {
    closed_managers.keep(*shell);
    return status;
  }
  shell->manager.emplace(std::move(*created));
  shell->change();
  *manager = shell;
  return WINDLASS_OK;
}

windlass_status windlass_manage(windlass_code_manager* manager, const uint64_t* removed, size_t removed_count,
                                const windlass_managed* functions, size_t count, windlass_error* error) {
  if (!usable(manager)) return invalid("the code manager is closed", error);
  if ((removed == nullptr && removed_count != 0) || (functions == nullptr && count != 0))
    return invalid("a count without what is counted", error);
  std::vector<GeneratedFunction> given;
  std::deque<std::vector<FrameRow>> rows;
  if (const auto taken = from_c(functions, count, given, rows); !taken)
    return taken.error().what == kNotSetUp ? invalid(kNotSetUp, error) : report(taken.error(), error);
  return done(manager->manager->update(std::span(removed, removed_count), given), error);
}

windlass_status windlass_find_managed(const windlass_code_manager* manager, uint64_t address, windlass_managed* found,
                                      char* name, size_t name_size) {
  if (!usable(manager) || !sized(found) || (name == nullptr && name_size != 0)) return WINDLASS_INVALID;
  const auto function = manager->manager->reader().find(address);
  if (!function) return status_of(function.error().code);
  windlass_managed to{};
  to.address = function->begin;
  to.code_size = function->size;
  to.user = function->user;
  if (name_size != 0) {
    const auto text = manager->manager->reader().name(address, std::span(name, name_size - 1));
    if (!text) return status_of(text.error().code);
    name[text->size()] = 0;
    to.name = name;
  }
  return give(to, found) ? WINDLASS_OK : WINDLASS_INVALID;
}

int windlass_code_manager_fd(const windlass_code_manager* manager) {
  return usable(manager) ? manager->manager->fd() : -1;
}

windlass_status windlass_close_code_manager(windlass_code_manager* manager) {
  if (!usable(manager)) return WINDLASS_INVALID;
  manager->change();
  const windlass_status status = windlass_retire_own_code(manager->own, nullptr);
  manager->manager.reset();
  closed_managers.keep(*manager);
  return status;
}

}  // extern "C"
