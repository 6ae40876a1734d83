#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace stepcast::runtime {

/// A shared library that was loaded at run time; it stays loaded as long as the process.
///
///   const LoadedModule cuda(folder / "libstepcast_cuda.so");
///   auto* entry = cuda.function<Entry>("stepcast_cuda_module");
class LoadedModule {
 public:
  /// Errors: EnvironmentError with the reason when the file is not there or cannot be loaded.
  explicit LoadedModule(const std::filesystem::path& file);
  /// A library by its name alone, as the loader finds it: next to this program or in the system.
  /// Errors: EnvironmentError with the loader's reason and `remedy`.
  LoadedModule(std::string name, std::string_view remedy);
  /// Errors: EnvironmentError when the library has no such function.
  template <class Function>
  [[nodiscard]] Function* function(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  [[nodiscard]] void* symbol(const char* name) const;
  std::string name_;
  void* handle_ = nullptr;
};

}  // namespace stepcast::runtime
