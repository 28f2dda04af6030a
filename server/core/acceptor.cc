#include "server/core/acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>  // has tcpi_bytes_received, which that of the C library lacks
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/core/log.h"

namespace palpate::server {
namespace {

constexpr int kBacklog = 512;
constexpr int kMaxClosing = 32;  // shut down, but not closed by their owner yet: they still hold a descriptor
constexpr auto kSweepInterval = std::chrono::milliseconds(1000);
constexpr auto kPauseWhenExhausted = std::chrono::milliseconds(50);
constexpr auto kLogInterval = std::chrono::seconds(10);

int OpenSpare() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

std::string PeerOf(const sockaddr_storage& storage) {
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
    if ((ntohl(address.sin_addr.s_addr) >> 24) == 127) return "";
    inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
    return text;
  }
  if (storage.ss_family != AF_INET6) return "";
  const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
  if (IN6_IS_ADDR_LOOPBACK(&address.sin6_addr)) return "";
  if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr) && address.sin6_addr.s6_addr[12] == 127) return "";
  // A network hands whole /64s to one subscriber.
  in6_addr network = address.sin6_addr;
  if (!IN6_IS_ADDR_V4MAPPED(&network)) std::fill(network.s6_addr + 8, network.s6_addr + 16, 0);
  inet_ntop(AF_INET6, &network, text, sizeof(text));
  return text;
}

/// The inode of a socket, which tells it from a later one of the same number.
std::optional<ino_t> InodeOf(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode)) return std::nullopt;
  return status.st_ino;
}

struct Received {
  uint64_t bytes = 0;
  std::chrono::milliseconds silence{0};
};
std::optional<Received> ReceivedOf(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  return Received{info.tcpi_bytes_received, std::chrono::milliseconds(info.tcpi_last_data_recv)};
}

absl::StatusOr<int> ListenOn(const addrinfo& address, int port) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::UnavailableError(std::strerror(errno));
  const int one = 1;
  const int zero = 0;
  // Not SO_REUSEPORT: two servers on one port would share its clients silently.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));  // connections inherit it
  if (address.ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
  sockaddr_storage storage{};
  std::memcpy(&storage, address.ai_addr, address.ai_addrlen);
  if (address.ai_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(static_cast<uint16_t>(port));
  }
  if (bind(fd, reinterpret_cast<const sockaddr*>(&storage), address.ai_addrlen) != 0 || listen(fd, kBacklog) != 0) {
    const std::string why = std::strerror(errno);
    close(fd);
    return absl::UnavailableError(why);
  }
  return fd;
}

int PortOf(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return 0;
  return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(storage).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(storage).sin_port);
}

}  // namespace

uint64_t RaiseDescriptorLimit(uint64_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur >= wanted) return limit.rlim_cur;
  rlimit raised = limit;
  raised.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(const Address& address, const Options& options) {
  std::unique_ptr<Acceptor> acceptor(new Acceptor(options));
  acceptor->wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  acceptor->spare_fd_ = OpenSpare();
  if (acceptor->wake_fd_ < 0 || acceptor->spare_fd_ < 0) return absl::UnavailableError("no descriptor is left to listen with");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(address.host.c_str(), "0", &hints, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat(address.host, ": ", gai_strerror(error)));
  }
  acceptor->port_ = address.port;
  absl::Status last = absl::UnavailableError("the name stands for no address");
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (one->ai_family != AF_INET && one->ai_family != AF_INET6) continue;
    const absl::StatusOr<int> fd = ListenOn(*one, acceptor->port_);
    if (!fd.ok()) {
      last = fd.status();
      // A taken port is an error even where another address of the name is free: its clients would reach either.
      if (address.port != 0 && last.message() == std::strerror(EADDRINUSE)) {
        freeaddrinfo(found);
        return last;
      }
      continue;
    }
    acceptor->listeners_.push_back(*fd);
    if (acceptor->port_ == 0) acceptor->port_ = PortOf(*fd);
  }
  freeaddrinfo(found);
  if (acceptor->listeners_.empty()) return last;
  return acceptor;
}

Acceptor::~Acceptor() {
  Stop();
  for (const int fd : {wake_fd_, spare_fd_}) {
    if (fd >= 0) close(fd);
  }
}

void Acceptor::Start(OnConnection on_connection) {
  on_connection_ = std::move(on_connection);
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "accept");
    Run();
  });
}

void Acceptor::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
    thread_.join();
  }
  for (const int fd : listeners_) close(fd);
  listeners_.clear();
}

Acceptor::Statistics Acceptor::statistics() const { return {connection_count_, accepted_, refused_, evicted_}; }

void Acceptor::Run() {
  std::vector<pollfd> polls = {{wake_fd_, POLLIN, 0}};
  for (const int fd : listeners_) polls.push_back({fd, POLLIN, 0});
  auto next_sweep = std::chrono::steady_clock::now() + kSweepInterval;
  while (true) {
    poll(polls.data(), polls.size(), static_cast<int>(kSweepInterval.count()));
    if (polls[0].revents != 0) return;
    bool exhausted = false;
    for (size_t i = 1; i < polls.size(); ++i) {
      if (polls[i].revents != 0 && !AcceptAll(polls[i].fd)) exhausted = true;
    }
    if (const auto now = std::chrono::steady_clock::now(); now >= next_sweep) {
      Sweep();
      next_sweep = now + kSweepInterval;
    }
    // The listener stays readable meanwhile: without a pause this would spin.
    if (exhausted) poll(polls.data(), 1, static_cast<int>(kPauseWhenExhausted.count()));
    if (polls[0].revents != 0) return;
  }
}

bool Acceptor::AcceptAll(int listener) {
  // In portions, so that other listeners and the end of the server have their turn.
  for (int i = 0; i < kBacklog; ++i) {
    sockaddr_storage storage{};
    socklen_t size = sizeof(storage);
    const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&storage), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        TellExhausted(std::strerror(errno));
        Sweep();
        TurnAway(listener);
        return false;
      }
      if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;  // of that connection only
      return true;
    }
    const std::optional<ino_t> inode = InodeOf(fd);
    std::string peer = PeerOf(storage);
    if (!inode || !HasRoom(peer)) {
      ++refused_;
      close(fd);
      continue;
    }
    connections_.push_back({fd, *inode, std::move(peer), std::chrono::steady_clock::now(), false});
    connection_count_ = static_cast<int>(connections_.size());
    ++accepted_;
    on_connection_(fd);
  }
  return true;
}

void Acceptor::TellExhausted(const char* why) {
  const auto now = std::chrono::steady_clock::now();
  if (last_told_ && now - *last_told_ < kLogInterval) return;
  last_told_ = now;
  Log(LogLevel::kWarning, "connection refused", {{"error", why}});
}

void Acceptor::TurnAway(int listener) {
  if (spare_fd_ >= 0) close(spare_fd_);
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd >= 0) {
    ++refused_;
    close(fd);
  }
  spare_fd_ = OpenSpare();
}

bool Acceptor::HasRoom(const std::string& peer) {
  const auto count_of = [this](const std::string& address) {
    return std::count_if(connections_.begin(), connections_.end(), [&](const Connection& one) { return one.peer == address; });
  };
  const bool peer_is_full = !peer.empty() && count_of(peer) >= options_.max_connections_per_peer;
  if (!peer_is_full && connections_.size() < static_cast<size_t>(options_.max_connections)) return true;
  Sweep();
  if (!peer.empty() && count_of(peer) >= options_.max_connections_per_peer) return false;
  const auto closing = std::count_if(connections_.begin(), connections_.end(), [](const Connection& one) { return one.closing; });
  if (static_cast<int64_t>(connections_.size()) - closing < options_.max_connections) return closing < kMaxClosing;
  return closing < kMaxClosing && MakeRoom();
}

void Acceptor::Sweep() {
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(connections_, [](const Connection& one) { return InodeOf(one.fd) != one.inode; });
  for (Connection& one : connections_) {
    if (one.closing || now - one.since < options_.max_mute) continue;
    const std::optional<Received> received = ReceivedOf(one.fd);
    if (received && received->bytes == 0) ShutDown(one);
  }
  connection_count_ = static_cast<int>(connections_.size());
}

bool Acceptor::MakeRoom() {
  Connection* least = nullptr;
  auto longest = options_.max_silence;
  for (Connection& one : connections_) {
    if (one.closing) continue;
    const std::optional<Received> received = ReceivedOf(one.fd);
    if (!received) continue;
    if (received->bytes == 0) {  // the list is in the order of arrival
      least = &one;
      break;
    }
    if (received->silence > longest) {
      longest = received->silence;
      least = &one;
    }
  }
  if (least == nullptr) return false;
  ShutDown(*least);
  return true;
}

void Acceptor::ShutDown(Connection& connection) {
  // Its owner may close it, and another part of the process get its number, at any moment: a copy of the descriptor is looked at, then
  // used.
  const int copy = fcntl(connection.fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return;
  if (InodeOf(copy) == connection.inode) {
    shutdown(copy, SHUT_RDWR);
    connection.closing = true;
    ++evicted_;
  }
  close(copy);
}

}  // namespace palpate::server
