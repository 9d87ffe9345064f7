// Known code for the symboliser's tests: labels mark addresses whose function, inlining and line are plain to see here.
#define MARK(name) asm volatile(".globl " #name "\n" #name ": nop")

namespace outer {

static inline __attribute__((always_inline)) int innermost(int x) {
  MARK(wl_mark_inlined);  // line 7
  return x * 3;
}
inline __attribute__((always_inline)) int middle(int x) {
  return innermost(x) + 1;  // line 11
}

struct Box {
  __attribute__((noinline)) int work(int x);
};
int Box::work(int x) {
  asm volatile("");
  return middle(x) ^ 7;  // line 19
}

}  // namespace outer

// A local class: GCC nests its code in the function around it.
__attribute__((noinline)) int around(int x) {
  struct Local {
    __attribute__((noinline)) static int inside(int y) {
      MARK(wl_mark_local);  // line 28
      return y + 1;
    }
  };
  asm volatile("");
  return Local::inside(x) + 2;
}

extern "C" __attribute__((noinline)) int plain_c(int x) {
  MARK(wl_mark_plain);  // line 37
  return x - 1;
}

// asm_code.S
extern "C" void asm_with_size();

int main(int argc, char**) {
  outer::Box box;
  if (argc > 100) asm_with_size();
  return (box.work(argc) + around(argc) + plain_c(argc)) == 12345;
}
