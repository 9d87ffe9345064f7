// Stacks with names through an interpreter: Python's functions are in them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/run_command.h"
#include "support/runtime_program.h"
#include "windlass/stack.h"

namespace windlass {
namespace {

const std::string kScript = WINDLASS_PYTHON_SOURCES "/nested.py";  // NOLINT
const std::vector<std::string> kFunctions = {"innermost", "middle", "outermost"};

// The functions of nested.py that a stack names, innermost first.
std::vector<std::string> python_functions(const NamedStack& stack) {
  std::vector<std::string> functions;
  for (const NamedFrame& frame : stack.frames)
    for (const SourceFrame& call : frame.names.frames)
      if (call.interpreted && call.file.ends_with("nested.py") && call.function != "<module>")
        functions.emplace_back(call.function);
  return functions;
}

TEST(NamedStacks, OfAPythonProcessHaveItsFunctions) {
  const test::RuntimeProgram program({"/usr/bin/python3", kScript}, ".");
  ASSERT_FALSE(program.printed().empty());
  const auto target = open_process(static_cast<std::uint64_t>(program.pid()));
  ASSERT_TRUE(target) << target.error().text();
  const std::vector<NamedStack> stacks = named_stacks(*target);
  ASSERT_EQ(stacks.size(), 1U);
  EXPECT_EQ(stacks[0].end, WalkEnd::kComplete) << stacks[0].error.text();
  EXPECT_EQ(python_functions(stacks[0]), kFunctions) << stacks[0].text();
}

#ifdef WINDLASS_SYMBOLS_LIBRARY
TEST(NamedStacks, OfPythonsOwnProcessHaveItsFunctions) {
  const auto printed = test::run("/usr/bin/python3 " + kScript + " " WINDLASS_SYMBOLS_LIBRARY " 2>&1");
  EXPECT_EQ(printed.status, 0) << printed.output;
  std::size_t at = 0;
  for (const std::string& function : kFunctions) {
    at = printed.output.find(" " + function + " (interpreted) at " + kScript + ":", at);
    ASSERT_NE(at, std::string::npos) << function << " is not in\n" << printed.output;
  }
}
#endif

}  // namespace
}  // namespace windlass
