// Processes, live and dead, as address spaces with threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "windlass/walk.h"

namespace windlass {

struct Thread {
  std::uint64_t id = 0;
  std::string name;
  Registers registers;
  bool faulted = false;  // the one that crashed
};

struct Target {
  AddressSpace space;
  std::vector<Thread> threads;
  std::string command;
  std::vector<Error> problems;  // what could not be read of it
};

}  // namespace windlass
