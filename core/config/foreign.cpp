#include "core/config/foreign.h"

#include <algorithm>

namespace stepcast::config {

OpenedSource open_source(const Source& source, Expected expected, const Library& library) {
  static const std::vector<ForeignFormat> kNone;
  const std::vector<ForeignFormat>& formats = library.foreign != nullptr ? *library.foreign : kNone;
  const auto first = [&](const auto& told) -> const ForeignFormat* {
    const auto it = std::find_if(formats.begin(), formats.end(), [&](const ForeignFormat& f) {
      const bool wanted = expected == Expected::kPlan ? f.plan_of != nullptr : f.describes_model();
      return wanted && told(f);
    });
    return it == formats.end() ? nullptr : &*it;
  };
  if (const ForeignFormat* format = first([&](const ForeignFormat& f) {
        return f.inferred_by_text != nullptr && f.inferred_by_text(source.text);
      })) {
    Document d;
    d.label = source.label;
    d.folder = source.folder;
    d.root = source.text;
    return {std::move(d), format};
  }
  OpenedSource opened{parse_document(source), nullptr};
  opened.format = first([&](const ForeignFormat& f) {
    return f.inferred_by_keys != nullptr && f.inferred_by_keys(opened.document.root);
  });
  return opened;
}

}  // namespace stepcast::config
