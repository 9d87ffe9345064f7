// `windlass completion bash`: a shell's completion, made of what the parser knows.
#pragma once

namespace CLI {
class App;
}

namespace windlass::cli {

// To be called when the other subcommands are registered.
void register_completion(CLI::App& app);

}  // namespace windlass::cli
