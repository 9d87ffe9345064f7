#include "runtimes/hotspot/debug_info.h"

#include <algorithm>
#include <cstring>

#include "runtimes/hotspot/names.h"

namespace windlass::runtimes::hotspot {
namespace {

// PcDesc: the same from JDK 9 to 25.
struct Place {
  std::int32_t pc_offset, scope, objects, flags;
};

template <typename T>
void copy(const Memory& memory, std::uint64_t begin, std::uint64_t end, std::vector<T>& to) {
  if (begin == 0 || end <= begin) return;
  to.resize((end - begin) / sizeof(T));
  if (!memory.read(begin, to.data(), to.size() * sizeof(T))) to.clear();
}

}  // namespace

DebugInfo DebugInfo::read(const Memory& memory, const Blob::Debug& from, bool null_free) {
  DebugInfo info;
  info.null_free_ = null_free;
  copy(memory, from.pcs, from.pcs_end, info.pcs_);
  copy(memory, from.scopes, from.scopes_end, info.scopes_);
  copy(memory, from.metadata, from.metadata_end, info.metadata_);
  return info;
}

void DebugInfo::scopes_at(std::uint32_t offset, std::vector<Scope>& to) const {
  const std::size_t count = pcs_.size() / sizeof(Place);
  const auto place = [&](std::size_t i) {
    Place read;
    std::memcpy(&read, &pcs_[i * sizeof read], sizeof read);
    return read;
  };
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
  auto at = static_cast<std::uint32_t>(place(low).scope);
  for (unsigned i = 0; i < kMostScopes && at != 0 && at < scopes_.size(); ++i) {
    Compressed stream(ByteView(scopes_.data() + at, scopes_.size() - at), null_free_);
    const auto sender = stream.next(), method = stream.next(), bci = stream.next();
    if (!bci || *method == 0 || *method > metadata_.size()) return;
    to.push_back({metadata_[*method - 1], static_cast<std::int32_t>(*bci) - 1});
    at = *sender;
  }
}

}  // namespace windlass::runtimes::hotspot
