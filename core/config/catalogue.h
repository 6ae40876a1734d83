#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "core/config/config.h"
#include "core/config/paces.h"
#include "core/config/published_names.h"
#include "core/job/job.h"

namespace stepcast::config {

/// Files of a library that were read, for programs that ask many questions of it
/// (Library::catalogue). Safe for several threads; the files must not change meanwhile.
class Catalogue {
 public:
  /// Value that `read` makes of the file or files called `name`, made once.
  template <class T, class Read>
  std::shared_ptr<const T> once(const std::string& name, const Read& read) {
    {
      const std::lock_guard lock(mutex_);
      const Known<T>& known = std::get<Known<T>>(all_);
      if (const auto at = known.find(name); at != known.end()) {
        return at->second;
      }
    }
    auto made = std::make_shared<const T>(read());
    const std::lock_guard lock(mutex_);
    return std::get<Known<T>>(all_).try_emplace(name, std::move(made)).first->second;
  }

 private:
  template <class T>
  using Known = std::map<std::string, std::shared_ptr<const T>>;

  std::mutex mutex_;
  std::tuple<Known<Workload>, Known<System>, Known<PublishedNames>, Known<EfficiencyTable>,
             Known<FittedModel>, Known<Origins>, Known<std::map<std::string, EfficiencyTable>>>
      all_;
};

/// Same as Catalogue::once; made each time for a library without a catalogue.
template <class T, class Read>
T read_once(const Library& library, const std::string& name, const Read& read) {
  return library.catalogue != nullptr ? *library.catalogue->once<T>(name, read) : read();
}

}  // namespace stepcast::config
