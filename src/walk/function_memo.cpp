#include "walk/function_memo.h"

namespace windlass::walk {

void FunctionMemo::clear() {
  functions_.clear();
  rows_ = 0;
}

std::shared_ptr<const flow::WholeFunction> FunctionMemo::known(const CodePlace& at) const {
  const auto behind = functions_.upper_bound({at.code, at.address});
  if (behind == functions_.begin()) return nullptr;
  const auto& [key, function] = *std::prev(behind);
  return key.first == at.code && function->range.contains(at.address) ? function : nullptr;
}

bool FunctionMemo::row_at(const CodePlace& at, std::uint64_t bias, const flow::CodeSource& source, FrameRow& row) {
  auto function = known(at);
  if (function == nullptr) {
    auto found = flow::whole_function(source, at.address + bias);
    if (functions_.size() >= kMaxFunctions || rows_ + found.rows.size() > kMaxRows) clear();
    rows_ += found.rows.size();
    found.range.begin -= bias;
    found.range.end -= bias;
    for (FrameRow& it : found.rows) {
      it.begin -= bias;
      it.end -= bias;
    }
    function = std::make_shared<const flow::WholeFunction>(std::move(found));
    functions_[{at.code, function->range.begin}] = function;
  }
  const FrameRow* const found = function->find(at.address);
  if (found == nullptr) return false;
  row = *found;
  return true;
}

}  // namespace windlass::walk
