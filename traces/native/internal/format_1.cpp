#include "traces/native/internal/format_1.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/graph/op_codes.h"
#include "traces/native/graph_json.h"

namespace stepcast::traces::internal {
namespace {

using nlohmann::json;

class Converter {
 public:
  explicit Converter(const std::string& file) : file_(file) {}

  json graph(const json& manifest) const {
    const json& mesh = list(manifest, "mesh", "");
    if (mesh.size() != 4) {
      fail("mesh", "expected four degrees");
    }
    json g = {{"laws", json::array()}, {"orders", json::array()}, {"draws", json::array()}};
    const std::array axes{"tensor", "context", "pipeline", "data"};
    for (std::size_t a = 0; a < axes.size(); ++a) {
      g["mesh"][axes[a]] = mesh[a];
    }
    g["communicators"] = json::array();
    for (const json& c : list(manifest, "communicators", "")) {
      json& to = g["communicators"].emplace_back(c);
      if (!to.is_object() || !to.contains("axes")) {
        fail("communicators", "has no axes");
      }
      for (json& axis : to["axes"]) {
        const bool known = axis.is_number_unsigned() && axis.get<std::uint64_t>() < axes.size();
        if (!known) {
          fail("communicators", axis.dump() + " is no mesh axis");
        }
        axis = axes[axis.get<std::size_t>()];
      }
    }
    g["programs"] = json::array();
    for (const json& p : list(manifest, "programs", "")) {
      g["programs"].push_back(program(p, fmt::format("programs[{}]", g["programs"].size())));
    }
    g["classes"] = list(manifest, "classes", "");
    return g;
  }

 private:
  [[noreturn]] void fail(const std::string& path, const std::string& what) const {
    throw InputError(file_ + ": " + path, what);
  }
  const json& list(const json& j, const char* key, const std::string& path) const {
    if (!j.is_object() || !j.contains(key)) {
      fail(path + key, "is missing; is this a stepcast trace, whole?");
    }
    if (!j[key].is_array()) {
      fail(path + key, "expected a list");
    }
    return j[key];
  }

  /// Codes among the variant and the sizes become attributes.
  void decode(json& row, const std::string& at) const {
    constexpr std::size_t kKind = 0, kVariant = 4, kShape = 10;
    json& variant = row[kVariant];
    json& shape = row[kShape];
    Op op;
    OpCodes codes;
    const bool sizes = shape.is_array() && shape.size() == codes.sizes.size() &&
                       std::all_of(shape.begin(), shape.end(),
                                   [](const json& n) { return n.is_number_integer(); });
    const auto kind = row[kKind].is_string()
                          ? op_kind_named(row[kKind].get_ref<const std::string&>())
                          : std::nullopt;
    if (!sizes || !kind || !variant.is_number_unsigned() || variant.get<std::uint64_t>() > 255) {
      fail(at, "expected the name of an op kind, six sizes and a variant below 256");
    }
    op.kind = *kind;
    codes.variant = variant.get<std::uint8_t>();
    codes.sizes = shape.get<std::array<std::int64_t, 6>>();
    try {
      set_codes(op, codes);
    } catch (const InputError& error) {
      fail(at, error.what());
    }
    variant = attributes_to_json(op.attributes);
    shape = op.shape;
  }

  json program(const json& p, const std::string& path) const {
    json ops = {{"columns",
                 {"kind", "phase", "format", "flags", "attributes", "stream", "communicator",
                  "peer", "record", "name", "shape", "flops", "bytes_read", "bytes_written",
                  "first_wait", "waits"}},
                {"rows", json::array()}};
    json waits = json::array();
    for (const json& op : list(p, "ops", path + ".")) {
      constexpr std::size_t kColumns = 15;
      const std::string at = fmt::format("{}.ops[{}]", path, ops["rows"].size());
      if (!op.is_array() || op.size() != kColumns || !op.back().is_array()) {
        fail(at, "expected the 15 columns of an op");
      }
      json row = op;
      decode(row, at);
      row.back() = waits.size();
      row.push_back(op.back().size());
      waits.insert(waits.end(), op.back().begin(), op.back().end());
      ops["rows"].push_back(std::move(row));
    }
    json to = p;
    to["ops"] = std::move(ops);
    to["waits"] = std::move(waits);
    to["segments"] = {{"columns", {"name", "first_op", "op_count"}},
                      {"rows", list(p, "segments", path + ".")}};
    to["calls"] = {{"columns", {"segment", "microbatch"}}, {"rows", list(p, "calls", path + ".")}};
    return to;
  }

  const std::string& file_;
};

}  // namespace

json graph_of_format_1(const json& manifest, const std::string& file) {
  return Converter(file).graph(manifest);
}

}  // namespace stepcast::traces::internal
