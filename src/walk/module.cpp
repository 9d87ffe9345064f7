#include "walk/module.h"

namespace windlass::walk {

Module::Module(ModuleInfo info, const sources::UnwindSource& source, std::uint64_t bias, image::CodeMachine machine,
               bool generated)
    : info_(std::move(info)), bias_(bias), generated_(generated), source_(&source), machine_(machine) {}

Module::~Module() { delete named_.load(std::memory_order_relaxed); }

// Bit 63, which no id has; a number of the module's; how often anything was taken away.
constexpr unsigned kTakenBits = 40, kChangingBits = 23;

void Module::keep_until_taken_away() {
  static constinit std::atomic<std::uint64_t> last = 0;
  const std::uint64_t number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  if (number >> kChangingBits == 0) changing_ = number;
}

std::uint64_t Module::rows_id_of_changing() const {
  const std::optional<std::uint64_t> taken = source().taken_away();
  if (!taken || *taken >> kTakenBits != 0) return 0;
  return std::uint64_t{1} << 63 | changing_ << kTakenBits | *taken;
}

void Module::set_name(std::string path) const {
  auto named = std::make_unique<ModuleInfo>(info_);
  named->path = std::move(path);
  const ModuleInfo* none = nullptr;
  if (named_.compare_exchange_strong(none, named.get(), std::memory_order_acq_rel)) (void)named.release();
}

const sources::UnwindSource& Module::load() const {
  const std::lock_guard hold(lock_);
  if (loaded_ == nullptr) {
    loaded_ = open();
    source_.store(loaded_.get(), std::memory_order_release);
  }
  return *loaded_;
}

std::unique_ptr<sources::UnwindSource> Module::open() const {
  const auto source_of = [this](ByteView image, image::PeLayout layout) {
    machine_ = image::machine_of(image);
    return sources::make_source(image, layout);
  };
  if (!owned_.empty()) return source_of(ByteView(owned_.data(), owned_.size()), image::PeLayout::kMapped);
  // A path of Windows means nothing here.
  if (info_.windows && info_.file.empty())
    return sources::make_failed_source(
        Error{ErrorCode::kNotFound, "image is neither in a file nor in memory", info_.begin}, true);
  auto file = MappedFile::open(info_.file.empty() ? info_.path : info_.file);
  if (!file) return sources::make_failed_source(file.error(), info_.windows);
  file_ = std::move(*file);
  return source_of(file_.bytes(), image::PeLayout::kFile);
}

Expected<void> Module::row_at(std::uint64_t address, FrameRow& to) const {
  if (const auto found = source().row_at(address - bias_, to); !found) return found;
  to.begin += bias_;
  to.end += bias_;
  return {};
}

Expected<sources::Function> Module::function_at(std::uint64_t address) const {
  const auto function = source().function_at(address - bias_);
  if (!function) return Failure(function.error());
  return sources::moved(*function, bias_);
}

Expected<sources::HandlerCall> Module::unwind(const Memory& memory, std::uint64_t pac_mask, const Registers& frame,
                                              Registers& caller, SavedLocations& saved) const {
  auto handler = source().unwind({memory, frame, bias_, pac_mask}, caller, saved);
  if (handler && handler->handler != 0) handler->handler += bias_, handler->data += bias_;
  return handler;
}

bool Module::read_image(std::uint64_t address, void* to, std::size_t size) const {
  return source().read_image(address - bias_, to, size);
}

std::uint64_t Module::function_start(std::uint64_t address) const {
  const std::uint64_t start = source().function_start(address - bias_);
  return start != 0 ? start + bias_ : 0;
}

sources::EndProof Module::end_proof(CodeAddress pc) const {
  const std::uint64_t address = pc.value() - bias_;
  return sources::end_proof(
      source(), pc.is_return_address() ? CodeAddress::return_address(address) : CodeAddress::instruction(address));
}

std::uint64_t Module::entry_point() const {
  const std::uint64_t entry = source().entry_point();
  const std::uint64_t address = entry + bias_;
  return entry != 0 && address - info_.begin < info_.end - info_.begin ? address : 0;
}

bool Module::row_of_whole_function(std::uint64_t address, const flow::CodeSource& code, FrameRow& row) const {
  const std::lock_guard guard(functions_lock_);
  return functions_.row_at({.code = 0, .address = address}, 0, generated_, code, row);
}

}  // namespace windlass::walk
