// libstdc++ is linked in, and the library throws nothing: where libstdc++ would, for want of memory, the program ends.
// These stand in for libsupc++/eh_alloc.cc, which allocates a store for exceptions when a process starts: here that
// would be a second one in each.
#include <cstddef>
#include <cstdlib>

extern "C" {
void* __cxa_allocate_exception(std::size_t) noexcept { std::abort(); }
void __cxa_free_exception(void*) noexcept { std::abort(); }
void* __cxa_allocate_dependent_exception() noexcept { std::abort(); }
void __cxa_free_dependent_exception(void*) noexcept { std::abort(); }
}
