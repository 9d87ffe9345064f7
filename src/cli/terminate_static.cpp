// libstdc++ names the type of an exception that nobody took, for which it has a demangler of its own: 45 KB of a static
// program. This function stands in for that one.
#include <unistd.h>

#include <cstdlib>
#include <string_view>

// NOLINTBEGIN(bugprone-reserved-identifier): the name is libstdc++'s
namespace __gnu_cxx {

void __verbose_terminate_handler();
void __verbose_terminate_handler() {
  constexpr std::string_view kText =
      "windlass: ended by an exception that nothing took. Way out: report this, with the command line\n";
  (void)!write(STDERR_FILENO, kText.data(), kText.size());
  std::abort();
}

}  // namespace __gnu_cxx
// NOLINTEND(bugprone-reserved-identifier)
