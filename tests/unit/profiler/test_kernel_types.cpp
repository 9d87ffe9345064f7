// The small copy of the kernel's type information, against libbpf's own writer and reader.
#include "profiler/doctor/kernel_types.h"

#include <bpf/btf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

namespace windlass::profiler {
namespace {

struct FreeBtf {
  void operator()(btf* types) const { btf__free(types); }
};
using Btf = std::unique_ptr<btf, FreeBtf>;

std::vector<std::byte> bytes_of(const btf* types) {
  __u32 size = 0;
  const auto* raw = static_cast<const std::byte*>(btf__raw_data(types, &size));
  return {raw, raw + size};
}

Btf parse(const std::vector<std::byte>& bytes) { return Btf(btf__new(bytes.data(), static_cast<__u32>(bytes.size()))); }

// struct inner { int a; }; typedef struct inner inner_t;
// struct task { const inner_t in; struct other* next; int list[3]; struct { int bit : 1; } ; enum kind kind; };
// struct other { int unwanted; };  void hooked(struct task*);
Btf kernel() {
  Btf types(btf__new_empty());
  btf* t = types.get();
  const int number = btf__add_int(t, "int", 4, BTF_INT_SIGNED);
  btf__add_struct(t, "other", 4);
  btf__add_field(t, "unwanted", number, 0, 0);
  const int inner = btf__add_struct(t, "inner", 4);
  btf__add_field(t, "a", number, 0, 0);
  const int constant = btf__add_const(t, btf__add_typedef(t, "inner_t", inner));
  const int pointer = btf__add_ptr(t, btf__find_by_name(t, "other"));
  const int list = btf__add_array(t, number, number, 3);
  const int anonymous = btf__add_struct(t, nullptr, 4);
  btf__add_field(t, "bit", number, 5, 1);
  const int kind = btf__add_enum(t, "kind", 4);
  btf__add_enum_value(t, "FIRST", 1);
  const int task = btf__add_struct(t, "task", 40);
  btf__add_field(t, "in", constant, 0, 0);
  btf__add_field(t, "next", pointer, 64, 0);
  btf__add_field(t, "list", list, 128, 0);
  btf__add_field(t, nullptr, anonymous, 224, 0);
  btf__add_field(t, "kind", kind, 256, 0);
  const int prototype = btf__add_func_proto(t, 0);
  btf__add_func_param(t, "task", btf__add_ptr(t, task));
  btf__add_func(t, "hooked", BTF_FUNC_STATIC, prototype);
  return types;
}

const btf_type* find(const Btf& types, const char* name, __u32 kind) {
  const int number = btf__find_by_name_kind(types.get(), name, kind);
  return number > 0 ? btf__type_by_id(types.get(), static_cast<__u32>(number)) : nullptr;
}

TEST(KernelTypes, AFunctionHasTheNumberThatLibbpfFinds) {
  const Btf whole = kernel();
  const KernelTypes types(bytes_of(whole.get()));
  EXPECT_EQ(types.function("hooked"),
            static_cast<std::uint32_t>(btf__find_by_name_kind(whole.get(), "hooked", BTF_KIND_FUNC)));
  EXPECT_EQ(types.function("task"), 0u);
  EXPECT_EQ(types.function("absent"), 0u);
}

TEST(KernelTypes, ACopyHasAStructWithAllThatLiesInIt) {
  const Btf whole = kernel();
  const auto copy = KernelTypes(bytes_of(whole.get())).only({"task", "absent"});
  ASSERT_TRUE(copy);
  const Btf some = parse(*copy);
  ASSERT_NE(some, nullptr);
  const btf_type* task = find(some, "task", BTF_KIND_STRUCT);
  ASSERT_NE(task, nullptr);
  EXPECT_EQ(task->size, 40u);
  ASSERT_EQ(btf_vlen(task), 5);
  const auto member = [&](__u32 i) { return btf_members(task)[i]; };
  const auto name = [&](__u32 offset) { return std::string(btf__name_by_offset(some.get(), offset)); };
  EXPECT_EQ(name(member(0).name_off), "in");
  const auto in = btf__resolve_type(some.get(), member(0).type);
  EXPECT_EQ(name(btf__type_by_id(some.get(), static_cast<__u32>(in))->name_off), "inner");
  EXPECT_EQ(member(1).offset, 64u);
  EXPECT_EQ(btf__type_by_id(some.get(), member(1).type)->type, 0u) << "a pointer leads nowhere";
  EXPECT_EQ(btf__resolve_size(some.get(), member(2).type), 12);
  const btf_type* anonymous = btf__type_by_id(some.get(), member(3).type);
  EXPECT_EQ(btf_member_bitfield_size(anonymous, 0), 1u);
  EXPECT_EQ(btf_member_bit_offset(anonymous, 0), 5u);
  EXPECT_EQ(btf__resolve_size(some.get(), member(4).type), 4);
  EXPECT_EQ(find(some, "other", BTF_KIND_STRUCT), nullptr);
  EXPECT_EQ(find(some, "hooked", BTF_KIND_FUNC), nullptr);
}

// The information of the running kernel, where there is some: each field is where the whole says.
TEST(KernelTypes, ACopyOfTheRunningKernelsAgreesWithTheWhole) {
  const auto types = KernelTypes::read();
  if (!types) GTEST_SKIP() << "no " << kKernelTypes;
  const auto copy = types->only({"task_struct", "pid"});
  ASSERT_TRUE(copy);
  EXPECT_LT(copy->size(), types->bytes().size() / 20);
  const Btf some = parse(*copy);
  const Btf whole(btf__parse(kKernelTypes, nullptr));
  ASSERT_NE(some, nullptr);
  ASSERT_NE(whole, nullptr);
  for (const char* name : {"task_struct", "pid"}) {
    const btf_type* a = find(some, name, BTF_KIND_STRUCT);
    const btf_type* b = find(whole, name, BTF_KIND_STRUCT);
    ASSERT_TRUE(a != nullptr && b != nullptr) << name;
    EXPECT_EQ(a->size, b->size);
    ASSERT_EQ(btf_vlen(a), btf_vlen(b));
    for (__u32 i = 0; i < btf_vlen(a); ++i) {
      EXPECT_STREQ(btf__name_by_offset(some.get(), btf_members(a)[i].name_off),
                   btf__name_by_offset(whole.get(), btf_members(b)[i].name_off));
      EXPECT_EQ(btf_members(a)[i].offset, btf_members(b)[i].offset);
      EXPECT_EQ(btf__resolve_size(some.get(), btf_members(a)[i].type),
                btf__resolve_size(whole.get(), btf_members(b)[i].type));
    }
  }
}

TEST(KernelTypes, MalformedInformationIsRefused) {
  const Btf whole = kernel();
  const std::vector<std::byte> good = bytes_of(whole.get());
  for (std::size_t size = 0; size < good.size(); ++size) {
    const KernelTypes cut(std::vector<std::byte>(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)));
    EXPECT_FALSE(cut.only({"task"})) << size;
    EXPECT_EQ(cut.function("hooked"), 0u) << size;
  }
  // Any byte may be anything: no crash, and no type that lies outside.
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::vector<std::byte> bad = good;
    bad[at] = std::byte{0xff};
    const KernelTypes types(bad);
    (void)types.function("hooked");
    if (const auto copy = types.only({"task"})) (void)parse(*copy);
  }
}

}  // namespace
}  // namespace windlass::profiler
