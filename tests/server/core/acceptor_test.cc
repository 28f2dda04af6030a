#include "server/core/acceptor.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace palpate::server::acceptor_test {
namespace {

using namespace std::chrono_literals;

bool WaitFor(const std::function<bool()>& condition) {
  for (int i = 0; i < 6000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

class Client {
 public:
  explicit Client(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    timeval patience{30, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  Client(Client&& other) noexcept : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
  ~Client() {
    if (fd_ >= 0) close(fd_);
  }
  bool connected() const { return connected_; }
  void Send() const { EXPECT_EQ(send(fd_, "x", 1, MSG_NOSIGNAL), 1); }
  /// What the acceptor's owner sends to each connection arrives; false where the connection was closed instead.
  bool IsGreeted() const {
    char c = 0;
    return recv(fd_, &c, 1, 0) == 1;
  }
  /// Waits for the end of the connection.
  bool IsClosed() const {
    char c = 0;
    ssize_t count = 0;
    while ((count = recv(fd_, &c, 1, 0)) > 0) {
    }
    return count == 0 || errno == ECONNRESET;
  }

 private:
  int fd_;
  bool connected_ = false;
};

/// An owner of connections as gRPC is one: greets them, and closes those that have ended.
class AcceptorTest : public ::testing::Test {
 protected:
  void Start(const Acceptor::Options& options) {
    absl::StatusOr<std::unique_ptr<Acceptor>> acceptor = Acceptor::Listen({"127.0.0.1", 0, true}, options);
    ASSERT_TRUE(acceptor.ok()) << acceptor.status();
    acceptor_ = *std::move(acceptor);
    acceptor_->Start([this](int fd) {
      EXPECT_EQ(send(fd, "!", 1, MSG_NOSIGNAL), 1);
      const std::lock_guard lock(mutex_);
      fds_.insert(fd);
    });
    owner_ = std::thread([this] {
      while (!stop_) {
        {
          const std::lock_guard lock(mutex_);
          std::erase_if(fds_, [](int fd) {
            char buffer[64];
            const ssize_t count = recv(fd, buffer, sizeof(buffer), 0);
            if (count > 0 || (count < 0 && errno == EAGAIN)) return false;
            close(fd);
            return true;
          });
        }
        std::this_thread::sleep_for(1ms);
      }
    });
  }
  void TearDown() override {
    stop_ = true;
    if (owner_.joinable()) owner_.join();
    acceptor_.reset();
    for (const int fd : fds_) close(fd);
  }
  Client Connect() { return Client(acceptor_->port()); }
  Acceptor::Statistics statistics() const { return acceptor_->statistics(); }

  std::unique_ptr<Acceptor> acceptor_;
  std::mutex mutex_;
  std::set<int> fds_;
  std::thread owner_;
  std::atomic<bool> stop_ = false;
};

TEST_F(AcceptorTest, AtTheLimitThoseInUseStayAndNewcomersAreRefused) {
  Acceptor::Options options;
  options.max_connections = 4;
  Start(options);
  std::vector<Client> used;
  for (int i = 0; i < 4; ++i) {
    used.push_back(Connect());
    used.back().Send();
    ASSERT_TRUE(used.back().IsGreeted());
  }
  EXPECT_TRUE(Connect().IsClosed());
  EXPECT_EQ(statistics().connections, 4);
  EXPECT_EQ(statistics().refused, 1u);
  EXPECT_EQ(statistics().evicted, 0u);
  used.pop_back();
  // As soon as its owner has closed one there is room.
  EXPECT_TRUE(WaitFor([&] { return Connect().IsGreeted(); }));
}

TEST_F(AcceptorTest, TheOldestMuteOneMakesRoom) {
  Acceptor::Options options;
  options.max_connections = 3;
  Start(options);
  const Client used = Connect();
  used.Send();
  ASSERT_TRUE(used.IsGreeted());
  const Client oldest = Connect();
  ASSERT_TRUE(oldest.IsGreeted());
  const Client younger = Connect();
  ASSERT_TRUE(younger.IsGreeted());
  const Client newcomer = Connect();
  EXPECT_TRUE(newcomer.IsGreeted());
  EXPECT_TRUE(oldest.IsClosed());
  EXPECT_EQ(statistics().evicted, 1u);
  EXPECT_EQ(statistics().refused, 0u);
  EXPECT_EQ(statistics().accepted, 4u);
}

TEST_F(AcceptorTest, TheLongestSilentOneMakesRoom) {
  Acceptor::Options options;
  options.max_connections = 2;
  options.max_silence = 0ms;
  Start(options);
  const Client first = Connect();
  first.Send();
  ASSERT_TRUE(first.IsGreeted());
  const Client second = Connect();
  second.Send();
  ASSERT_TRUE(second.IsGreeted());
  // The kernel counts silence in milliseconds.
  std::vector<Client> newcomers;
  EXPECT_TRUE(WaitFor([&] {
    newcomers.push_back(Connect());
    return newcomers.back().IsGreeted();
  }));
  EXPECT_TRUE(first.IsClosed());
}

TEST_F(AcceptorTest, MuteConnectionsAreClosed) {
  Acceptor::Options options;
  options.max_mute = 1ms;
  Start(options);
  const Client mute = Connect();
  const Client other = Connect();
  other.Send();
  EXPECT_TRUE(mute.IsClosed());
  EXPECT_TRUE(other.IsGreeted());
  EXPECT_TRUE(WaitFor([&] { return statistics().connections == 1; }));
}

TEST_F(AcceptorTest, AFloodPassesAndThePortStillAnswers) {
  Acceptor::Options options;
  options.max_connections = 16;
  Start(options);
  {
    std::vector<Client> flood;
    for (int i = 0; i < 400; ++i) flood.push_back(Connect());
    EXPECT_TRUE(WaitFor([&] { return Connect().IsGreeted(); }));
    EXPECT_LE(statistics().connections, 16 + 32);
  }
  EXPECT_TRUE(WaitFor([&] { return Connect().IsGreeted(); }));
  EXPECT_TRUE(WaitFor([&] { return statistics().connections <= 1; }));
}

TEST_F(AcceptorTest, OutOfDescriptorsItTurnsAwayAndRecovers) {
  Start({});
  // Clients first: they need descriptors too.
  std::vector<int> sockets;
  for (int i = 0; i < 3; ++i) sockets.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = std::min<rlim_t>(before.rlim_cur, 256);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<int> hoard;
  for (int fd = 0; (fd = dup(sockets[0])) >= 0;) hoard.push_back(fd);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(acceptor_->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (const int fd : sockets) {
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    char c = 0;
    EXPECT_LE(recv(fd, &c, 1, 0), 0) << "turned away, not left to wait";
  }
  EXPECT_EQ(statistics().refused, 3u);
  for (const int fd : hoard) close(fd);
  for (const int fd : sockets) close(fd);
  EXPECT_TRUE(Connect().IsGreeted());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(AcceptorListen, SaysWhatIsWrong) {
  const auto first = Acceptor::Listen({"localhost", 0, true}, {});
  ASSERT_TRUE(first.ok()) << first.status();
  const Address taken{"127.0.0.1", static_cast<uint16_t>((*first)->port()), true};
  EXPECT_EQ(Acceptor::Listen(taken, {}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Acceptor::Listen({"192.0.2.1", 0, false}, {}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Acceptor::Listen({"no-such-host.invalid", 0, false}, {}).status().code(), absl::StatusCode::kUnavailable);
}

TEST(RaiseDescriptorLimit, StopsAtTheHardLimit) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 100;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(RaiseDescriptorLimit(50), 100u);
  EXPECT_EQ(RaiseDescriptorLimit(200), 200u);
  EXPECT_EQ(RaiseDescriptorLimit(UINT64_MAX), before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace palpate::server::acceptor_test
