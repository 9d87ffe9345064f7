// Names as Microsoft's compilers decorate them.
#pragma once

#include <string>
#include <string_view>

namespace windlass::symbols {

// The qualified name of a function, without parameters: "ns::f" for "?f@ns@@YAXH@Z". Names with templates, operators,
// unnamed or local scopes, or repeated parts are returned as they are: PDB procedures have readable names, and few
// functions have only such a symbol.
[[nodiscard]] std::string undecorate(std::string_view name);

}  // namespace windlass::symbols
