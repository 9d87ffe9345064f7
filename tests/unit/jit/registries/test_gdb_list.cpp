// The list of objects that debuggers read, and what they are told of it: GDB's manual, "JIT Compilation Interface".
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>
#include <string>
#include <vector>

#include "formats/image/elf.h"
#include "windlass/backtrace.h"
#include "windlass/jit/registration.h"

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): the names that debuggers look for
struct jit_code_entry {
  jit_code_entry* next_entry;
  jit_code_entry* prev_entry;
  const char* symfile_addr;
  std::uint64_t symfile_size;
};
struct jit_descriptor {
  std::uint32_t version;
  std::uint32_t action_flag;
  jit_code_entry* relevant_entry;
  jit_code_entry* first_entry;
};
extern jit_descriptor __jit_debug_descriptor;
void __jit_debug_register_code();
}

namespace {

std::string name_of(const jit_code_entry& entry) {
  const windlass::ByteView bytes(reinterpret_cast<const std::byte*>(entry.symfile_addr), entry.symfile_size);
  const auto image = windlass::image::ElfImage::parse(bytes);
  const windlass::image::Section* names = image ? image->section(".strtab") : nullptr;
  return names != nullptr ? std::string(bytes.string_at(names->offset + 1).value_or("?")) : "?";
}

// "c b a"; a link back that is wrong is an error.
std::string listed() {
  std::string text;
  const jit_code_entry* before = nullptr;
  for (const jit_code_entry* at = __jit_debug_descriptor.first_entry; at != nullptr; at = at->next_entry) {
    EXPECT_EQ(at->prev_entry, before);
    text += (text.empty() ? "" : " ") + name_of(*at);
    before = at;
  }
  return text;
}

// What a debugger sees where it has its breakpoint: "1 b: b a".
std::vector<std::string> told;

}  // namespace

// Instead of the library's.
extern "C" void __jit_debug_register_code() {
  const jit_code_entry* entry = __jit_debug_descriptor.relevant_entry;
  told.push_back(std::to_string(__jit_debug_descriptor.action_flag) + ' ' +
                 (entry != nullptr ? name_of(*entry) : "nobody") + ": " + listed());
}
// NOLINTEND(bugprone-reserved-identifier)

namespace windlass {
namespace {

class GdbList : public testing::Test {
 protected:
  std::unique_ptr<Registrar> registrar = open_registrar(Registry::kGdb, {}).value();
  Prologue prologue{.architecture = kOwnArchitecture, .code_size = 32};
  // Code that nobody runs.
  static constexpr std::size_t kRoom = 0x10000;
  void* room = mmap(nullptr, kRoom, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::uint64_t address = reinterpret_cast<std::uint64_t>(room);

  void SetUp() override { ASSERT_NE(room, MAP_FAILED); }
  void TearDown() override { munmap(room, kRoom); }
  RegistrationId add(Registrar& to, std::string_view name) {
    const std::vector<GeneratedFunction> functions = {
        {.address = address += 0x100, .size = 32, .name = name, .prologue = &prologue}};
    return to.add(functions).value();
  }
  static std::string last() { return told.empty() ? "nothing" : told.back(); }
};

TEST_F(GdbList, TheNewestIsTheFirstAndEachCanBeTakenAway) {
  const RegistrationId a = add(*registrar, "a");
  EXPECT_EQ(last(), "1 a: a");
  const RegistrationId b = add(*registrar, "b");
  EXPECT_EQ(last(), "1 b: b a");
  const RegistrationId c = add(*registrar, "c"), d = add(*registrar, "d");
  EXPECT_EQ(last(), "1 d: d c b a");
  EXPECT_EQ(__jit_debug_descriptor.version, 1U);
  EXPECT_EQ(__jit_debug_descriptor.action_flag, 0U) << "nothing is being done";
  EXPECT_EQ(__jit_debug_descriptor.relevant_entry, nullptr);

  ASSERT_TRUE(registrar->remove(b));
  EXPECT_EQ(last(), "2 b: d c a") << "from the middle";
  EXPECT_EQ(__jit_debug_descriptor.action_flag, 0U);
  EXPECT_EQ(__jit_debug_descriptor.relevant_entry, nullptr);
  ASSERT_TRUE(registrar->remove(a));
  EXPECT_EQ(last(), "2 a: d c") << "the last";
  ASSERT_TRUE(registrar->remove(d));
  EXPECT_EQ(last(), "2 d: c") << "the first";
  ASSERT_TRUE(registrar->remove(c));
  EXPECT_EQ(last(), "2 c: ");
  EXPECT_EQ(__jit_debug_descriptor.first_entry, nullptr);
}

TEST_F(GdbList, AllRegistrarsShareItAndTakeTheirOwnAway) {
  auto other = open_registrar(Registry::kGdb, {}).value();
  (void)add(*registrar, "a"), (void)add(*other, "b"), (void)add(*registrar, "c"), (void)add(*other, "d");
  EXPECT_EQ(listed(), "d c b a");
  registrar.reset();
  EXPECT_EQ(listed(), "d b");
  other.reset();
  EXPECT_EQ(listed(), "");
}

}  // namespace
}  // namespace windlass
