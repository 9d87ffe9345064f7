// What every command says of an error, on stderr.
#pragma once

#include <string>
#include <string_view>

#include "windlass/error.h"

namespace windlass::cli {

// "0x40: program headers reach past the end of the file (0xd)". A place of 0 says nothing and is left out; so is the
// system's reason where the text is that reason.
[[nodiscard]] std::string text_of(const Error& error);
// "windlass: FILE: " and the text. `way_out`: a sentence without its end.
void say_error(std::string_view subject, const Error& error, std::string_view way_out = {});

// Of output that is not written; `error` is an errno.
void say_unwritten(std::string_view output, int error);

}  // namespace windlass::cli
