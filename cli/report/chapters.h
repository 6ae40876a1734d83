#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>

namespace stepcast::cli::report {

/// One input of a report: what a command printed with --format json.
struct Document {
  std::string label;  ///< the file
  nlohmann::ordered_json json;
};

/// The pictures of one document as HTML, chosen by what the document is. Errors: InputError naming
/// the file and the missing or wrong value when nobody knows the document or it is not whole.
std::string chapter_of(const Document& document);

/// The documents in the order given, those that compare well first in one picture: predictions side
/// by side.
std::string chapters_of(std::span<const Document> documents);

/// A title for them: the job of the first, where it has one, else which command printed it.
std::string title_of(std::span<const Document> documents);

/// Kinds of documents: "predict, sweep, ...", for messages.
std::string known_documents();

}  // namespace stepcast::cli::report
