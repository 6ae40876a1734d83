#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace stepcast::traces {

/// Index of an interned text; equal texts have equal ids within one recording.
using NameId = std::uint32_t;
constexpr NameId kNoName = UINT32_MAX;

/// Every distinct text of a recording, once. A trace of millions of events has thousands of names;
/// work per name (is this a launch? a GEMM?) belongs in a table indexed by NameId. Views stay valid
/// as long as the table lives, also when it is moved.
class Names {
 public:
  Names() = default;
  Names(Names&&) = default;
  Names& operator=(Names&&) = default;

  NameId intern(std::string_view text);
  /// The empty text for kNoName.
  [[nodiscard]] std::string_view view(NameId id) const {
    return id == kNoName ? std::string_view{} : texts_[id];
  }
  /// kNoName where the text was never interned.
  [[nodiscard]] NameId find(std::string_view text) const;
  [[nodiscard]] std::size_t size() const { return texts_.size(); }
  /// Bytes of text held.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  [[nodiscard]] std::size_t slot_of(std::string_view text, std::uint64_t hash) const;
  void grow();
  std::string_view store(std::string_view text);

  std::vector<std::string_view> texts_;
  std::vector<std::uint64_t> hashes_;
  std::vector<NameId> slots_;  ///< open addressing; a power of two, at most half full
  std::vector<std::unique_ptr<char[]>> blocks_;
  std::size_t room_ = 0;  ///< bytes left in the last block
  char* next_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace stepcast::traces
