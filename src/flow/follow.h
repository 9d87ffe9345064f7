// The one loop over instructions. Its policy consists of three callables: the effect of an instruction, the paths to
// take, and the end of a path. The caller bounds the number of instructions.
#pragma once

#include <cstdint>

namespace windlass::flow {

// How following goes on.
enum class Go : std::uint8_t {
  kOn,       // with the next instruction of this way
  kNextWay,  // this way has ended
  kEnd,      // the policy has what it looks for
};

// What ended it.
enum class Ended : std::uint8_t { kByPolicy, kByLastWay, kByBudget };

// `arrive()` is asked in front of an instruction. `step()` executes that and goes where control goes. `next_way()` goes
// to where another way begins; false: there is none. `budget`: instructions, of all ways together; what is left of it.
template <typename Arrive, typename Step, typename NextWay>
Ended follow(std::uint32_t& budget, Arrive&& arrive, Step&& step, NextWay&& next_way) {
  do {
    Go go = arrive();
    while (go == Go::kOn) {
      if (budget == 0) return Ended::kByBudget;
      --budget;
      go = step();
      if (go == Go::kOn) go = arrive();
    }
    if (go == Go::kEnd) return Ended::kByPolicy;
  } while (next_way());
  return Ended::kByLastWay;
}

}  // namespace windlass::flow
