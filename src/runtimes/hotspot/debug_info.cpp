#include "runtimes/hotspot/debug_info.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "runtimes/hotspot/names.h"

namespace windlass::runtimes::hotspot {
namespace {

template <typename T>
void copy(const Memory& memory, std::uint64_t begin, std::uint64_t end, std::vector<T>& to) {
  if (begin == 0 || end <= begin) return;
  to.resize((end - begin) / sizeof(T));
  if (!memory.read(begin, to.data(), to.size() * sizeof(T))) to.clear();
}

}  // namespace

// PcDesc: the same from JDK 9 to 25.
struct DebugInfo::Place {
  std::int32_t pc_offset, scope, objects, flags;
};

std::size_t DebugInfo::places() const { return pcs_.size() / sizeof(Place); }

DebugInfo::Place DebugInfo::place(std::size_t index) const {
  Place read;
  std::memcpy(&read, &pcs_[index * sizeof read], sizeof read);
  return read;
}

DebugInfo DebugInfo::read(const Memory& memory, const Blob::Debug& from, bool null_free) {
  DebugInfo info;
  info.null_free_ = null_free;
  copy(memory, from.pcs, from.pcs_end, info.pcs_);
  copy(memory, from.scopes, from.scopes_end, info.scopes_);
  copy(memory, from.metadata, from.metadata_end, info.metadata_);
  return info;
}

void DebugInfo::scopes_at(std::uint32_t offset, std::vector<Scope>& to) const {
  const std::size_t count = places();
  // Ascending, between one at -1 and one behind all.
  std::size_t low = 0, high = count;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (place(middle).pc_offset < static_cast<std::int64_t>(offset))
      low = middle + 1;
    else
      high = middle;
  }
  if (low + 1 >= count) return;
  each_scope(static_cast<std::uint32_t>(place(low).scope), [&](std::uint32_t, const Scope& scope) {
    to.push_back(scope);
    return true;
  });
}

void DebugInfo::each_scope(std::uint32_t at, FunctionRef<bool(std::uint32_t at, const Scope& scope)> visit) const {
  for (unsigned i = 0; i < kMostScopes && at != 0 && at < scopes_.size(); ++i) {
    Compressed stream(ByteView(scopes_.data() + at, scopes_.size() - at), null_free_);
    const auto sender = stream.next(), method = stream.next(), bci = stream.next();
    if (!sender || !method || !bci || *method == 0 || *method > metadata_.size()) return;
    if (!visit(at, {metadata_[*method - 1], static_cast<std::int32_t>(*bci) - 1})) return;
    at = *sender;
  }
}

std::vector<std::uint64_t> DebugInfo::methods() const {
  std::set<std::uint64_t> found;
  std::set<std::uint32_t> seen;  // most places have the same callers
  for (std::size_t i = 0; i < places(); ++i)
    each_scope(static_cast<std::uint32_t>(place(i).scope), [&](std::uint32_t at, const Scope& scope) {
      if (!seen.insert(at).second) return false;
      found.insert(scope.method);
      return true;
    });
  return {found.begin(), found.end()};
}

}  // namespace windlass::runtimes::hotspot
