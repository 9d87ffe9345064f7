#include "walk/function_memo.h"

namespace windlass::walk {

void FunctionMemo::clear() {
  functions_.clear();
  rows_ = 0;
}

FunctionMemo::Functions::const_iterator FunctionMemo::find(const CodePlace& at) const {
  const auto behind = functions_.upper_bound({at.code, at.address});
  if (behind == functions_.begin()) return functions_.end();
  const auto last = std::prev(behind);
  return last->first.first == at.code && last->second.function->range.contains(at.address) ? last : functions_.end();
}

std::shared_ptr<const flow::WholeFunction> FunctionMemo::known(const CodePlace& at) const {
  const auto found = find(at);
  return found != functions_.end() ? found->second.function : nullptr;
}

FunctionMemo::Kept FunctionMemo::follow(const CodePlace& at, std::uint64_t bias, bool changes,
                                        const flow::CodeSource& source) {
  Kept kept;
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    const bool is_read = source.read(address, to, size);
    kept.reads.note(source, address, size, is_read);
    return is_read;
  };
  const flow::CodeSource noted{source.architecture, read, source.kind, source.plausible};
  auto found = flow::whole_function(changes ? noted : source, at.address + bias);
  if (changes && !found.rows.empty()) {
    found.code.resize(found.range.end - found.range.begin);
    if (!source.read(found.range.begin, found.code.data(), found.code.size()) || !kept.reads.are_same(source))
      found.rows.clear();
  }
  found.range.begin -= bias;
  found.range.end -= bias;
  for (FrameRow& it : found.rows) {
    it.begin -= bias;
    it.end -= bias;
  }
  kept.function = std::make_shared<const flow::WholeFunction>(std::move(found));
  return kept;
}

void FunctionMemo::drop(Functions::const_iterator known) {
  rows_ -= known->second.function->rows.size();
  functions_.erase(known);
}

void FunctionMemo::keep(std::uint64_t code, Kept kept) {
  const flow::WholeFunction& function = *kept.function;
  const auto replaced = functions_.find({code, function.range.begin});
  if (replaced != functions_.end()) drop(replaced);
  if (functions_.size() >= kMaxFunctions || rows_ + function.rows.size() > kMaxRows) clear();
  rows_ += function.rows.size();
  functions_.emplace(std::pair(code, function.range.begin), std::move(kept));
}

bool FunctionMemo::row_at(const CodePlace& at, std::uint64_t bias, bool changes, const flow::CodeSource& source,
                          FrameRow& row) {
  const auto known = find(at);
  std::shared_ptr<const flow::WholeFunction> function;
  if (known != functions_.end() && (!changes || known->second.reads.are_same(source))) {
    function = known->second.function;
  } else {
    if (known != functions_.end()) drop(known);
    Kept kept = follow(at, bias, changes, source);
    function = kept.function;
    if (!kept.reads.is_too_much()) keep(at.code, std::move(kept));
  }
  const FrameRow* const found = function->find(at.address);
  if (found == nullptr) return false;
  row = *found;
  return true;
}

}  // namespace windlass::walk
