#include "core/device_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

namespace stepcast {
namespace {

/// The most common form of a chip comes first.
constexpr std::array kDevices{
    DeviceName{"h100-sxm-80gb", "dgx-h100"},
    DeviceName{"h100-sxm-96gb", ""},
    DeviceName{"h200-sxm-141gb", "dgx-h200"},
    DeviceName{"h200-nvl-141gb", "h200-nvl-4"},
    DeviceName{"b200-sxm", "dgx-b200"},
    DeviceName{"gb200", "gb200-nvl72"},
    DeviceName{"a100-sxm-80gb", "dgx-a100-80gb"},
    DeviceName{"a100-sxm-40gb", "dgx-a100-40gb"},
    DeviceName{"a100-pcie-40gb", ""},
    DeviceName{"l40s", "l40s-8"},
    DeviceName{"b300-sxm", "dgx-b300"},
    DeviceName{"gb300", "gb300-nvl72"},
    DeviceName{"h20", "h20-8"},
    DeviceName{"h800-sxm", "h800-8"},
    DeviceName{"a800-sxm", "a800-8"},
    DeviceName{"gh200", "gh200-4"},
    DeviceName{"l4", "l4-8"},
    DeviceName{"a10", "a10-8"},
    DeviceName{"a6000", "a6000-8"},
    DeviceName{"rtx-4090", "rtx-4090-8"},
    DeviceName{"rtx-pro-6000", "rtx-pro-6000-8"},
    DeviceName{"mi300x", "mi300x-8"},
    DeviceName{"mi325x", "mi325x-8"},
    DeviceName{"mi355x", "mi355x-8"},
    DeviceName{"mi350x", "mi350x-8"},
    DeviceName{"tpu-v5p", "tpu-v5p-pod"},
    DeviceName{"tpu-trillium", "tpu-trillium-pod"},
    DeviceName{"tpu-v7", "tpu-v7-pod"},
    DeviceName{"trn2", "trn2-16"},
    DeviceName{"v100-sxm2-32gb", "dgx-v100-32gb"},
    DeviceName{"v100-sxm2-16gb", ""},
    DeviceName{"v100-sxm3-32gb", "dgx2h-v100"},
    DeviceName{"v100-pcie-32gb", ""},
    DeviceName{"p100", ""},
    DeviceName{"p4", ""},
    DeviceName{"t4", ""},
};
/// Names of machines that say their device, and other names of devices.
constexpr std::array<std::pair<std::string_view, DeviceName>, 10> kMachines{{
    {"p5", {"h100-sxm-80gb", "p5-h100"}},
    {"trillium", {"tpu-trillium", "tpu-trillium-pod"}},
    {"v6e", {"tpu-trillium", "tpu-trillium-pod"}},
    {"ironwood", {"tpu-v7", "tpu-v7-pod"}},
    {"tpu7x", {"tpu-v7", "tpu-v7-pod"}},
    {"v7x", {"tpu-v7", "tpu-v7-pod"}},
    {"trainium2", {"trn2", "trn2-16"}},
    {"trainium 2", {"trn2", "trn2-16"}},
    {"trn2u", {"trn2", "trn2-ultraserver"}},
    {"local-cpu-core", {"local-cpu-core", "local-cpu"}},
}};

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Parts of a name.
struct Said {
  std::vector<std::string> words;
  std::string form, memory;
};

/// "sxm" for the generations of one socket; V100s differ in theirs.
std::string form_of(const std::string& word, bool keep_generation) {
  if (word.starts_with("sxm") && word.size() <= 4) {
    return keep_generation ? word : "sxm";
  }
  return word == "pcie" || word == "nvl" ? word : std::string();
}

bool is_memory(const std::string& word) {
  return word.size() > 2 && word.ends_with("gb") &&
         std::all_of(word.begin(), word.end() - 2, is_digit);
}

Said said_by(std::string_view written) {
  Said said;
  std::string word;
  const auto end_word = [&] {
    // "80 GB" is "80gb"; "4xV100" counts V100s.
    if (word == "gb" && !said.words.empty() &&
        std::all_of(said.words.back().begin(), said.words.back().end(), is_digit)) {
      said.words.back() += word;
    } else if (!word.empty()) {
      const std::size_t x = word.find('x');
      const bool counted = x != std::string::npos && x > 0 && x + 1 < word.size() &&
                           std::all_of(word.begin(), word.begin() + static_cast<long>(x), is_digit);
      said.words.push_back(counted ? word.substr(x + 1) : word);
    }
    word.clear();
  };
  for (const char c : written) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else {
      end_word();
    }
  }
  end_word();
  const bool keep = std::find(said.words.begin(), said.words.end(), "v100") != said.words.end();
  for (const std::string& w : said.words) {
    if (const std::string form = form_of(w, keep); !form.empty()) {
      said.form = form;
    }
    if (is_memory(w)) {
      said.memory = w;
    }
  }
  return said;
}

/// True if what was written contradicts nothing that the zoo's name says.
bool agrees(const Said& written, const Said& zoo) {
  const auto same = [](const std::string& a, const std::string& b) {
    return a.empty() || b.empty() || a == b || (b.starts_with(a) && a == "sxm");
  };
  const auto says = [&written](const std::string& word) {
    return std::find(written.words.begin(), written.words.end(), word) != written.words.end();
  };
  return std::all_of(zoo.words.begin(), zoo.words.end(),
                     [&](const std::string& word) {
                       return word == zoo.memory || !form_of(word, true).empty() || says(word);
                     }) &&
         same(written.form, zoo.form) && same(written.memory, zoo.memory);
}

}  // namespace

std::optional<DeviceName> device_named(std::string_view written) {
  const Said said = said_by(written);
  for (const auto& [machine, device] : kMachines) {
    const Said name = said_by(machine);
    if (std::search(said.words.begin(), said.words.end(), name.words.begin(), name.words.end()) !=
        said.words.end()) {
      return device;
    }
  }
  for (const DeviceName& d : kDevices) {
    if (agrees(said, said_by(d.device))) {
      return d;
    }
  }
  return std::nullopt;
}

}  // namespace stepcast
