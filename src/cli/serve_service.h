// Who may ask `windlass serve`, and what is where on its site.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cli/http_server.h"
#include "cli/serve_api.h"
#include "profiler/export/page_assets.h"

namespace windlass::cli {

struct ServeAccess {
  std::string token{};        // empty: none is needed
  std::uint16_t port = 0;     // part of the cookie's name, since cookies do not tell ports apart
  bool is_encrypted = false;  // by TLS
  bool certificates = false;  // clients have shown one
};

// With certificates: all clients, for whom the channel answers. Else without a token: programs of the user of this
// process, of root, and of the user who ran sudo; and only by a name of this machine. A page of another site may
// resolve its own name to 127.0.0.1, and would then ask by that name. With a token: whoever has that, as
// "Authorization: Bearer TOKEN" or in the cookie that "/?token=TOKEN" sets. The page itself is anybody's: its data are
// not in it.
class ServeService {
 public:
  ServeService(ServedStore store, ServeAccess access);

  [[nodiscard]] HttpReply reply(const HttpRequest& request) const;
  [[nodiscard]] static std::string worked_out(const WorkedOut& answer, std::string_view type);

 private:
  [[nodiscard]] HttpReply route(const HttpRequest& request) const;
  [[nodiscard]] HttpReply page(const HttpRequest& request) const;
  [[nodiscard]] HttpReply api(const HttpRequest& request, std::string_view kind) const;
  [[nodiscard]] bool has_token(const HttpRequest& request) const;

  ServedStore store_;
  ServeAccess access_;
  std::string cookie_;
  std::shared_ptr<const std::string> html_, page_script_, store_script_;
};

// In a time that does not tell how much of it is right.
[[nodiscard]] bool is_token(std::string_view given, std::string_view token);
// At least 16 letters, digits, - and _: these stand in an address and in a cookie as they are.
[[nodiscard]] bool is_good_token(std::string_view token);

}  // namespace windlass::cli
