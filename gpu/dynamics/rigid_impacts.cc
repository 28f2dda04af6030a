#include "gpu/dynamics/rigid_impacts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <Eigen/Geometry>

namespace palpate::gpu {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;
using Matrix6d = Eigen::Matrix<double, 6, 6>;

constexpr double kSlowest_m_per_s = 0.01;    // impacts that may bounce
constexpr double kAtRest = 1e-9;             // of the fastest impact: approaches that are none
constexpr double kAtRestOfThreshold = 0.02;  // likewise, of the slowest that bounces
constexpr double kSettled = 1e-7;            // of the impulses of a pair: changes that are none
constexpr size_t kMostAround = 256;          // bodies that take part beside those of impacts, where there are more
constexpr double kHeld = 1e-9;               // of the response of a free body: there is none
constexpr double kLeastWay = 0.1;            // of a free step, of a body that is stopped on its way to an impact
constexpr int kRounds = 64;                  // of impulses of a pair
constexpr int kEventsOfPair = 4;             // on the average, before the rest is taken for inelastic
constexpr int kEventsInelastic = 8;          // likewise, in all
constexpr int kLeastPairs = 100;             // that these are counted for: few bodies may hit each other often

Vector3d ToVector(const Float4& v) { return {v.x, v.y, v.z}; }
Float4 ToFloat4(const Vector3d& v, float w) { return {static_cast<float>(v.x()), static_cast<float>(v.y()), static_cast<float>(v.z()), w}; }

/// A body in an impact, at the end of the step: velocities of its centre and about it, and what impulses and their moments make of them.
struct Mover {
  Matrix6d response = Matrix6d::Zero();
  Vector3d center_m{0, 0, 0};
  Vector6d motion = Vector6d::Zero();
};

Matrix3d InertiaOf(const RigidBlockState& state, int power) {
  const Eigen::Quaterniond q = Eigen::Quaterniond(state.rotation.w, state.rotation.x, state.rotation.y, state.rotation.z).normalized();
  const Matrix3d axes = q.toRotationMatrix();
  return axes * ToVector(state.inertia).array().pow(power).matrix().asDiagonal() * axes.transpose();
}

/// With the motion of another time.
Mover MoverOf(const RigidBlockState& state, const RigidBlockState& moving) {
  Mover out;
  out.response.topLeftCorner<3, 3>() = Matrix3d::Identity() / static_cast<double>(state.center.w);
  out.response.bottomRightCorner<3, 3>() = InertiaOf(state, -1);
  out.center_m = ToVector(state.center);
  out.motion << ToVector(moving.velocity), InertiaOf(moving, -1) * ToVector(moving.momentum);
  return out;
}

/// Leaves of the motion what the rows allow, and of the response that of the body as they hold it.
void Hold(std::span<const Vector6d> rows, Mover* mover) {
  const double free = mover->response.trace();
  for (const Vector6d& row : rows) {
    const Vector6d moves = mover->response * row;
    const double response = row.dot(moves);
    if (!(response > kHeld * free * row.squaredNorm())) continue;  // by the rows before
    mover->motion -= moves * (row.dot(mover->motion) / response);
    mover->response -= moves * moves.transpose() / response;
  }
}

/// A direction in which two bodies push each other at a contact: its Jacobian, and what an impulse of 1 N s along it does to them.
struct Push {
  uint32_t body_a = ImpactContact::kWall, body_b = ImpactContact::kWall;  // places in Movers
  Vector6d row_a = Vector6d::Zero(), row_b = Vector6d::Zero();
  Vector6d moves_a = Vector6d::Zero(), moves_b = Vector6d::Zero();
  double wall_speed = 0;  // of B from A as far as walls go
  double response = 0;    // speed of B from A that an impulse of 1 N s gives; 0: joints hold both
};

struct Contact {
  std::array<Push, 3> pushes;  // along the normal, and across it
  double restitution = 0;
  double friction = 0;
};

/// The bodies of a component, and their places in the list.
struct Movers {
  std::vector<Mover> list;
  std::vector<uint32_t> bodies;  // ascending

  uint32_t PlaceOf(uint32_t body) const {
    if (body == ImpactContact::kWall) return body;
    return static_cast<uint32_t>(std::lower_bound(bodies.begin(), bodies.end(), body) - bodies.begin());
  }
};
using Impulse = std::array<double, 3>;

/// Of B from A: positive parts.
double SpeedOf(const Push& push, const Movers& movers) {
  double speed = push.wall_speed;
  if (push.body_a != ImpactContact::kWall) speed -= push.row_a.dot(movers.list[push.body_a].motion);
  if (push.body_b != ImpactContact::kWall) speed += push.row_b.dot(movers.list[push.body_b].motion);
  return speed;
}

void Apply(const Push& push, double impulse, Movers* movers) {
  if (push.body_a != ImpactContact::kWall) movers->list[push.body_a].motion -= impulse * push.moves_a;
  if (push.body_b != ImpactContact::kWall) movers->list[push.body_b].motion += impulse * push.moves_b;
}

Push PushAlong(const Vector3d& axis, const ImpactContact& contact, const Movers& movers) {
  Push out{.body_a = movers.PlaceOf(contact.body_a), .body_b = movers.PlaceOf(contact.body_b)};
  const auto set = [&](uint32_t place, Vector6d* row, Vector6d* moves) {
    if (place == ImpactContact::kWall) return;
    const Mover& mover = movers.list[place];
    *row << axis, (contact.point_m - mover.center_m).cross(axis);
    *moves = mover.response * *row;
    out.response += row->dot(*moves);
  };
  set(out.body_a, &out.row_a, &out.moves_a);
  set(out.body_b, &out.row_b, &out.moves_b);
  const double wall = axis.dot(contact.wall_velocity_m_per_s);
  if (contact.body_a == ImpactContact::kWall) out.wall_speed = -wall;
  if (contact.body_b == ImpactContact::kWall) out.wall_speed = wall;
  return out;
}

Contact ContactOf(const ImpactContact& contact, const Movers& movers) {
  const Vector3d across = contact.normal.unitOrthogonal();
  return {.pushes = {PushAlong(contact.normal, contact, movers), PushAlong(across, contact, movers),
                     PushAlong(contact.normal.cross(across), contact, movers)},
          .restitution = contact.restitution,
          .friction = contact.friction};
}

double Approach(const Contact& contact, const Movers& movers) {
  return contact.pushes[0].response > 0 ? -SpeedOf(contact.pushes[0], movers) : 0;
}

/// Impulses along the normals are >= 0: each contact parts at least with its target, and one that parts faster has none. Across them they
/// stop sliding as far as the cone of friction lets them. Projected Gauss-Seidel.
std::vector<Impulse> Resolve(std::span<const Contact* const> contacts, std::span<const double> targets, Movers* movers) {
  std::vector<Impulse> impulses(contacts.size(), Impulse{});
  for (int round = 0; round < kRounds; ++round) {
    double change = 0, size_of_all = 0;
    for (size_t i = 0; i < contacts.size(); ++i) {
      const std::array<Push, 3>& pushes = contacts[i]->pushes;
      if (!(pushes[0].response > 0)) continue;
      Impulse wanted = impulses[i];
      wanted[0] = std::max(wanted[0] + (targets[i] - SpeedOf(pushes[0], *movers)) / pushes[0].response, 0.0);
      Apply(pushes[0], wanted[0] - impulses[i][0], movers);
      for (const size_t k : {1, 2}) {
        if (pushes[k].response > 0) wanted[k] -= SpeedOf(pushes[k], *movers) / pushes[k].response;
      }
      const double most = contacts[i]->friction * wanted[0];
      const double size = std::hypot(wanted[1], wanted[2]);
      for (const size_t k : {1, 2}) {
        if (size > most) wanted[k] *= most / size;
        Apply(pushes[k], wanted[k] - impulses[i][k], movers);
      }
      for (size_t k = 0; k < 3; ++k) {
        change = std::max(change, std::abs(wanted[k] - impulses[i][k]));
        size_of_all = std::max(size_of_all, std::abs(wanted[k]));
      }
      impulses[i] = wanted;
    }
    if (change <= kSettled * size_of_all) break;
  }
  return impulses;
}

/// Resolves, and takes as much of the impulses back as would gain energy: Newton's law for several contacts at once may.
void ResolvePassively(std::span<const Contact* const> contacts, std::span<const double> targets, Movers* movers) {
  // All contacts are of the same two.
  const std::array<uint32_t, 2> places = {contacts[0]->pushes[0].body_a, contacts[0]->pushes[0].body_b};
  std::array<Vector6d, 2> motions;
  for (size_t side = 0; side < 2; ++side) {
    if (places[side] != ImpactContact::kWall) motions[side] = movers->list[places[side]].motion;
  }
  std::vector<Impulse> from(contacts.size());
  for (size_t i = 0; i < contacts.size(); ++i) {
    for (size_t k = 0; k < 3; ++k) from[i][k] = SpeedOf(contacts[i]->pushes[k], *movers);
  }
  const std::vector<Impulse> impulses = Resolve(contacts, targets, movers);
  // The work of an impulse is that at the mean of the speeds before and after it.
  double work = 0, change = 0;
  for (size_t i = 0; i < contacts.size(); ++i) {
    for (size_t k = 0; k < 3; ++k) {
      work += impulses[i][k] * from[i][k];
      change += impulses[i][k] * (SpeedOf(contacts[i]->pushes[k], *movers) - from[i][k]) / 2;
    }
  }
  if (!(work + change > 0)) return;
  const double share = work < 0 ? -work / change : 0;
  for (size_t side = 0; side < 2; ++side) {
    if (places[side] == ImpactContact::kWall) continue;
    Vector6d& motion = movers->list[places[side]].motion;
    motion = motions[side] + share * (motion - motions[side]);
  }
}

/// The contacts of one component of touching bodies, pair by pair.
struct Component {
  std::vector<Contact> contacts;
  std::vector<std::vector<const Contact*>> pairs;
  Movers movers;
};

void ListPairs(Component* component) {
  std::map<std::pair<uint32_t, uint32_t>, size_t> known;
  std::vector<size_t> pair_of;
  for (const Contact& contact : component->contacts) {
    const std::pair<uint32_t, uint32_t> bodies = std::minmax(contact.pushes[0].body_a, contact.pushes[0].body_b);
    pair_of.push_back(known.emplace(bodies, known.size()).first->second);
  }
  component->pairs.resize(known.size());
  for (size_t i = 0; i < pair_of.size(); ++i) component->pairs[pair_of[i]].push_back(&component->contacts[i]);
}

double FastestApproach(std::span<const Contact* const> contacts, const Movers& movers) {
  double fastest = 0;
  for (const Contact* contact : contacts) fastest = std::max(fastest, Approach(*contact, movers));
  return fastest;
}

/// Which pairs approach, the fastest first.
class Waiting {
 public:
  explicit Waiting(const Component& component)
      : component_(component), approach_(component.pairs.size(), 0.0), pairs_of_(component.movers.list.size()) {
    for (size_t p = 0; p < component.pairs.size(); ++p) {
      for (const uint32_t place : {component.pairs[p][0]->pushes[0].body_a, component.pairs[p][0]->pushes[0].body_b}) {
        if (place != ImpactContact::kWall) pairs_of_[place].push_back(p);
      }
      Update(p);
    }
  }
  double fastest() const { return queue_.empty() ? 0 : -queue_.begin()->first; }
  size_t first() const { return queue_.begin()->second; }
  /// After the velocities of the bodies of a pair changed.
  void Changed(size_t pair) {
    for (const uint32_t place : {component_.pairs[pair][0]->pushes[0].body_a, component_.pairs[pair][0]->pushes[0].body_b}) {
      if (place == ImpactContact::kWall) continue;
      for (const size_t p : pairs_of_[place]) Update(p);
    }
  }

 private:
  void Update(size_t p) {
    if (approach_[p] > 0) queue_.erase({-approach_[p], p});
    approach_[p] = FastestApproach(component_.pairs[p], component_.movers);
    if (approach_[p] > 0) queue_.insert({-approach_[p], p});
  }

  const Component& component_;
  std::vector<double> approach_;
  std::vector<std::vector<size_t>> pairs_of_;  // [place of a body]
  std::set<std::pair<double, size_t>> queue_;
};

/// Impacts one after the other until nothing approaches.
void Collide(Component* component, double threshold_m_per_s) {
  const int pair_count = std::max(static_cast<int>(component->pairs.size()), kLeastPairs);
  Waiting waiting(*component);
  const double at_rest = std::max(kAtRest * waiting.fastest(), kAtRestOfThreshold * threshold_m_per_s);
  for (int event = 0; event < kEventsInelastic * pair_count && waiting.fastest() > at_rest; ++event) {
    const size_t pair = waiting.first();
    const std::span<const Contact* const> contacts = component->pairs[pair];
    std::vector<double> targets;
    for (const Contact* contact : contacts) {
      const double meets = Approach(*contact, component->movers);
      const bool bounces = meets > threshold_m_per_s && event < kEventsOfPair * pair_count;
      targets.push_back(bounces ? contact->restitution * meets : 0);
    }
    ResolvePassively(contacts, targets, &component->movers);
    waiting.Changed(pair);
  }
}

/// The bodies that take part: those of impacts that bounce, and from them on along contacts until there are enough.
std::vector<uint8_t> WhoTakesPart(std::span<const ImpactContact> contacts, std::span<const uint8_t> bounces, size_t body_count) {
  std::vector<std::vector<uint32_t>> touched(body_count);
  std::vector<uint8_t> takes_part(body_count, 0);
  std::vector<uint32_t> front;
  for (size_t i = 0; i < contacts.size(); ++i) {
    const uint32_t a = contacts[i].body_a, b = contacts[i].body_b;
    if (a != ImpactContact::kWall && b != ImpactContact::kWall) {
      touched[a].push_back(b);
      touched[b].push_back(a);
    }
    for (const uint32_t body : {a, b}) {
      if (bounces[i] == 0 || body == ImpactContact::kWall || std::exchange(takes_part[body], 1) != 0) continue;
      front.push_back(body);
    }
  }
  for (size_t next = 0; next < front.size() && front.size() < kMostAround; ++next) {
    for (const uint32_t body : touched[front[next]]) {
      if (std::exchange(takes_part[body], 1) == 0) front.push_back(body);
    }
  }
  return takes_part;
}

}  // namespace

RigidImpacts::RigidImpacts(double dt_s, const Vector3d& gravity_m_per_s2)
    : dt_s_(dt_s),
      gravity_m_per_s2_(gravity_m_per_s2),
      threshold_m_per_s_(std::max(2 * dt_s * gravity_m_per_s2.norm(), kSlowest_m_per_s)) {}

std::vector<uint32_t> RigidImpacts::GiveBackCutSpeed(std::span<const RigidBlockState> before, std::span<const ImpactContact> contacts,
                                                     std::span<RigidBlockState> after) const {
  std::vector<uint8_t> presses(after.size(), 0);
  for (const ImpactContact& contact : contacts) {
    for (const uint32_t body : {contact.body_a, contact.body_b}) {
      if (body != ImpactContact::kWall) presses[body] = 1;
    }
  }
  std::vector<uint32_t> changed;
  for (uint32_t body = 0; body < after.size(); ++body) {
    if (after[body].is_truncated == 0 || presses[body] != 0) continue;
    const Vector3d left = ToVector(after[body].velocity);
    // Joints turn what they hold: it goes on at the speed that it had.
    const Vector3d start = ToVector(before[body].velocity);
    const bool is_joined = after[body].joint_member != 0;
    const Vector3d free = is_joined ? Vector3d(start.norm() * left.normalized()) : Vector3d(start + dt_s_ * gravity_m_per_s2_);
    const bool goes_on = left.dot(free) > kLeastWay * free.squaredNorm();  // else it hangs, and would gather speed for ever
    if (!goes_on || free.norm() < threshold_m_per_s_ || left.norm() >= free.norm()) continue;
    after[body].velocity = ToFloat4(free, after[body].velocity.w);
    after[body].momentum = before[body].momentum;
    changed.push_back(body);
  }
  return changed;
}

std::vector<uint32_t> RigidImpacts::Apply(std::span<const RigidBlockState> before, std::span<const ImpactContact> contacts,
                                          std::span<RigidBlockState> after, const HeldRows& held,
                                          const std::map<uint32_t, Vector6d>& outside) const {
  std::vector<uint32_t> changed = GiveBackCutSpeed(before, contacts, after);
  const auto mover_of = [&](uint32_t body) {
    Mover mover = MoverOf(after[body], before[body]);
    mover.motion.head<3>() += dt_s_ * gravity_m_per_s2_;
    const auto pushed = outside.find(body);
    if (pushed != outside.end()) mover.motion += mover.response * pushed->second;
    Hold(held(body), &mover);
    return mover;
  };
  Component component;
  std::vector<uint32_t>& bodies = component.movers.bodies;
  for (const ImpactContact& contact : contacts) {
    for (const uint32_t body : {contact.body_a, contact.body_b}) {
      if (body != ImpactContact::kWall) bodies.push_back(body);
    }
  }
  std::sort(bodies.begin(), bodies.end());
  bodies.erase(std::unique(bodies.begin(), bodies.end()), bodies.end());
  for (const uint32_t body : bodies) component.movers.list.push_back(mover_of(body));
  std::vector<uint8_t> bounces;
  for (const ImpactContact& contact : contacts) {
    bounces.push_back(contact.restitution > 0 && Approach(ContactOf(contact, component.movers), component.movers) > threshold_m_per_s_);
  }
  if (std::find(bounces.begin(), bounces.end(), 1) == bounces.end()) return changed;
  const std::vector<uint8_t> takes_part = WhoTakesPart(contacts, bounces, before.size());
  // Those beyond are walls that move as the step left them.
  std::erase_if(bodies, [&](uint32_t body) { return takes_part[body] == 0; });
  component.movers.list.clear();
  for (const uint32_t body : bodies) component.movers.list.push_back(mover_of(body));
  for (ImpactContact contact : contacts) {
    for (uint32_t* body : {&contact.body_a, &contact.body_b}) {
      if (*body == ImpactContact::kWall || takes_part[*body] != 0) continue;
      const Mover wall = MoverOf(after[*body], after[*body]);
      contact.wall_velocity_m_per_s = wall.motion.head<3>() + Vector3d(wall.motion.tail<3>()).cross(contact.point_m - wall.center_m);
      *body = ImpactContact::kWall;
    }
    if (contact.body_a == contact.body_b) continue;
    component.contacts.push_back(ContactOf(contact, component.movers));
  }
  ListPairs(&component);
  Collide(&component, threshold_m_per_s_);
  for (size_t i = 0; i < bodies.size(); ++i) {
    RigidBlockState& state = after[bodies[i]];
    const Vector6d& motion = component.movers.list[i].motion;
    state.velocity = ToFloat4(motion.head<3>(), state.velocity.w);
    state.momentum = ToFloat4(InertiaOf(state, 1) * motion.tail<3>(), state.momentum.w);
    changed.push_back(bodies[i]);
  }
  std::sort(changed.begin(), changed.end());
  return changed;
}

}  // namespace palpate::gpu
