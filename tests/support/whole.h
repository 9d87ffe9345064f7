// Ordinary runs look at a part of what is large. docs/reference/test-runs.md has the list.
#pragma once

#include <cstddef>
#include <cstdlib>

namespace windlass::test {

// With WINDLASS_WHOLE=1 in the environment all of it is taken.
inline bool whole() { return std::getenv("WINDLASS_WHOLE") != nullptr; }

// Of a large number of things, every so-manieth in an ordinary run.
inline std::size_t stride(std::size_t ordinary) { return whole() ? 1 : ordinary; }

}  // namespace windlass::test
