#include "os/moved_text.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "os/descriptor.h"
#include "os/proc_file.h"

namespace windlass::os {
namespace {

constexpr std::size_t kPage = 4096, kPages = 40;  // more than are compared

// Pages of this program's file, mapped a second time, of which some are moved to anonymous memory.
class MovedText : public testing::Test {
 protected:
  MovedText() : file_(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)) {
    text_ = static_cast<char*>(::mmap(nullptr, kPages * kPage, PROT_READ | PROT_EXEC, MAP_PRIVATE, file_.get(), 0));
  }
  ~MovedText() override { ::munmap(text_, kPages * kPage); }

  // Pages [first, behind); `spoiled`: an offset where another byte is.
  void move(std::size_t first, std::size_t behind, std::size_t spoiled = kPages * kPage) {
    const std::size_t size = (behind - first) * kPage;
    void* to = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(to, MAP_FAILED);
    std::memcpy(to, text_ + first * kPage, size);
    if (spoiled < size) static_cast<char*>(to)[spoiled] ^= 1;
    ASSERT_EQ(::mprotect(to, size, PROT_READ | PROT_EXEC), 0);
    ASSERT_EQ(::mremap(to, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, text_ + first * kPage), text_ + first * kPage);
  }
  // What is at page `page`.
  [[nodiscard]] ProcMap at(std::size_t page) const {
    auto maps = parse_proc_maps(read_proc_file("/proc/self/maps"));
    name_moved_text(::getpid(), 0, maps);
    const auto address = reinterpret_cast<std::uint64_t>(text_) + page * kPage;
    const auto map =
        std::ranges::find_if(maps, [&](const ProcMap& it) { return it.begin <= address && address < it.end; });
    return map != maps.end() ? *map : ProcMap{};
  }

  Descriptor file_;
  char* text_ = nullptr;
};

TEST_F(MovedText, HasItsFileAgain) {
  ASSERT_NE(text_, MAP_FAILED);
  move(3, 30);
  const ProcMap moved = at(3);
  EXPECT_EQ(moved.path, at(0).path);
  EXPECT_EQ(moved.file, at(0).file);
  EXPECT_EQ(moved.offset, 3 * kPage);
  EXPECT_TRUE(moved.executable);
}

TEST_F(MovedText, InPieces) {
  move(3, 30);
  ASSERT_EQ(::mprotect(text_ + 10 * kPage, kPage, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
  for (const std::size_t page : {3u, 10u, 11u}) {
    EXPECT_TRUE(at(page).has_file()) << page;
    EXPECT_EQ(at(page).offset, page * kPage);
  }
}

TEST_F(MovedText, IsNoneWhereOtherBytesAre) {
  for (const std::size_t spoiled : {std::size_t{0}, 27 * kPage - 1}) {
    move(3, 30, spoiled);
    EXPECT_FALSE(at(3).has_file()) << spoiled;
  }
}

TEST_F(MovedText, IsNoneAtAFilesEnd) {
  move(30, kPages);
  EXPECT_FALSE(at(30).has_file()) << "nothing says how far the file was mapped";
}

TEST_F(MovedText, IsNoneBetweenPartsThatDoNotMeet) {
  move(3, 5);
  ASSERT_NE(::mmap(text_ + 5 * kPage, (kPages - 5) * kPage, PROT_READ, MAP_PRIVATE | MAP_FIXED, file_.get(), 0),
            MAP_FAILED);
  EXPECT_FALSE(at(3).has_file());
}

}  // namespace
}  // namespace windlass::os
