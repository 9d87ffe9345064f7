// Structs of the C interface, which say their own size.
#pragma once

namespace windlass::test {

template <typename T>
T sized() {
  T made{};
  made.size = sizeof made;
  return made;
}

}  // namespace windlass::test
