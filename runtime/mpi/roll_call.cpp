#include "runtime/mpi/roll_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace stepcast::runtime {
namespace {

constexpr char kAsk = '?', kHere = '!', kEnd = '.';

}  // namespace

RollCall::RollCall(const MpiApi& mpi, MpiHandle communicator, const std::string& host)
    : mpi_(mpi), communicator_(communicator) {
  mpi_.rank(communicator_, &rank_);
  mpi_.size(communicator_, &size_);
  Text own{};
  std::copy_n(host.begin(), std::min(host.size(), own.size() - 1), own.begin());
  std::vector<Text> all(static_cast<std::size_t>(size_));
  mpi_.all_gather(communicator_, own.data(), all.data(), static_cast<int>(own.size()),
                  MpiType::kByte, nullptr);
  for (const Text& name : all) {
    hosts_.emplace_back(name.data());
  }
  inboxes_.resize(rank_ == 0 ? static_cast<std::size_t>(size_) - 1 : 1);
  for (std::size_t i = 0; i < inboxes_.size(); ++i) {
    inboxes_[i].from = rank_ == 0 ? static_cast<int>(i) + 1 : 0;
    open(inboxes_[i]);
  }
}

RollCall::~RollCall() {
  for (Inbox& inbox : inboxes_) {
    send(inbox.from, {kEnd});
  }
  for (Inbox& inbox : inboxes_) {
    mpi_.wait(&inbox.request);
  }
  for (Sent& sent : sent_) {
    mpi_.wait(&sent.request);
  }
  mpi_.free_communicator(communicator_);
}

void RollCall::open(Inbox& inbox) {
  mpi_.receive(communicator_, inbox.text.data(), static_cast<int>(inbox.text.size()),
               MpiType::kByte, inbox.from, 0, &inbox.request);
}

void RollCall::send(int to, const std::string& text) {
  Sent& sent = sent_.emplace_back();
  std::copy_n(text.begin(), std::min(text.size(), sent.text.size() - 1), sent.text.begin());
  mpi_.send(communicator_, sent.text.data(), static_cast<int>(sent.text.size()), MpiType::kByte, to,
            0, &sent.request);
}

std::string RollCall::received(Inbox& inbox) {
  bool done = false;
  if (mpi_.test(&inbox.request, &done) != 0 || !done) {
    return {};
  }
  std::string text(inbox.text.data());
  if (text != std::string(1, kEnd)) {
    open(inbox);
  }
  return text;
}

std::string RollCall::name_of(int rank) const {
  return fmt::format("rank {} on {}", rank, hosts_[static_cast<std::size_t>(rank)]);
}

std::string RollCall::answer(const std::string& here) {
  std::string asked;
  for (Inbox& inbox : inboxes_) {
    const std::string text = received(inbox);
    if (text.empty()) {
      continue;
    }
    if (text[0] == kHere) {
      inbox.answer = text.substr(1);
    } else if (text[0] == kAsk && rank_ == 0) {
      asked = fmt::format("rank {}: {}", inbox.from, text.substr(1));
    } else if (text[0] == kAsk) {
      inbox.answer = text;  // rank 0 is there
      send(0, kHere + here);
    }
  }
  return asked;
}

RollCall::Answer RollCall::call(const std::string& why, const std::string& here) {
  for (Inbox& inbox : inboxes_) {
    inbox.answer.clear();
    send(inbox.from, kAsk + why);
  }
  // Watchdogs look once a second at least. Others than rank 0 wait for it to call.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(rank_ == 0 ? 4 : 10);
  const auto silent = [](const Inbox& inbox) { return inbox.answer.empty(); };
  while (std::chrono::steady_clock::now() < end &&
         std::any_of(inboxes_.begin(), inboxes_.end(), silent)) {
    answer(here);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  constexpr int kShown = 8;
  std::string missing, waiting;
  int number = 0;
  for (const Inbox& inbox : inboxes_) {
    if (silent(inbox)) {
      missing += ++number > kShown ? "" : (number > 1 ? ", " : "") + name_of(inbox.from);
    } else if (inbox.answer != here && waiting.empty() && rank_ == 0) {
      waiting = fmt::format("{} is in {}", name_of(inbox.from), inbox.answer);
    }
  }
  if (number > kShown) {
    missing += fmt::format(" and {} more", number - kShown);
  }
  return {number > 0, number > 0        ? "no word from " + missing
                      : waiting.empty() ? "all ranks answer, and wait for each other"
                                        : "all ranks answer: " + waiting};
}

}  // namespace stepcast::runtime
