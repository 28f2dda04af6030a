#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>

namespace palpate::server {

/// Bounds how fast somebody can try tokens: after kMaxWrong wrong ones from an address within kWindow, all from there are refused until the
/// window is over. Remembers a bounded number of addresses; the one whose window began first is forgotten. Thread-safe.
class GuessLimiter {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kMaxWrong = 10;
  static constexpr std::chrono::seconds kWindow{60};
  static constexpr size_t kMaxAddresses = 1024;

  bool MayGuess(const std::string& address, Clock::time_point now = Clock::now());
  void OnWrong(const std::string& address, Clock::time_point now = Clock::now());

 private:
  struct Window {
    Clock::time_point begin;
    int wrong = 0;
  };
  std::mutex mutex_;
  std::map<std::string, Window> windows_;
};

}  // namespace palpate::server
