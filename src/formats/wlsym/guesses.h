// What a line is likely to be, by the lines before. Writer and reader make the same guesses: a file has the
// differences.
#pragma once

#include <cstdint>
#include <unordered_map>

namespace windlass::wlsym {

// Of one block. An inlined function is there many times, with nearly the same lines each time. Each member returns the
// value that was last seen in the same place, at first 0, for the caller to renew.
class Guesses {
 public:
  // The line of the call, from the line where the caller begins.
  std::int64_t& call(std::uint32_t caller, std::uint32_t function) { return values_[{kCall | caller, function}]; }
  // The line of the first range of a scope.
  std::int64_t& first(std::uint32_t function) { return values_[{kFirst, function}]; }
  // The change from a line to that of the next range of a scope.
  std::int64_t& step(std::uint32_t function, std::int64_t line) {
    return values_[{kStep | function, static_cast<std::uint64_t>(line)}];
  }

 private:
  static constexpr std::uint64_t kCall = std::uint64_t{1} << 32, kFirst = std::uint64_t{2} << 32,
                                 kStep = std::uint64_t{3} << 32;
  struct Key {
    std::uint64_t of, more;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      const std::uint64_t mixed = (key.of * 0x9e3779b97f4a7c15 ^ key.more) * 0xc2b2ae3d27d4eb4f;
      return mixed ^ mixed >> 32;
    }
  };
  std::unordered_map<Key, std::int64_t, Hash> values_;
};

// How a range says its scope. 0: no name. kNextScope: the next one behind all that ranges had so far. From kCaller on:
// how many calls out from the scope of the range before. From kOther on, zigzag: how far from the next one.
inline constexpr std::uint64_t kNextScope = 1, kCaller = 2, kOther = 34;
// How a scope says its caller. 0: none. From kOwnCaller on: how many calls out from the scope before. From kOtherCaller
// on: how far before this scope.
inline constexpr std::uint64_t kOwnCaller = 1, kOtherCaller = 33;

// `from` + how many calls `scope` is out from `at`; `behind` if there are more than fit. A Scope has a `parent`, below
// its own index; the outermost has an index that no scope has.
template <typename Scopes>
std::uint64_t calls_out(const Scopes& scopes, std::uint64_t at, std::uint64_t scope, std::uint64_t from,
                        std::uint64_t behind) {
  for (; at < scopes.size() && from < behind; ++from, at = scopes[at].parent)
    if (at == scope) return from;
  return behind;
}
// The scope that is `calls` out from `at`; an index that no scope has if there is none.
template <typename Scopes>
std::uint64_t scope_out(const Scopes& scopes, std::uint64_t at, std::uint64_t calls) {
  for (; calls != 0 && at < scopes.size(); --calls) at = scopes[at].parent;
  return at;
}

}  // namespace windlass::wlsym
