// In place of http_by_libcurl.cpp: windlass-static opens no library.
#include "profiler/transport/http_parts.h"

namespace windlass::transport {

std::unique_ptr<Libcurl> open_libcurl() { return nullptr; }

}  // namespace windlass::transport
