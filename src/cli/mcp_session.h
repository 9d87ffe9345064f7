// A session of the Model Context Protocol, revisions 2025-11-25 and 2025-06-18: JSON-RPC 2.0, a message a line.
// modelcontextprotocol.io/specification
#pragma once

#include <string>
#include <vector>

#include "cli/mcp_input.h"
#include "cli/mcp_tools.h"

namespace windlass::cli {

// Answers one client. Not thread-safe.
class McpSession {
 public:
  // Reads from `in`, and writes to `out` nothing but messages of the protocol.
  McpSession(int in, int out, McpContext context);

  // Until the client closes an end. The number of the error of writing, or 0.
  [[nodiscard]] int run();

 private:
  void handle(const McpLine& line);
  void handle_request(const std::string& method, const Json& id, const Json& params);
  void initialize(const Json& id, const Json& params);
  void call_tool(const Json& id, const Json& params);
  // Reads lines while a tool works, and looks through them. Says whether the tool has to stop.
  bool look_ahead();
  // Answers pings that wait, and drops requests that are cancelled.
  void look_through();
  void cancel(const Json& id);

  void send(const Json& message);
  void answer(const Json& id, Json result);
  void refuse(const Json& id, int code, const std::string& text);

  McpInput input_;
  int out_;
  int error_ = 0;
  bool closed_ = false;
  bool initialized_ = false;
  Json running_;  // the id of the request that a tool works on, or null
  bool cancelled_ = false;
  std::size_t looked_ = 0;  // lines that wait and were looked through
  McpContext context_;
  std::vector<McpTool> tools_;
};

}  // namespace windlass::cli
