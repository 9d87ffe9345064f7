#include <windows.h>

#include <cstring>

#include "base/system_reason.h"

void windlass::system_reason(std::uint64_t number, char* to, std::size_t size) {
  DWORD length = FormatMessageA(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, nullptr,
                                static_cast<DWORD>(number), 0, to, static_cast<DWORD>(size), nullptr);
  while (length != 0 && std::strchr("\r\n .", to[length - 1]) != nullptr) --length;  // it is the end of our sentence
  to[length] = 0;
}
