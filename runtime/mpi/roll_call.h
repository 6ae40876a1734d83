#pragma once
#include <array>
#include <deque>
#include <string>
#include <vector>

#include "runtime/mpi/api.h"

namespace stepcast::runtime {

/// Finds out who is silent when an exchange does not end: rank 0 asks all ranks, whose watchdogs
/// answer with what they wait for; another rank asks rank 0 to do so. Made by all ranks together,
/// afterwards used by the watchdog's thread alone. Nothing is sent while nobody asks.
class RollCall {
 public:
  /// `communicator` is its own. `host`: the name of this rank's machine.
  RollCall(const MpiApi& mpi, MpiHandle communicator, const std::string& host);
  /// All ranks together, after the watchdog has ended.
  ~RollCall();
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;

  /// Answers whoever asks, often. `here`: what this rank waits for. Returns why a rank asked this
  /// one, rank 0, to call all; else nothing.
  std::string answer(const std::string& here);
  /// Whether a rank does not answer; the words for who, or for what those wait for who do.
  struct Answer {
    bool silent = false;
    std::string text;
  };
  /// Asks, because of `why`.
  Answer call(const std::string& why, const std::string& here);

 private:
  using Text = std::array<char, 200>;
  struct Inbox {
    int from = 0;
    Text text{};
    MpiHandle request = nullptr;
    std::string answer;  ///< empty: none yet
  };
  struct Sent {
    Text text{};
    MpiHandle request = nullptr;
  };
  void open(Inbox& inbox);
  void send(int to, const std::string& text);
  /// Text that has come in; empty: none.
  std::string received(Inbox& inbox);
  [[nodiscard]] std::string name_of(int rank) const;

  const MpiApi& mpi_;
  MpiHandle communicator_;
  int rank_ = 0, size_ = 1;
  std::vector<std::string> hosts_;  ///< by rank
  std::vector<Inbox> inboxes_;      ///< rank 0: of all others; others: of rank 0
  std::deque<Sent> sent_;
};

}  // namespace stepcast::runtime
