#include "runtimes/v8/names.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/monotonic.h"
#include "base/registers.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes::v8 {

PositionForm Names::position_form(const ImageFacts& facts) {
  if (facts.is_since(14, 9)) return PositionForm::kThreeBits;
  if (facts.is_since(13, 7)) return PositionForm::kTwoBits;
  return facts.is_before(8) ? PositionForm::kSignFromZero : PositionForm::kSign;
}

std::uint32_t Names::function_of(Tagged shared) {
  const Layout& layout = heap_.layout();
  if ((shared & 3) == 3) shared &= ~Tagged{2};  // a weak pointer
  if (layout.shared_wrapper != 0 && heap_.is(shared, layout.shared_wrapper))
    shared = heap_.field(shared, layout.wrapper_shared).value_or(0);
  return functions_.number_of(heap_, shared);
}

// A SharedFunctionInfo has its bytecodes among its first words, whose order differs by version. Or it has an
// InterpreterData or baseline code there, which have them (shared-function-info.h: GetBytecodeArray). Code of V8 10 is
// one with its instructions.
Tagged Names::bytecodes_of(Tagged object, unsigned steps) const {
  const Layout& layout = heap_.layout();
  std::array<Tagged, 5> words{};
  if (!heap_.read(object, 8, words.data(), sizeof words)) return 0;
  for (const Tagged word : words) {
    const std::uint16_t type = is_object(word) ? heap_.type_of(word) : std::uint16_t{0};
    if (type == 0) continue;
    if (type == layout.bytecode_type) return word;
    const bool between = type == layout.code_type || type == layout.stream_type || type == layout.interpreter_data ||
                         type == layout.baseline_data;
    if (const Tagged found = between && steps != 0 ? bytecodes_of(word, steps - 1) : 0; found != 0) return found;
  }
  return 0;
}

// All functions of a script are in an array of weak pointers (Script::shared_function_infos). V8 does not tell where
// the script has it. No other of a script's words points to such an array.
void Names::read_script(Tagged script) {
  const Layout& layout = heap_.layout();
  std::array<Tagged, 16> words{};
  if (!heap_.is(script, layout.script_type) || !heap_.read(script, 0, words.data(), sizeof words)) return;
  const auto list = std::ranges::find_if(words, [&](Tagged word) { return heap_.is(word, layout.weak_array); });
  const auto length = list != words.end() ? heap_.length_of(*list) : std::nullopt;
  if (!length || *length > kMaxTable / sizeof(Tagged)) return;
  std::vector<Tagged> functions(*length);
  if (!heap_.read(*list, layout.array_data, functions.data(), functions.size() * sizeof(Tagged))) return;
  for (Tagged shared : functions) {
    shared &= ~Tagged{2};
    const Tagged bytecodes = heap_.is(shared, layout.shared_type) ? bytecodes_of(shared) : 0;
    if (bytecodes == 0) continue;
    if (runners_.size() >= Functions::kMaxFunctions) runners_.clear();
    runners_[bytecodes].shared = shared;
  }
}

Tagged Names::shared_with(Tagged bytecodes) {
  const auto found = [&] {
    const auto known = runners_.find(bytecodes);
    return known != runners_.end() && bytecodes_of(known->second.shared) == bytecodes ? known->second.shared : 0;
  };
  if (const Tagged shared = found(); shared != 0) return shared;
  const std::uint64_t now = monotonic_ns();
  for (auto& [script, look] : scripts_) {
    if (now < look.next) continue;
    look.next = now + look.wait;
    look.wait = std::min(2 * look.wait, kLongestWait);
    read_script(script);
  }
  return found();
}

std::uint32_t Names::function_of(Tagged function, Tagged bytecodes) {
  const Layout& layout = heap_.layout();
  const bool is_shared = heap_.is(function, layout.shared_type);
  Tagged shared = is_shared ? function : heap_.field(function, layout.function_shared).value_or(0);
  if (bytecodes_of(shared) != bytecodes) {
    const auto known = runners_.find(bytecodes);
    const bool is_named = known != runners_.end() && known->second.function != Functions::kNone;
    if (is_named && known->second.bytecodes == read_bytecodes(bytecodes)) return known->second.function;
    shared = shared_with(bytecodes);
  }
  const std::uint32_t number = functions_.number_of(heap_, shared);
  if (number == Functions::kNone) return number;
  if (scripts_.size() >= Functions::kMaxScripts) scripts_.clear();
  if (const auto script = heap_.field(shared, layout.shared_script)) scripts_.try_emplace(*script);
  if (runners_.size() >= Functions::kMaxFunctions) runners_.clear();
  Runner& runner = runners_[bytecodes];
  if (runner.function != number) runner = {shared, number, read_bytecodes(bytecodes)};
  return number;
}

Names::Bytecodes Names::read_bytecodes(Tagged bytecodes) const {
  Bytecodes found{heap_.length_of_bytecodes(bytecodes).value_or(0), {}};
  const std::size_t size = std::min<std::size_t>(found.length, found.first.size());
  if (!heap_.read(bytecodes, heap_.layout().bytecode_data, found.first.data(), size)) found.length = 0;
  return found;
}

void Names::fill(CompiledCode& code) {
  const std::uint32_t baseline = heap_.layout().kind_baseline, kind = code.object()->kind;
  if (kind == baseline) fill_baseline(code);
  if (kind > baseline) fill_optimized(code);
}

void Names::fill_optimized(CompiledCode& code) {
  constexpr std::size_t kPosition = 16;  // InliningPosition: a SourcePosition, the number of a literal
  const Layout& layout = heap_.layout();
  const Tagged data = code.object()->data;
  const auto element = [&](std::uint32_t index) { return heap_.element(data, index).value_or(0); };
  code.function = function_of(element(layout.deopt_shared));
  if (code.function == Functions::kNone) return;
  if (const auto table = heap_.bytes_of(code.object()->table, kMaxTable))
    code.positions = read_positions(*table, form_).value_or(std::vector<SourcePosition>());
  const auto inlining = heap_.bytes_of(element(layout.deopt_positions), kMaxTable);
  if (!inlining) return;
  const Tagged literals = element(layout.deopt_literals);
  for (std::size_t at = 0; at + kPosition <= inlining->size(); at += kPosition) {
    std::uint64_t raw = 0;
    std::int32_t literal = 0;
    std::memcpy(&raw, inlining->data() + at, sizeof raw);
    std::memcpy(&literal, inlining->data() + at + sizeof raw, sizeof literal);
    CompiledCode::Inlined& inlined = code.inlined.emplace_back();
    inlined.position = unpacked(0, raw);
    if (literal == -1)  // the function itself, again
      inlined.function = code.function;
    else if (literal >= 0)
      inlined.function = function_of(heap_.element(literals, static_cast<std::uint32_t>(literal)).value_or(0));
  }
}

Tagged Names::baseline_bytecodes(const CompiledCode& code) const {
  const Tagged data = code.object()->data;
  return heap_.is(data, heap_.layout().interpreter_data) ? heap_.field(data, 8).value_or(0) : data;
}

void Names::fill_baseline(CompiledCode& code) {
  auto table = heap_.bytes_of(code.object()->table, kMaxTable);
  if (!table) return;
  code.offsets = std::move(*table);
  const Tagged bytecodes = baseline_bytecodes(code);
  if (heap_.is(bytecodes, heap_.layout().bytecode_type)) code.bytecodes = all_bytecodes(bytecodes);
}

std::vector<std::byte> Names::all_bytecodes(Tagged bytecodes) const {
  const auto length = heap_.length_of_bytecodes(bytecodes);
  if (!length || *length > kMaxTable) return {};
  std::vector<std::byte> bytes(*length);
  if (!heap_.read(bytecodes, heap_.layout().bytecode_data, bytes.data(), bytes.size())) return {};
  return bytes;
}

// Bytecodes are compiled without a table of positions (--enable-lazy-source-positions), and get one on request. They
// point to several byte arrays. The table is the one that fits them; another holds the handlers.
std::vector<SourcePosition> Names::positions_of(std::uint32_t function, Tagged bytecodes) const {
  const Layout& layout = heap_.layout();
  const Function& of = functions_.function(function);
  const auto length = heap_.length_of_bytecodes(bytecodes);
  std::array<Tagged, 8> words{};
  const std::size_t count = std::min<std::size_t>(layout.bytecode_data / 8, words.size());
  if (!length || !heap_.read(bytecodes, 0, words.data(), count * 8)) return {};
  for (std::size_t i = 1; i < count; ++i) {
    const auto bytes = heap_.bytes_of(words[i], kMaxTable);
    if (!bytes || bytes->empty()) continue;
    auto found = read_positions(*bytes, form_);
    const auto fits = [&](const SourcePosition& at) {
      return at.code < std::int64_t{*length} && at.position >= of.begin && at.position <= of.end && at.inlining < 0;
    };
    if (found && std::ranges::all_of(*found, fits)) return std::move(*found);
  }
  return {};
}

std::int32_t Names::position_of(std::uint32_t function, Tagged bytecodes, std::uint32_t bytecode) {
  if (known_ > kMaxPositions) positions_.clear(), known_ = 0;
  const auto [found, is_new] = positions_.try_emplace(function);
  Known& known = found->second;
  const std::uint64_t now = monotonic_ns();
  if (is_new || (known.positions.empty() && now - known.looked > kStaleAfter)) {
    known.looked = now;
    known.positions = positions_of(function, bytecodes);
    known_ += known.positions.size() + 1;
  }
  const SourcePosition* at = position_at(known.positions, bytecode);
  return at != nullptr ? at->position : -1;
}

bool Names::is_baseline(const Code& code) const {
  return code.object() != nullptr && code.object()->kind == heap_.layout().kind_baseline;
}

std::optional<std::vector<wl_taken>> Names::words_of(const Code& code, std::uint64_t address) const {
  const Layout& layout = heap_.layout();
  if (!is_baseline(code) && !code.interprets()) return std::vector<wl_taken>{};
  if (!code.has_frame(address)) return std::nullopt;
  const auto slot = [](std::int32_t offset, std::uint8_t flags) {
    return wl_taken{static_cast<std::int16_t>(offset), x86_64::kRbp, flags};
  };
  // Each call has a context of its own. The collector moves a young function within milliseconds, so what it shares
  // with others is taken in its place. That, and bytecodes, hardly move.
  const auto shared = static_cast<std::uint8_t>(layout.function_shared / sizeof(Tagged) << WL_TAKEN_BEHIND);
  std::vector<wl_taken> words{slot(layout.frame_context, WL_TAKEN_SILENT), slot(layout.frame_function, shared),
                              slot(layout.frame_bytecodes, 0)};
  if (code.interprets()) words.push_back(slot(layout.frame_bytecode_offset, 0));
  return words;
}

std::optional<Names::Place> Names::by_slots(const Code& code, std::uint64_t address, const Registers& frame,
                                            const Memory& memory) {
  const Layout& layout = heap_.layout();
  const CompiledCode* compiled = code.object() != nullptr ? static_cast<const CompiledCode*>(&code) : nullptr;
  const bool baseline = is_baseline(code);
  if ((!baseline && !code.interprets()) || !frame.has(x86_64::kRbp) || !code.has_frame(address)) return std::nullopt;
  const std::uint64_t fp = frame.get(x86_64::kRbp);
  const auto slot = [&](std::int32_t offset) -> Tagged {
    const std::uint64_t at = fp + static_cast<std::uint64_t>(std::int64_t{offset});
    // In a prologue it is not written yet.
    return at < frame.sp() ? 0 : read_value<Tagged>(memory, at).value_or(0);
  };
  if (!is_object(slot(layout.frame_context))) return std::nullopt;  // a number stands for a frame of another kind
  Tagged bytecodes = slot(layout.frame_bytecodes);
  if (baseline && !heap_.is(bytecodes, layout.bytecode_type)) bytecodes = baseline_bytecodes(*compiled);
  if (!heap_.is(bytecodes, layout.bytecode_type)) return std::nullopt;
  Place found{function_of(slot(layout.frame_function), bytecodes), -1};
  if (found.function == Functions::kNone) return std::nullopt;
  if (!baseline) {
    const auto offset = small_integer(slot(layout.frame_bytecode_offset));
    const std::int32_t first = static_cast<std::int32_t>(layout.bytecode_data) - 1;
    if (offset && *offset >= first)
      found.position = position_of(found.function, bytecodes, static_cast<std::uint32_t>(*offset - first));
    return found;
  }
  std::vector<std::byte> of_frame;
  if (compiled->bytecodes.empty()) of_frame = all_bytecodes(bytecodes);  // code of V8 9 does not lead to them
  if (const auto at = bytecode_at(compiled->offsets, address + 1 - code.begin,
                                  of_frame.empty() ? compiled->bytecodes : of_frame, facts_.bytecode_sizes()))
    found.position = position_of(found.function, bytecodes, *at);
  return found;
}

sources::NamedFunction Names::named(std::uint32_t function, std::uint32_t line) const {
  const Function& of = functions_.function(function);
  return {of.name.empty() ? "(anonymous)" : of.name, functions_.file_of(function), line};
}

}  // namespace windlass::runtimes::v8
