// What truth_passing loads. WHICH: a or b, the end of its functions' names; ROOM: how much they have on the stack.
#define JOINED(name, which) name##_##which
#define NAME(name, which) JOINED(name, which)

extern "C" {

[[gnu::noinline]] unsigned long long NAME(spin, WHICH)(unsigned long long seed) {
  volatile char room[ROOM];
  room[seed % ROOM] = static_cast<char>(seed);
  for (int i = 0; i < 2000; ++i) asm volatile("imul %0, %0\n\txor $123, %0" : "+r"(seed));
  return seed + static_cast<unsigned long long>(room[seed % ROOM]);
}

[[gnu::noinline]] unsigned long long NAME(deeper, WHICH)(long long (*now)(), long long until) {
  volatile char room[2 * ROOM];
  room[0] = 1;
  unsigned long long done = 0;
  while (now() < until) done += NAME(spin, WHICH)(done);
  return done + static_cast<unsigned long long>(room[0]);
}

// Called by what is exported, whose name is the same in both.
[[gnu::noinline]] unsigned long long NAME(work, WHICH)(long long (*now)(), long long until) {
  const unsigned long long done = NAME(deeper, WHICH)(now, until);
  asm volatile("");
  return done;
}

int DllMainCRTStartup(void*, unsigned, void*) { return 1; }

__declspec(dllexport) unsigned long long work(long long (*now)(), long long until) {
  const unsigned long long done = NAME(work, WHICH)(now, until);
  asm volatile("");
  return done;
}

}  // extern "C"
