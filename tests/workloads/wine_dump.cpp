// Writes minidumps of another process: wine_dump.exe PROCESS SMALL_DUMP FULL_DUMP.
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <dbghelp.h>  // needs it

#include <cstdio>
#include <cstdlib>

static bool write(HANDLE process, DWORD id, const char* path, MINIDUMP_TYPE type) {
  const HANDLE file = CreateFileA(path, GENERIC_READ | GENERIC_WRITE, 0, nullptr, CREATE_ALWAYS, 0, nullptr);
  const bool done =
      file != INVALID_HANDLE_VALUE && MiniDumpWriteDump(process, id, file, type, nullptr, nullptr, nullptr) != FALSE;
  CloseHandle(file);
  return done;
}

int main(int count, char** arguments) {
  if (count != 4) return 2;
  const DWORD id = std::strtoul(arguments[1], nullptr, 0);
  const HANDLE process = OpenProcess(PROCESS_ALL_ACCESS, FALSE, id);
  if (process == nullptr) return 3;
  if (!write(process, id, arguments[2], MiniDumpNormal)) return 4;
  if (!write(process, id, arguments[3], MiniDumpWithFullMemory)) return 5;
  return 0;
}
