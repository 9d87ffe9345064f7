// A DLL: one function that is exported, one that only its COFF symbols name.
__attribute__((noinline)) int inside(int x) {
  __asm__ volatile("");
  return x + 1;
}
__declspec(dllexport) int exported(int x) { return inside(x) * 2; }
int DllMainCRTStartup(void* a, unsigned b, void* c) { return a != 0 || b != 0 || c != 0; }
