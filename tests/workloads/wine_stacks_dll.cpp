// A DLL between two functions of a program.
extern "C" __declspec(dllexport) __attribute__((noinline)) int relay(int depth, int (*callback)(int)) {
  volatile int room[20];
  room[depth] = depth == 0 ? callback(depth) : relay(depth - 1, callback);
  return room[depth] + 1;
}
