/* A shared library that is shipped stripped: .dynsym names the exported functions and nothing between them. */
static __attribute__((noinline)) int hidden_function(int x) {
  __asm__ volatile("nop;nop;nop;nop");
  return x + 40;
}
__attribute__((noinline)) int exported_first(int x) {
  __asm__ volatile("nop");
  return hidden_function(x) + 1;
}
int exported_second(int x);
int abs_of_other(int x); /* in no library: called through a linkage stub */
int exported_second(int x) { return exported_first(x) + abs_of_other(x); }
