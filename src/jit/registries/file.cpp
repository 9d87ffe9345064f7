#include "jit/registries/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

namespace windlass::registries {

class FileRegistrar::Text : public Published {
 public:
  Text(FileRegistrar& registrar, std::string text) : registrar_(registrar), text_(std::move(text)) {
    registrar_.live_[this] = &text_;
  }
  ~Text() override { registrar_.live_.erase(this); }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  FileRegistrar& registrar_;
  std::string text_;
};

Expected<void> FileRegistrar::open() {
  const std::string path = fmt::format("{}{}{}", prefix_, ::getpid(), suffix_);
  // No links: /tmp is everybody's.
  file_ = os::Descriptor(::open(path.c_str(), open_flags() | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file_) return fail(ErrorCode::kSystem, "cannot make the file", 0, static_cast<std::uint64_t>(errno));
  process_ = ::getpid();
  return begin();
}

bool FileRegistrar::is_own() const { return process_ == ::getpid(); }

Expected<void> FileRegistrar::write(std::string_view text) const {
  const std::size_t size = text.size();
  while (!text.empty()) {
    const ssize_t written = ::write(file_.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      take_back(size - text.size());
      return fail(ErrorCode::kSystem, "cannot write the file", 0, static_cast<std::uint64_t>(error));
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

// The last `size` bytes that were written, unless others have written behind them. Half a record would hide all that
// follow it.
void FileRegistrar::take_back(std::size_t size) const {
  if (size == 0) return;
  const off_t end = ::lseek(file_.get(), 0, SEEK_CUR), begin = end - static_cast<off_t>(size);
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0 || status.st_size != end) return;
  if (::ftruncate(file_.get(), begin) == 0) (void)::lseek(file_.get(), begin, SEEK_SET);
}

Expected<void> FileRegistrar::follow_fork() {
  if (is_own()) return {};
  if (const auto ok = open(); !ok) return ok;
  for (const auto& [batch, text] : live_) {
    inherit(*text);
    if (const auto ok = write(*text); !ok) return ok;
  }
  return {};
}

Expected<std::unique_ptr<Published>> FileRegistrar::publish(std::span<const Function> functions, std::span<const Run>) {
  if (const auto ok = follow_fork(); !ok) return Failure(ok.error());
  auto text = text_of(functions);
  if (!text) return Failure(text.error());
  if (const auto ok = write(*text); !ok) return Failure(ok.error());
  return std::make_unique<Text>(*this, std::move(*text));
}

// A child that has not begun its own file is first told where the code was.
Expected<std::unique_ptr<Published>> FileRegistrar::republish(std::unique_ptr<Published> was,
                                                              std::span<const MovedFunction> moves,
                                                              std::span<const Function> functions,
                                                              std::span<const Run>) {
  if (const auto ok = follow_fork(); !ok) return Failure(ok.error());
  const std::string moved = text_of_moves(static_cast<const Text&>(*was).text(), moves);
  auto text = text_of(functions);
  if (!text) return Failure(text.error());
  if (const auto ok = write(moved + *text); !ok) return Failure(ok.error());
  return std::make_unique<Text>(*this, std::move(*text));
}

}  // namespace windlass::registries
