// The one function of bcryptprimitives.dll that programs of Go ask for. Wine 8 has no such DLL.
#include <windows.h>

extern "C" {
BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG size);  // RtlGenRandom

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) {
  return SystemFunction036(data, static_cast<ULONG>(size));
}
}
