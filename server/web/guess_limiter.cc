#include "server/web/guess_limiter.h"

#include <algorithm>

namespace palpate::server {

bool GuessLimiter::MayGuess(const std::string& address, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto found = windows_.find(address);
  return found == windows_.end() || found->second.wrong < kMaxWrong || now - found->second.begin >= kWindow;
}

void GuessLimiter::OnWrong(const std::string& address, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (windows_.size() >= kMaxAddresses && windows_.find(address) == windows_.end()) {
    windows_.erase(
        std::min_element(windows_.begin(), windows_.end(), [](const auto& a, const auto& b) { return a.second.begin < b.second.begin; }));
  }
  Window& window = windows_[address];
  if (window.wrong == 0 || now - window.begin >= kWindow) window = {now, 0};
  ++window.wrong;
}

}  // namespace palpate::server
