#include "core/config/foreign.h"

#include <algorithm>

namespace stepcast::config {
namespace {

/// Infinity and NaN, which Python writes and JSON lacks, as null.
std::string without_infinities(std::string_view text) {
  std::string out;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t taken = quoted && text[i] == '\\' ? 2 : 1;
    std::string_view written = text.substr(i, taken);
    quoted = quoted != (text[i] == '"');
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (!quoted && text.substr(i).starts_with(word)) {
        taken = word.size();
        written = "null";
      }
    }
    out += written;
    i += taken;
  }
  return out;
}

}  // namespace

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
  const auto by_keys = [&](Document document) {
    const ForeignFormat* format = first([&](const ForeignFormat& f) {
      return f.inferred_by_keys != nullptr && f.inferred_by_keys(document.root);
    });
    return OpenedSource{std::move(document), format};
  };
  try {
    return by_keys(parse_document(source));
  } catch (const InputError&) {  // not JSON; another tool's file may be as Python writes it
    Source python = source;
    python.text = without_infinities(source.text);
    if (formats.empty() || python.text == source.text) {
      throw;
    }
    OpenedSource opened = by_keys(parse_document(python));
    if (opened.format == nullptr) {
      throw;
    }
    return opened;
  }
}

}  // namespace stepcast::config
