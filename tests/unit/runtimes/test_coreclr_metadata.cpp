// Names of types and methods from a .NET module's metadata, as in the runtime's stack traces, for each kind of type
// that a signature can have (ECMA-335, II.23.2).
#include <gtest/gtest.h>

#include <string>

#include "runtimes/coreclr/metadata.h"
#include "support/fake_metadata.h"

namespace windlass::runtimes::coreclr {
namespace {

using test::FakeMetadata;

std::string bytes_of(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values) bytes += static_cast<char>(value);
  return bytes;
}

std::string type_name(const FakeMetadata& module, std::uint32_t row) {
  const auto memory = module.memory();
  const auto tables = MetadataTables::open(memory, FakeMetadata::kBase, true);
  return tables ? Metadata(*tables).type_name(memory, row) : tables.error().what;
}
std::string method_name(const FakeMetadata& module, std::uint32_t row, std::uint32_t type = 0, bool flat = true) {
  const auto memory = module.memory();
  const auto tables = MetadataTables::open(memory, FakeMetadata::kBase, flat);
  return tables ? Metadata(*tables).method_name(memory, row, type) : tables.error().what;
}

// Types 1 "Space.Outer" and 2 "Inner", and 64 from elsewhere: "Ref1" and so on.
FakeMetadata with_types() {
  FakeMetadata module;
  (void)module.type("Outer", "Space"), (void)module.type("Inner", "");
  for (int i = 1; i <= 64; ++i) (void)module.type_ref("Ref" + std::to_string(i));
  return module;
}

// The name of a method with a signature.
std::string signed_as(std::initializer_list<int> signature) {
  FakeMetadata module = with_types();
  return method_name(module, module.method("M", bytes_of(signature)));
}
// Of one with one parameter, and an Int32 behind it.
std::string with_parameter(const std::string& type) {
  FakeMetadata module = with_types();
  return method_name(module, module.method("M", bytes_of({0x20, 2, 0x01}) + type + '\x08'));
}
std::string with_parameter(std::initializer_list<int> type) { return with_parameter(bytes_of(type)); }
std::string times(std::size_t count, const std::string& text) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) all += text;
  return all;
}

TEST(CoreClrMetadata, PrimitiveTypesHaveTheNamesOfTheirClasses) {
  EXPECT_EQ(signed_as({0, 13, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e}),
            "M(Boolean, Char, SByte, Byte, Int16, UInt16, Int32, UInt32, Int64, UInt64, Single, Double, String)");
  EXPECT_EQ(signed_as({0, 4, 0x01, 0x16, 0x18, 0x19, 0x1c}), "M(TypedReference, IntPtr, UIntPtr, Object)");
  EXPECT_EQ(signed_as({0, 0, 0x01}), "M()");
}

TEST(CoreClrMetadata, TypesOfTypes) {
  EXPECT_EQ(with_parameter({0x0f, 0x03}), "M(Char*, Int32)");
  EXPECT_EQ(with_parameter({0x0f, 0x01}), "M(Void*, Int32)");
  EXPECT_EQ(with_parameter({0x10, 0x08}), "M(Int32&, Int32)");
  EXPECT_EQ(with_parameter({0x1d, 0x0e}), "M(String[], Int32)");
  EXPECT_EQ(with_parameter({0x1d, 0x1d, 0x0e}), "M(String[][], Int32)");
  EXPECT_EQ(with_parameter({0x10, 0x1d, 0x0e}), "M(String[]&, Int32)");
  EXPECT_EQ(with_parameter({0x45, 0x08}), "M(Int32, Int32)") << "pinned";
  EXPECT_EQ(with_parameter({0x41, 0x08}), "M(Int32, Int32)") << "the first of a variable number";
  EXPECT_EQ(with_parameter({0x1f, 0x05, 0x0e}), "M(String, Int32)") << "required: a modifier with a type";
  EXPECT_EQ(with_parameter({0x20, 0x05, 0x10, 0x0e}), "M(String&, Int32)") << "optional";
  EXPECT_EQ(with_parameter({0x1b, 0x00, 0x02, 0x01, 0x08, 0x0e}), "M(, Int32)") << "a function pointer has no name";
}

TEST(CoreClrMetadata, ClassesAreNamedWithoutTheirNamespaces) {
  EXPECT_EQ(with_parameter({0x12, 1 << 2}), "M(Outer, Int32)");
  EXPECT_EQ(with_parameter({0x11, 2 << 2}), "M(Inner, Int32)");
  EXPECT_EQ(with_parameter({0x12, 3 << 2 | 1}), "M(Ref3, Int32)");
  EXPECT_EQ(with_parameter({0x12, 0x80, 40 << 2 | 1}), "M(Ref40, Int32)") << "a number of two bytes";
  EXPECT_EQ(with_parameter({0x12, 0x81, 0x01}), "M(Ref64, Int32)");
  EXPECT_EQ(with_parameter({0x12, 0xc0, 0x00, 0x00, 2 << 2 | 1}), "M(Ref2, Int32)") << "of four";
  EXPECT_EQ(with_parameter({0x12, 0xc0, 0x00, 0x01, 0x01}), "M(Ref64, Int32)");
  EXPECT_EQ(with_parameter({0x12, 0xc1, 0x00, 0x00, 2 << 2 | 1}), "M(, Int32)") << "there are not so many";
  EXPECT_EQ(with_parameter({0x12, 1 << 2 | 2}), "M(, Int32)") << "a TypeSpec has no name";
}

TEST(CoreClrMetadata, InstancesOfGenericClassesAreNamedWithoutTheirArguments) {
  EXPECT_EQ(with_parameter({0x15, 0x12, 2 << 2 | 1, 1, 0x0e}), "M(Ref2, Int32)");
  EXPECT_EQ(with_parameter({0x15, 0x11, 2 << 2 | 1, 2, 0x0e, 0x1d, 0x08}), "M(Ref2, Int32)");
  const std::string list = bytes_of({0x15, 0x12, 2 << 2 | 1});
  EXPECT_EQ(with_parameter(list + '\x40' + std::string(64, '\x08')), "M(Ref2, Int32)");
  EXPECT_EQ(with_parameter(list + '\x41' + std::string(65, '\x08')), "M") << "more than can be";
}

TEST(CoreClrMetadata, ArraysHaveTheirRank) {
  EXPECT_EQ(with_parameter({0x14, 0x08, 1, 0, 0}), "M(Int32[*], Int32)");
  EXPECT_EQ(with_parameter({0x14, 0x08, 2, 0, 0}), "M(Int32[,], Int32)");
  // Sizes 2 and 0x4000, lower bounds 0, 1 and 2.
  EXPECT_EQ(with_parameter({0x14, 0x0e, 3, 2, 2, 0xc0, 0x00, 0x40, 0x00, 3, 0, 1, 2}), "M(String[,,], Int32)");
  EXPECT_EQ(with_parameter({0x14, 0x08, 32, 0, 0}), "M(Int32[" + std::string(31, ',') + "], Int32)")
      << "as many as the runtime loads";
  EXPECT_EQ(with_parameter({0x14, 0x08, 0, 0, 0}), "M");
  EXPECT_EQ(with_parameter({0x14, 0x08, 33, 0, 0}), "M");
  const std::string array = bytes_of({0x14, 0x08, 2});
  const std::string most = ' ' + std::string(32, '\0'), more = '!' + std::string(33, '\0'), none(1, '\0');
  EXPECT_EQ(with_parameter(array + most + most), "M(Int32[,], Int32)");
  EXPECT_EQ(with_parameter(array + more + none), "M") << "more sizes than it can have";
  EXPECT_EQ(with_parameter(array + none + more), "M") << "more lower bounds";
}

TEST(CoreClrMetadata, ReturnTypesAreNotNamed) {
  EXPECT_EQ(signed_as({0x20, 1, 0x15, 0x12, 5, 1, 0x0e, 0x08}), "M(Int32)");
  EXPECT_EQ(signed_as({0x20, 1, 0x10, 0x1d, 0x08, 0x0e}), "M(String)");
}

TEST(CoreClrMetadata, ParametersOfTypesAndOfMethodsHaveTheirNames) {
  FakeMetadata module = with_types();
  (void)module.method("First", bytes_of({0x20, 2, 0x01, 0x13, 0, 0x13, 1}));
  // Generic, of two.
  (void)module.method("Second", bytes_of({0x30, 2, 4, 0x01, 0x1e, 0, 0x1e, 1, 0x13, 1, 0x1e, 2}));
  (void)module.method("Third", bytes_of({0x30, 1, 1, 0x01, 0x1d, 0x1e, 0}));
  module.generic(2 * 1, 0, "T"), module.generic(2 * 1, 1, "U");
  module.generic(2 * 2 + 1, 0, "A"), module.generic(2 * 2 + 1, 1, "B");
  module.generic(2 * 3, 0, "N");
  module.generic(2 * 3 + 1, 0, "C");
  EXPECT_EQ(method_name(module, 1, 1), "First(T, U)");
  EXPECT_EQ(method_name(module, 2, 1), "Second[A,B](A, B, U, ?)");
  EXPECT_EQ(method_name(module, 3, 1), "Third[C](C[])");
  EXPECT_EQ(method_name(module, 1, 0), "First(?, ?)") << "nobody knows whose it is";
  EXPECT_EQ(method_name(module, 1, 2), "First(?, ?)") << "of a type that is not generic";
}

TEST(CoreClrMetadata, SixtyFourParametersOfAMethodAreRead) {
  FakeMetadata module = with_types();
  (void)module.method("M", bytes_of({0x30, 65, 2, 0x01, 0x1e, 63, 0x1e, 64}));
  module.generic(2 * 1, 0, "T");
  std::string names;
  for (std::uint32_t i = 0; i <= 64; ++i) {
    const std::string name = "G" + std::to_string(i);
    module.generic(2 * 1 + 1, i, name);
    if (i < 64) names.append(i == 0 ? "" : ",").append(name);
  }
  EXPECT_EQ(method_name(module, 1), "M[" + names + "](G63, ?)");
}

// A kind of type that has another one in it, so many times around an Int32.
TEST(CoreClrMetadata, TypesAreReadSixteenDeep) {
  struct Kind {
    std::string before, behind;
    std::string name, suffix;  // of the outermost; of each
  };
  const std::string int32(1, '\x08');
  for (const Kind& kind : {Kind{bytes_of({0x0f}), "", "Int32", "*"},
                           {bytes_of({0x10}), "", "Int32", "&"},
                           {bytes_of({0x1d}), "", "Int32", "[]"},
                           {bytes_of({0x1f, 0x05}), "", "Int32", ""},
                           {bytes_of({0x45}), "", "Int32", ""},
                           {bytes_of({0x14}), bytes_of({1, 0, 0}), "Int32", "[*]"},
                           {bytes_of({0x15, 0x12, 2 << 2 | 1, 1}), "", "Ref2", ""},
                           {bytes_of({0x1b, 0, 0}), "", "", ""}}) {
    EXPECT_EQ(with_parameter(times(15, kind.before) + int32 + times(15, kind.behind)),
              "M(" + kind.name + times(15, kind.suffix) + ", Int32)");
    EXPECT_EQ(with_parameter(times(16, kind.before) + int32 + times(16, kind.behind)), "M")
        << static_cast<int>(kind.before[0]);
    for (const std::size_t depth : {15U, 16U}) {
      FakeMetadata module = with_types();
      std::string signature = bytes_of({0x20, 1});
      signature.append(times(depth, kind.before)).append(int32).append(times(depth, kind.behind)).append(int32);
      EXPECT_EQ(method_name(module, module.method("M", signature)), depth == 15 ? "M(Int32)" : "M");
    }
  }
}

TEST(CoreClrMetadata, ParametersHaveABoundedText) {
  for (const std::size_t length : {1023U, 1024U}) {
    FakeMetadata module = with_types();
    const std::uint32_t ref = module.type_ref(std::string(length, 'x'));  // the 65th
    const std::string signature = bytes_of({0x20, 1, 0x01, 0x12, 0x81, static_cast<int>((ref << 2 | 1) & 0xff)});
    EXPECT_EQ(method_name(module, module.method("M", signature)),
              length == 1023 ? "M(" + std::string(length, 'x') + ")" : "M");
  }
}

TEST(CoreClrMetadata, SignaturesThatEndTooEarlyNameNoParameters) {
  const std::string whole = bytes_of({0x30, 1,    9,    0x01, 0x15, 0x12,        5,    1,    0x0e, 0x14, 0x08, 2,    1,
                                      5,    1,    0,    0x1f, 0x05, 0x0e,        0x1b, 0x00, 1,    0x01, 0x08, 0x1e, 0,
                                      0x10, 0x45, 0x08, 0x12, 0x80, 40 << 2 | 1, 0x1d, 0x0f, 0x02, 0x18, 0x1c});
  FakeMetadata module = with_types();
  EXPECT_EQ(method_name(module, module.method("M", whole)),
            "M(Ref1, Int32[,], String, , ?, Int32&, Ref40, Boolean*[], IntPtr)");
  for (std::size_t size = 0; size + 1 < whole.size(); ++size)
    EXPECT_EQ(method_name(module, module.method("M", whole.substr(0, size))), "M") << size;
}

TEST(CoreClrMetadata, TypesThatEndTooEarlyNameNoParameters) {
  for (const std::string& type :
       {bytes_of({0x14, 0x08, 2, 2, 5, 6, 2, 7, 8}), bytes_of({0x15, 0x12, 2 << 2 | 1, 2, 0x08, 0x0e}),
        bytes_of({0x1b, 0x10, 1, 2, 0x01, 0x08, 0x0e}), bytes_of({0x12, 0xc0, 0x00, 0x00, 5}),
        bytes_of({0x13, 0x80, 0}), bytes_of({0x1e, 1}), bytes_of({0x1f, 5, 0x0e}), bytes_of({0x0f, 0x08}),
        bytes_of({0x45, 0x08})}) {
    for (std::size_t size = 0; size <= type.size(); ++size) {
      FakeMetadata module = with_types();
      const std::string name =
          method_name(module, module.method("M", bytes_of({0x20, 1, 0x01}) + type.substr(0, size)));
      EXPECT_EQ(name == "M", size < type.size()) << name << " " << size;
    }
  }
}

// What a read that fails leaves out is in no name, and nothing else takes its place.
TEST(CoreClrMetadata, NamesThatCannotBeReadAreLeftOut) {
  struct Failing final : Memory {
    explicit Failing(const FakeMetadata& of) : memory(of.memory()) {}
    bool read(std::uint64_t address, void* to, std::size_t size) const override {
      return reads++ != fails && memory.read(address, to, size);
    }
    test::BlockMemory memory;
    mutable std::size_t reads = 0;
    std::size_t fails = SIZE_MAX;
  };
  FakeMetadata module = with_types();
  (void)module.type("Third", "Space"), (void)module.type("Fourth", "");
  module.nested(4, 3);
  (void)module.method("Other", bytes_of({0x20, 1, 0x01, 0x12, 1 << 2}));
  (void)module.method("M", bytes_of({0x30, 1, 1, 0x01, 0x1e, 0}));
  module.generic(2 * 2 + 1, 0, "T");
  Failing memory(module);
  const auto metadata = Metadata(MetadataTables::open(memory, FakeMetadata::kBase, true).value());
  const auto names = [&](std::size_t fails) {
    memory.reads = 0, memory.fails = fails;
    return metadata.type_name(memory, 4) + " " + metadata.method_name(memory, 2, 0);
  };
  EXPECT_EQ(names(SIZE_MAX), "Space.Third.Fourth M[T](T)");
  const std::size_t reads = memory.reads;
  for (std::size_t i = 0; i < reads; ++i) EXPECT_EQ(names(i).find("Outer"), std::string::npos) << names(i);
}

TEST(CoreClrMetadata, WhatIsNoTypeNamesNoParameters) {
  EXPECT_EQ(with_parameter({0x1b, 0x00, 0x00, 0x00}), "M") << "what a function pointer returns";
  for (const int element : {0x00, 0x17, 0x1a, 0x21, 0x40, 0x55, 0xff}) EXPECT_EQ(with_parameter({element}), "M");
  std::string deep = bytes_of({0x00, 1, 0x01}) + std::string(1000, '\x1d') + '\x08';
  FakeMetadata module = with_types();
  EXPECT_EQ(method_name(module, module.method("M", deep)), "M");
}

TEST(CoreClrMetadata, NestedTypesAreNamedFromTheOutside) {
  FakeMetadata module = with_types();
  (void)module.type("Deep", ""), (void)module.type("Lone", "");
  module.nested(2, 1), module.nested(3, 2);
  EXPECT_EQ(type_name(module, 1), "Space.Outer");
  EXPECT_EQ(type_name(module, 2), "Space.Outer.Inner");
  EXPECT_EQ(type_name(module, 3), "Space.Outer.Inner.Deep");
  EXPECT_EQ(type_name(module, 4), "Lone");
  EXPECT_EQ(type_name(module, 5), "");
  EXPECT_EQ(type_name(module, 0), "");
  EXPECT_EQ(method_name(module, 1), "") << "there is none";
  FakeMetadata deep;
  std::string name;
  for (std::uint32_t i = 1; i <= 18; ++i) (void)deep.type("T" + std::to_string(i), "Of" + std::to_string(i));
  for (std::uint32_t i = 1; i < 18; ++i) deep.nested(i, i + 1);
  for (std::uint32_t i = 17; i >= 1; --i) name += ".T" + std::to_string(i);
  EXPECT_EQ(type_name(deep, 1), "Of17" + name) << "sixteen around it";
  FakeMetadata circle = with_types();
  circle.nested(1, 2), circle.nested(2, 1);
  EXPECT_LT(type_name(circle, 1).size(), 200U) << "it ends";
}

// Columns are as wide as what they count needs.
TEST(CoreClrMetadata, TablesAreFoundInEachOfTheirForms) {
  for (const FakeMetadata::Options& options :
       {FakeMetadata::Options{.wide_heaps = true}, {.mapped = true}, {.pe32 = true}, {.extra_data = true}}) {
    FakeMetadata module(options);
    const std::uint32_t type = module.type("Type", "Space"), ref = module.type_ref("Ref");
    const std::uint32_t method = module.method("M", bytes_of({0x20, 1, 0x01, 0x12, static_cast<int>(ref << 2 | 1)}));
    EXPECT_EQ(method_name(module, method, type, !options.mapped), "M(Ref)");
  }
  for (const std::size_t more : {0U, 1U}) {
    FakeMetadata params, references;
    for (FakeMetadata* module : {&params, &references}) {
      (void)module->type("Type", "Space");
      (void)module->method("First", bytes_of({0x20, 0, 0x01}));
      (void)module->method("Second", bytes_of({0x20, 1, 0x01, 0x12, 1 << 2}));
    }
    for (std::size_t i = 0; i < 0xffff + more; ++i) (void)params.param("");
    for (std::size_t i = 0; i < 0x3fff + more; ++i) (void)references.type_ref("");
    EXPECT_EQ(method_name(params, 2), "Second(Type)") << more;
    EXPECT_EQ(method_name(references, 2), "Second(Type)") << more;
    EXPECT_EQ(type_name(references, 1), "Space.Type") << more;
  }
}

}  // namespace
}  // namespace windlass::runtimes::coreclr
