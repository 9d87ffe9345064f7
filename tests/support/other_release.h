// Programs of another release of Debian or Ubuntu, which run in a root of their own.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "support/run_command.h"

namespace windlass::test {

// A root with packages ("NAME=SHA256" or "NAME", separated by spaces) of a release that debootstrap knows. Empty: it is
// there; else why not.
inline std::string fetch_release_packages(const std::string& root, const std::string& release,
                                          const std::string& packages) {
  const auto done = run(fmt::format("test -f {0}/.done || sh {1} {2} {0} {3} 2>&1", root,
                                    WINDLASS_FETCH_RELEASE_PACKAGES, release, packages));
  constexpr int kOutOfReach = 1;
  EXPECT_TRUE(done.status == 0 || done.status == kOutOfReach) << done.output;
  return done.status == 0 ? "" : "no packages of another release: " + done.output;
}

// A program on this machine that becomes one of the root. It sees /proc, and `folder` at its own place.
inline std::string make_launcher(const std::string& root, const std::string& folder, const std::string& program,
                                 const std::string& launcher) {
  std::filesystem::create_directories(root + folder);
  std::filesystem::create_directories(std::filesystem::path(launcher).parent_path());
  std::ofstream(launcher) << fmt::format(
      "#!/bin/sh\nexec unshare --mount sh -c 'mount --bind /proc {0}/proc && mount --bind {1} {0}{1} && exec chroot "
      "{0} "
      "{2} \"$@\"' sh \"$@\"\n",
      root, folder, program);
  ::chmod(launcher.c_str(), 0755);
  return launcher;
}

}  // namespace windlass::test
