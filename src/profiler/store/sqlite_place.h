// Where a store's file lies: what its folder allows.
#pragma once

#include <string>

#include "windlass/error.h"

namespace windlass::store {

// SQLite's error of opening `path`, or a better one where the folder or the file's rights explain it.
[[nodiscard]] Error explain_place(const std::string& path, bool write, const Error& error);

// SQLite makes files beside a store to read it. Where that is refused, a store without a log can be read as a file that
// does not change. An error says why it cannot.
[[nodiscard]] Expected<std::string> unchanging_uri(const std::string& path);

}  // namespace windlass::store
