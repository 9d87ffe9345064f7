// Another module of the program, without debug information: it has public symbols only.
namespace shapes {
extern int volatile sink;
__attribute__((noinline)) int bare(int value) {
  sink = value;
  return sink;
}
}  // namespace shapes
extern "C" __attribute__((noinline)) int bare_too(int value) { return shapes::bare(value) + 1; }
