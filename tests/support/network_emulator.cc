// Two network namespaces with a bad line between them, for tests with real sockets. Packets that one side sends come out at the other after
// a delay with jitter, in order, or not at all; on command nothing passes. TCP and its retransmissions are the kernel's own.
//
// usage: network_emulator [--delay-ms D] [--jitter-ms J] [--loss-percent L] [--seed N]
//
// Prints one JSON line when the line stands: the namespaces as files for `nsenter --net=FILE`, and their addresses. Then obeys lines on
// standard input: "blackout on", "blackout off", "delay-ms D", "jitter-ms J", "loss-percent L". Ends when standard input does, and prints
// what it passed on and lost. Namespaces and devices live as long as this process and its children in them: nothing is left behind.
//
// Exit code 0; 2 wrong usage; 77 where namespaces or TUN devices are not permitted (a test then skips), with the reason on standard error.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kUsage = 2;
constexpr int kNotPermitted = 77;
constexpr size_t kMtuBytes = 1500;
constexpr size_t kQueuePackets = 10000;  // in flight in one direction; more is lost, as in any router
constexpr std::array<const char*, 2> kSideNames = {"near", "far"};
constexpr std::array<const char*, 2> kAddresses = {"10.79.0.1", "10.79.0.2"};

struct Line {
  std::map<std::string, double> values = {{"delay-ms", 0}, {"jitter-ms", 0}, {"loss-percent", 0}, {"seed", 1}};
  bool blackout = false;

  /// False if there is no such value, or it cannot be `text`.
  bool Set(const std::string& name, const std::string& text) {
    const auto found = values.find(name);
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const double largest = name == "loss-percent" ? 100 : 1e6;
    if (found == values.end() || text.empty() || *end != '\0' || !(value >= 0 && value <= largest)) return false;
    found->second = value;
    return true;
  }
};

struct Packet {
  Clock::time_point due;
  std::vector<char> bytes;
};

struct Direction {
  std::deque<Packet> packets;
  uint64_t passed = 0;
  uint64_t lost = 0;
};

[[noreturn]] void NotPermitted(const char* what) {
  std::fprintf(stderr, "network_emulator: %s: %s; namespaces and /dev/net/tun need root or CAP_SYS_ADMIN and CAP_NET_ADMIN\n", what,
               std::strerror(errno));
  std::exit(kNotPermitted);
}

struct Side {
  int tun = -1;
  int netns = -1;
};

void Bring(int socket, ifreq request) {
  if (ioctl(socket, SIOCGIFFLAGS, &request) != 0) NotPermitted("SIOCGIFFLAGS");
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP | IFF_RUNNING);
  if (ioctl(socket, SIOCSIFFLAGS, &request) != 0) NotPermitted("SIOCSIFFLAGS");
}

sockaddr Address(const char* text) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  inet_pton(AF_INET, text, &in.sin_addr);
  sockaddr generic{};
  std::memcpy(&generic, &in, sizeof(generic));
  return generic;
}

/// Moves this process into a new namespace and makes the end of the line there.
Side MakeSide(int index) {
  Side side;
  if (unshare(CLONE_NEWNET) != 0) NotPermitted("unshare(CLONE_NEWNET)");
  side.netns = open("/proc/self/ns/net", O_RDONLY);
  side.tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (side.tun < 0) NotPermitted("/dev/net/tun");
  ifreq request{};
  std::snprintf(request.ifr_name, sizeof(request.ifr_name), "line");
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (ioctl(side.tun, TUNSETIFF, &request) != 0) NotPermitted("TUNSETIFF");
  const int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (control < 0) NotPermitted("socket");
  request.ifr_addr = Address(kAddresses[index]);
  if (ioctl(control, SIOCSIFADDR, &request) != 0) NotPermitted("SIOCSIFADDR");
  request.ifr_dstaddr = Address(kAddresses[1 - index]);
  if (ioctl(control, SIOCSIFDSTADDR, &request) != 0) NotPermitted("SIOCSIFDSTADDR");
  request.ifr_mtu = static_cast<int>(kMtuBytes);
  if (ioctl(control, SIOCSIFMTU, &request) != 0) NotPermitted("SIOCSIFMTU");
  Bring(control, request);
  ifreq loopback{};
  std::snprintf(loopback.ifr_name, sizeof(loopback.ifr_name), "lo");
  Bring(control, loopback);
  close(control);
  return side;
}

class Emulator {
 public:
  Emulator(Line line, std::array<Side, 2> sides)
      : line_(std::move(line)), sides_(sides), random_(static_cast<uint32_t>(line_.values["seed"])) {}

  void Run() {
    while (true) {
      std::array<pollfd, 3> waiting = {{{sides_[0].tun, POLLIN, 0}, {sides_[1].tun, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}}};
      const timespec timeout = UntilNext();
      if (ppoll(waiting.data(), waiting.size(), &timeout, nullptr) < 0 && errno != EINTR) return;
      for (int from = 0; from < 2; ++from) {
        if ((waiting[from].revents & POLLIN) != 0) Receive(from);
        Deliver(from);
      }
      if (waiting[2].revents != 0 && !Obey()) break;
    }
    for (int from = 0; from < 2; ++from) {
      std::printf("{\"from\": \"%s\", \"passed\": %lu, \"lost\": %lu}\n", kSideNames[from],
                  static_cast<unsigned long>(directions_[from].passed), static_cast<unsigned long>(directions_[from].lost));
    }
  }

 private:
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  timespec UntilNext() const {
    Clock::time_point next = Clock::now() + std::chrono::seconds(1);
    for (const Direction& direction : directions_) {
      if (!direction.packets.empty()) next = std::min(next, direction.packets.front().due);
    }
    const auto wait = std::max(std::chrono::nanoseconds(0), std::chrono::duration_cast<std::chrono::nanoseconds>(next - Clock::now()));
    return {.tv_sec = wait.count() / 1'000'000'000, .tv_nsec = wait.count() % 1'000'000'000};
  }

  void Receive(int from) {
    Direction& direction = directions_[from];
    std::array<char, kMtuBytes> buffer;
    while (true) {
      const ssize_t length = read(sides_[from].tun, buffer.data(), buffer.size());
      if (length <= 0) return;
      const bool lost = Uniform() * 100 < line_.values.at("loss-percent");
      if (line_.blackout || lost || direction.packets.size() >= kQueuePackets) {
        ++direction.lost;
        continue;
      }
      const double delay_ms = line_.values.at("delay-ms") + line_.values.at("jitter-ms") * Uniform();
      auto due = Clock::now() + std::chrono::microseconds(std::llround(delay_ms * 1e3));
      if (!direction.packets.empty()) due = std::max(due, direction.packets.back().due);  // nothing overtakes
      direction.packets.push_back({due, std::vector<char>(buffer.data(), buffer.data() + length)});
    }
  }

  void Deliver(int from) {
    Direction& direction = directions_[from];
    const auto now = Clock::now();
    for (; !direction.packets.empty() && direction.packets.front().due <= now; direction.packets.pop_front()) {
      const std::vector<char>& bytes = direction.packets.front().bytes;
      const bool passed = write(sides_[1 - from].tun, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
      ++(passed ? direction.passed : direction.lost);
    }
  }

  /// Reads commands. False at the end of standard input.
  bool Obey() {
    std::array<char, 256> buffer;
    const ssize_t length = read(STDIN_FILENO, buffer.data(), buffer.size());
    if (length <= 0) return length < 0 && errno == EINTR;
    commands_.append(buffer.data(), static_cast<size_t>(length));
    for (size_t end = commands_.find('\n'); end != std::string::npos; end = commands_.find('\n')) {
      const std::string command = commands_.substr(0, end);
      commands_.erase(0, end + 1);
      const size_t space = command.find(' ');
      const std::string name = command.substr(0, space);
      const std::string value = space == std::string::npos ? "" : command.substr(space + 1);
      if (name == "blackout" && (value == "on" || value == "off")) {
        line_.blackout = value == "on";
      } else if (!line_.Set(name, value)) {
        std::fprintf(stderr, "network_emulator: cannot do '%s'\n", command.c_str());
      }
    }
    return true;
  }

  Line line_;
  const std::array<Side, 2> sides_;
  std::array<Direction, 2> directions_;  ///< by the side that sends
  std::mt19937 random_;
  std::string commands_;
};

}  // namespace

int main(int argc, char** argv) {
  Line line;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name.rfind("--", 0) != 0 || i + 1 >= argc || !line.Set(name.substr(2), argv[i + 1])) {
      std::fprintf(stderr, "usage: network_emulator [--delay-ms D] [--jitter-ms J] [--loss-percent L] [--seed N]\n");
      return kUsage;
    }
  }
  std::array<Side, 2> sides;
  for (int index = 0; index < 2; ++index) sides[index] = MakeSide(index);
  std::printf("{");
  for (int index = 0; index < 2; ++index) {
    std::printf("%s\"%s\": {\"netns\": \"/proc/%d/fd/%d\", \"address\": \"%s\"}", index == 0 ? "" : ", ", kSideNames[index], getpid(),
                sides[index].netns, kAddresses[index]);
  }
  std::printf("}\n");
  std::fflush(stdout);
  Emulator(std::move(line), sides).Run();
  return 0;
}
