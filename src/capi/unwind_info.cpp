// Unwind information of files.
#include "windlass/unwind_info.h"

#include <utility>

#include "capi/handles.h"
#include "capi/structs.h"

using namespace windlass;
using namespace windlass::capi;

namespace {

Shells<windlass_unwind_info> closed_infos;

static_assert(static_cast<int>(UnwindFormat::kWinArm64) == WINDLASS_FORMAT_WIN_ARM64);
static_assert(static_cast<int>(UnwindFormat::kSFrame) == WINDLASS_FORMAT_SFRAME);
static_assert(static_cast<int>(UnwindFormat::kGo) == WINDLASS_FORMAT_GO);
static_assert(static_cast<int>(RegisterRule::kExpressionValue) == WINDLASS_RULE_EXPRESSION_VALUE);
static_assert(RegisterRules::kCapacity == WINDLASS_MAX_RULES);

windlass_status opened(Expected<std::unique_ptr<UnwindReader>> reader, windlass_unwind_info** to,
                       windlass_error* error) {
  if (!reader) return report(reader.error(), error);
  return open_shell(closed_infos, to, error, [&](windlass_unwind_info& shell) { shell.reader = std::move(*reader); });
}

windlass_unwind_function to_c(const UnwindFunction& function) {
  windlass_unwind_function to{};
  to.size = sizeof to;
  to.begin = function.begin;
  to.end = function.end;
  to.primary = function.primary;
  to.personality = function.personality.address;
  to.language_data = function.language_data.address;
  to.flags = (function.on_exception ? WINDLASS_ON_EXCEPTION : 0) |
             (function.on_termination ? WINDLASS_ON_TERMINATION : 0) |
             (function.signal_frame ? WINDLASS_IS_SIGNAL_FRAME : 0) |
             (function.personality.indirect ? WINDLASS_INDIRECT_PERSONALITY : 0) |
             (function.language_data.indirect ? WINDLASS_INDIRECT_LANGUAGE_DATA : 0);
  to.section = function.record.section;
  to.record_offset = function.record.offset;
  to.record_address = function.record.address;
  return to;
}

void put_expression(ByteView expression, windlass_unwind_rule& to) {
  to.expression = expression.data();
  to.expression_size = static_cast<std::uint32_t>(expression.size());
}

windlass_unwind_rule to_c(const FrameRow& row, const RegisterRule& rule, RegisterNumber number) {
  windlass_unwind_rule to{};
  to.number = number;
  to.kind = rule.kind();
  if (rule.is_expression()) {
    put_expression(row.expression(rule), to);
  } else {
    to.base = rule.reg();
    to.offset = rule.offset();
  }
  return to;
}

windlass_unwind_rule cfa_of(const FrameRow& row) {
  windlass_unwind_rule to{};
  if (row.cfa.is(CfaRule::kExpression)) {
    to.kind = WINDLASS_RULE_EXPRESSION_VALUE;
    put_expression(row.expression(row.cfa), to);
    return to;
  }
  to.kind = row.cfa.is(CfaRule::kLoaded) ? WINDLASS_RULE_LOADED : WINDLASS_RULE_REGISTER_VALUE;
  to.base = row.cfa.reg();
  to.offset = row.cfa.offset();
  to.addend = row.cfa.is(CfaRule::kLoaded) ? row.cfa.addend() : std::int16_t{0};
  return to;
}

windlass_unwind_row to_c(const FrameRow& row) {
  windlass_unwind_row to{};
  to.size = sizeof to;
  to.begin = row.begin;
  to.end = row.end;
  to.flags = (row.signal_frame ? WINDLASS_IS_SIGNAL_FRAME : 0) | (row.return_signed ? WINDLASS_RETURN_SIGNED : 0);
  to.cfa = cfa_of(row);
  to.return_address = to_c(row, row.return_address, 0);
  for (const RegisterEntry& entry : row.registers) to.rules[to.rule_count++] = to_c(row, entry.rule, entry.reg);
  return to;
}

void give_problems(const std::vector<Error>& problems, windlass_problem_callback callback, void* user) {
  if (callback == nullptr) return;
  for (const Error& problem : problems) {
    windlass_error given{};
    given.size = sizeof given;
    (void)report(problem, &given);
    callback(&given, user);
  }
}

}  // namespace

extern "C" {

windlass_status windlass_open_unwind_info(const char* path, windlass_unwind_info** info, windlass_error* error) {
  if (info == nullptr) return invalid("nowhere to put the handle", error);
  *info = nullptr;
  if (path == nullptr) return invalid("there is no path", error);
  return opened(open_unwind_info(path), info, error);
}

windlass_status windlass_read_unwind_info(const void* bytes, size_t length, uint32_t flags, windlass_unwind_info** info,
                                          windlass_error* error) {
  if (info == nullptr) return invalid("nowhere to put the handle", error);
  *info = nullptr;
  if (bytes == nullptr) return invalid("there are no bytes", error);
  if ((flags & ~WINDLASS_LOADED_IMAGE) != 0) return invalid("unknown flags", error);
  const auto layout = (flags & WINDLASS_LOADED_IMAGE) != 0 ? ImageLayout::kLoaded : ImageLayout::kFile;
  return opened(read_unwind_info({static_cast<const std::byte*>(bytes), length}, layout), info, error);
}

windlass_status windlass_close_unwind_info(windlass_unwind_info* info) {
  if (!usable(info)) return WINDLASS_INVALID;
  close_shell(closed_infos, *info, [](windlass_unwind_info& shell) { shell.reader.reset(); });
  return WINDLASS_OK;
}

windlass_status windlass_describe_unwind_info(const windlass_unwind_info* info, windlass_unwind_file* file) {
  if (!usable(info)) return WINDLASS_INVALID;
  windlass_unwind_file full{};
  full.architecture = static_cast<std::uint32_t>(info->reader->architecture());
  full.format = static_cast<std::uint32_t>(info->reader->format());
  full.entry_point = info->reader->entry_point();
  full.build_id = info->reader->build_id().c_str();
  return give(full, file) ? WINDLASS_OK : WINDLASS_INVALID;
}

windlass_status windlass_each_function(const windlass_unwind_info* info, windlass_function_callback callback,
                                       windlass_problem_callback problem, void* user) {
  if (!usable(info) || callback == nullptr) return WINDLASS_INVALID;
  std::vector<Error> problems;
  const std::vector<UnwindFunction> functions = info->reader->functions(&problems);
  give_problems(problems, problem, user);
  for (const UnwindFunction& function : functions) {
    const windlass_unwind_function given = to_c(function);
    if (callback(&given, user) != 0) break;
  }
  return WINDLASS_OK;
}

windlass_status windlass_find_function(const windlass_unwind_info* info, uint64_t address,
                                       windlass_unwind_function* function, windlass_error* error) {
  if (!usable(info)) return invalid("the handle is not open", error);
  if (!sized(function)) return invalid("windlass_unwind_function is not set up", error);
  const auto found = info->reader->function_at(address);
  if (!found) return report(found.error(), error);
  (void)give(to_c(*found), function);
  return WINDLASS_OK;
}

windlass_status windlass_each_row(const windlass_unwind_info* info, const windlass_unwind_function* function,
                                  windlass_row_callback callback, windlass_problem_callback problem, void* user) {
  windlass_unwind_function given;
  if (!usable(info) || callback == nullptr || !take(function, given)) return WINDLASS_INVALID;
  UnwindFunction which;
  which.begin = given.begin;
  which.end = given.end;
  which.record = {given.section, given.record_offset, given.record_address};
  std::vector<Error> problems;
  const std::vector<FrameRow> rows = info->reader->rows(which, &problems);
  give_problems(problems, problem, user);
  for (const FrameRow& row : rows) {
    const windlass_unwind_row full = to_c(row);
    if (callback(&full, user) != 0) break;
  }
  return WINDLASS_OK;
}

windlass_status windlass_row_at(const windlass_unwind_info* info, uint64_t address, windlass_unwind_row* row,
                                windlass_error* error) {
  if (!usable(info)) return invalid("the handle is not open", error);
  if (!sized(row)) return invalid("windlass_unwind_row is not set up", error);
  const auto found = info->reader->row_at(address);
  if (!found) return report(found.error(), error);
  (void)give(to_c(*found), row);
  return WINDLASS_OK;
}

}  // extern "C"
