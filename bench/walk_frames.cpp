#include "walk_frames.h"

#include <array>
#include <utility>

namespace walk_frames {
namespace {

using Function = void (*)(Chain&);
extern const std::array<Function, kFunctions> kTable;

Function next_of(const Chain& chain) { return kTable[chain.first + chain.left * 7 % chain.distinct]; }

template <unsigned N>
[[gnu::noinline]] void frame(Chain& chain) {
  volatile unsigned pad[4 + N % 13 * 2];  // frames of different sizes, code that is not folded
  pad[0] = N;
  if (--chain.left == 0)
    chain.leaf(chain.context);
  else
    next_of(chain)(chain);
  pad[1] = pad[0];
}

template <std::size_t... N>
constexpr std::array<Function, sizeof...(N)> make_table(std::index_sequence<N...>) {
  return {&frame<N>...};
}

const std::array<Function, kFunctions> kTable = make_table(std::make_index_sequence<kFunctions>());

}  // namespace

void run(Chain& chain) { next_of(chain)(chain); }

}  // namespace walk_frames
