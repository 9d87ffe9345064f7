// What truth_mapped maps. WHICH: a or b, the end of its functions' names; ROOM: how much they have on the stack.
// Without relocations, so that its code runs wherever it is mapped.
#define JOINED(name, which) name##_##which
#define NAME(name, which) JOINED(name, which)
#define OWN __attribute__((noinline, visibility("hidden")))

OWN unsigned long long NAME(spin, WHICH)(unsigned long long seed) {
  volatile char room[ROOM];
  room[seed % ROOM] = (char)seed;
  for (int i = 0; i < 2000; ++i) seed = seed * 3 + (unsigned long long)room[seed % ROOM];
  return seed;
}

OWN unsigned long long NAME(deeper, WHICH)(long long (*now)(void), long long until) {
  volatile char room[2 * ROOM];
  room[0] = 1;
  unsigned long long done = 0;
  while (now() < until) done += NAME(spin, WHICH)(done);
  return done + (unsigned long long)room[0];
}

OWN unsigned long long NAME(work, WHICH)(long long (*now)(void), long long until) {
  const unsigned long long done = NAME(deeper, WHICH)(now, until);
  __asm__ volatile("");
  return done;
}

// Named the same in both.
__attribute__((visibility("default"))) unsigned long long work(long long (*now)(void), long long until) {
  const unsigned long long done = NAME(work, WHICH)(now, until);
  __asm__ volatile("");
  return done;
}
