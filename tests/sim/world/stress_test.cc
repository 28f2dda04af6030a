// A long operation: three organs that lie on each other in a box are cut, carved and refined at random while they move.
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numbers>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/mesh/generators.h"
#include "sim/world/world.h"
#include "tests/sim/world/topology_checks.h"
#include "tests/support/device_test.h"

namespace palpate::sim::stress_test {
namespace {

using Eigen::Vector3d;

constexpr double kGravity = 9.81;
constexpr int kStepsPerEdit = 2;
constexpr int kRestSteps = 120;
constexpr int kWeighingSteps = 60;                    // the last of these
constexpr size_t kLeastTets = 600, kMostTets = 1100;  // beyond these, edits that take away, or add, become rarer
constexpr size_t kMostPieces = 24;                    // beyond these, the smallest is taken out
constexpr double kHalfWidth_m = 0.07, kHalfDepth_m = 0.055;
constexpr double kEdge_m = 0.015;  // of the meshes, about

/// What happened in a run.
struct Tally {
  int accepted = 0, idle = 0, refused = 0, invalid = 0;
  int carved = 0, incised = 0, refined = 0;
  size_t removed_tets = 0, added_tets = 0, most_pieces = 0, most_tets = 0;
  uint32_t most_inverted = 0, rest_inverted = 0;
  double removed_kg = 0, peak_kinetic_j = 0, peak_speed_m_per_s = 0;
  double worst_mass = 0;                                                             ///< relative error
  double worst_growth = 0;                                                           ///< of kinetic energy by an edit, relative
  double rest_kinetic_j = 0, rest_weight_n = 0, rest_floor_n = 0, most_floor_n = 0;  ///< after steps without edits
  size_t most_touching = 0;  ///< vertices of surfaces in the same place as another, after an edit
  std::vector<uint64_t> hashes;
};

class StressTest : public test::DeviceTest {
 protected:
  static SceneDescription ThreeOrgansInABox() {
    SceneDescription scene;
    scene.gravity_m_per_s2 = {0, 0, -kGravity};
    scene.contact.check_intersections = true;
    // Cuts leave small triangles, and a range of many of their edges finds pairs by the square of that number.
    scene.contact.surface_reserve_m = 0.001;
    Material kidney;
    kidney.model = MaterialModel::kCorotated;
    kidney.young_modulus_pa = 12000;
    kidney.poisson_ratio = 0.4;
    Material ring;
    ring.young_modulus_pa = 20000;
    ring.poisson_ratio = 0.3;
    ring.density_kg_per_m3 = 1000;
    struct Organ {
      const char* name = "";
      absl::StatusOr<TetMesh> mesh;
      Material material;
    };
    Organ organs[] = {{"liver", GenerateLiver(0.12, LiverEdgeLengthForTets(0.12, 400)), {}},
                      {"kidney", GenerateKidney(0.1, kEdge_m), kidney},
                      {"ring", GenerateTorus(0.033, 0.013, kEdge_m), ring}};
    double top_m = 0;
    for (Organ& organ : organs) {
      EXPECT_TRUE(organ.mesh.ok()) << organ.mesh.status();
      if (!organ.mesh.ok()) return scene;
      BodyDescription body;
      body.name = organ.name;
      body.mesh = *std::move(organ.mesh);
      body.material = organ.material;
      Eigen::AlignedBox3d box;
      for (const Vector3d& v : body.mesh.vertices) box.extend(v);
      const Vector3d shift(-box.center().x(), -box.center().y(), top_m + 0.003 - box.min().z());
      for (Vector3d& v : body.mesh.vertices) v += shift;
      top_m += 0.003 + box.sizes().z();
      scene.bodies.push_back(std::move(body));
    }
    scene.obstacles = {{"floor", PlaneShape{{0, 0, 0}, {0, 0, 1}}},
                       {"left", PlaneShape{{-kHalfWidth_m, 0, 0}, {1, 0, 0}}},
                       {"right", PlaneShape{{kHalfWidth_m, 0, 0}, {-1, 0, 0}}},
                       {"front", PlaneShape{{0, -kHalfDepth_m, 0}, {0, 1, 0}}},
                       {"back", PlaneShape{{0, kHalfDepth_m, 0}, {0, -1, 0}}}};
    return scene;
  }

  /// Performs `edits` random edits with steps between them and checks everything on the way.
  /// At the end it lets them lie for `rest_steps`, which are 0 or more than kWeighingSteps.
  void Operate(uint64_t seed, int edits, int rest_steps, Tally* tally);
};

/// Chooses edits at random by the present state of a world.
class Surgeon {
 public:
  explicit Surgeon(uint64_t seed) : random_(seed) {}

  /// Bodies of a frame that are not gone.
  static std::vector<size_t> LiveBodies(const World& world) {
    std::vector<size_t> live;
    for (size_t b = 0; b < world.body_statistics().size(); ++b) {
      if (world.body_statistics()[b].tet_count > 0) live.push_back(b);
    }
    return live;
  }

  /// Precondition: something is left.
  Edit Next(const World& world) {
    const std::vector<size_t> live = LiveBodies(world);
    size_t tets = 0;
    for (const size_t b : live) tets += world.body_statistics()[b].tet_count;
    if (stroke_.has_value() && world.body_statistics()[stroke_->body].tet_count > 0 && Chance(0.8)) return GoOn();
    stroke_.reset();
    if (live.size() > kMostPieces) {
      const size_t smallest = *std::min_element(live.begin(), live.end(), [&](size_t a, size_t b) {
        return world.body_statistics()[a].mass_kg < world.body_statistics()[b].mass_kg;
      });
      return {.body = smallest, .what = CarveEdit{BallRegion{Vector3d::Zero(), 10}}};
    }
    const size_t body = Choose(world, live);
    LookAt(world, body);
    const double carve = tets > kMostTets ? 0.85 : tets < kLeastTets ? 0.25 : 0.5;
    const double draw = Uniform(0, 1);
    if (draw < carve) return Carve(body, tets > kMostTets ? 1.5 : 1);
    if (draw < carve + (1 - carve) / 6) return Refine(body, world.body_statistics()[body].tet_count);
    return Incise(body);
  }

  /// One that must be refused.
  Edit Bad(const World& world) {
    switch (static_cast<int>(Uniform(0, 4))) {
      case 0:
        return {.body = world.body_statistics().size(), .what = CarveEdit{BallRegion{Vector3d::Zero(), 1}}};
      case 1:
        return {.body = 0, .what = CarveEdit{BallRegion{Vector3d::Zero(), -1}}};
      case 2:
        return {.body = 0, .what = InciseEdit{{{Vector3d(0, 0, 0), Vector3d(1, 0, 0)}}}};
      default:
        return {.body = 0, .what = RefineEdit{BallRegion{Vector3d(0, NAN, 0), 1}, 0.01, 0}};
    }
  }

  bool Chance(double probability) { return Uniform(0, 1) < probability; }

 private:
  double Uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }
  Vector3d Direction() {
    const double z = Uniform(-1, 1);
    const double angle = Uniform(0, 2 * std::numbers::pi);
    const double r = std::sqrt(1 - z * z);
    return {r * std::cos(angle), r * std::sin(angle), z};
  }

  /// Large pieces more often than small ones.
  size_t Choose(const World& world, const std::vector<size_t>& live) {
    std::vector<double> weights;
    for (const size_t b : live) weights.push_back(std::sqrt(world.body_statistics()[b].tet_count));
    return live[std::discrete_distribution<size_t>(weights.begin(), weights.end())(random_)];
  }

  void LookAt(const World& world, size_t body) {
    const Frame& frame = *world.CurrentFrame();
    const std::vector<uint32_t>& slots = frame.topology->bodies[body]->surface_vertices.values();
    const std::vector<float>& x = frame.surface_positions_m[body];
    box_.setEmpty();
    std::vector<Vector3d> vertices;
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] == kNoSlot) continue;
      vertices.emplace_back(x[3 * i], x[3 * i + 1], x[3 * i + 2]);
      box_.extend(vertices.back());
    }
    place_ = vertices[static_cast<size_t>(Uniform(0, 0.999999) * static_cast<double>(vertices.size()))];
  }

  Edit Carve(size_t body, double scale) {
    const double radius_m = scale * kEdge_m * Uniform(0.2, 0.6);
    const Vector3d center = place_ + radius_m * Uniform(0, 0.7) * Direction();
    if (Chance(0.6)) return {.body = body, .what = CarveEdit{BallRegion{center, radius_m}}};
    const Vector3d half = kEdge_m * Uniform(0.1, 0.8) * Direction();
    return {.body = body, .what = CarveEdit{CapsuleRegion{center - half, center + half, radius_m * 0.7}}};
  }

  Edit Refine(size_t body, size_t tets) {
    // Every third budget or so is too small.
    const auto budget = tets + static_cast<size_t>(Uniform(5, 120));
    return {.body = body, .what = RefineEdit{BallRegion{place_, kEdge_m * Uniform(0.4, 1)}, kEdge_m * Uniform(0.6, 0.9), budget}};
  }

  /// A blade through a place between a vertex and the middle of the body: right through, or not so deep, or not so wide.
  Edit Incise(size_t body) {
    const double size_m = box_.diagonal().norm();
    const bool is_complete = Chance(0.15);
    const Vector3d center = place_ + Uniform(0.1, 1) * (box_.center() - place_);
    const Vector3d way = Direction();
    const Vector3d edge = way.cross(Direction()).normalized();
    const Vector3d normal = way.cross(edge);
    const double half_m = size_m * (is_complete ? 2 : Uniform(0.15, 0.8));
    const double depth_m = size_m * (is_complete ? 1.5 : Uniform(-0.1, 0.4));
    const int sweeps = static_cast<int>(Uniform(1, 4));
    InciseEdit incise;
    const double bend = Chance(0.5) ? Uniform(-0.3, 0.3) : 0;
    for (int i = 0; i <= sweeps; ++i) {
      const double at = static_cast<double>(i) / sweeps;
      const Vector3d middle = center + (at * (depth_m + size_m) - size_m) * way + bend * size_m * at * (1 - at) * normal;
      const Vector3d along = (edge + bend * at * normal).normalized();
      incise.edges_m.push_back({middle - half_m * along, middle + half_m * along});
    }
    if (!is_complete && Chance(0.3)) {
      incise.goes_on = true;
      stroke_ = Stroke{body, incise.edges_m.back(), 0.3 * size_m * way};
    }
    return {.body = body, .what = incise};
  }

  Edit GoOn() {
    InciseEdit incise;
    incise.edges_m.push_back(stroke_->edge_m);
    const Vector3d way = stroke_->way_m * Uniform(0.3, 1) + 0.2 * stroke_->way_m.norm() * Direction();
    for (Vector3d& end : stroke_->edge_m) end += way;
    incise.edges_m.push_back(stroke_->edge_m);
    incise.goes_on = Chance(0.5);
    const size_t body = stroke_->body;
    if (!incise.goes_on) stroke_.reset();
    return {.body = body, .what = incise};
  }

  struct Stroke {
    size_t body = 0;
    std::array<Vector3d, 2> edge_m;
    Vector3d way_m;
  };
  std::mt19937_64 random_;
  std::optional<Stroke> stroke_;
  Eigen::AlignedBox3d box_;
  Vector3d place_{0, 0, 0};
};

std::string Describe(const Edit& edit) {
  const auto text = [](const Vector3d& v) { return absl::StrCat("{", v.x(), ", ", v.y(), ", ", v.z(), "}"); };
  std::string what = absl::StrCat("body ", edit.body, ": ");
  if (const auto* carve = std::get_if<CarveEdit>(&edit.what)) {
    if (const auto* ball = std::get_if<BallRegion>(&carve->region)) {
      absl::StrAppend(&what, "carve ball ", text(ball->center_m), ", ", ball->radius_m);
    } else {
      const auto& capsule = std::get<CapsuleRegion>(carve->region);
      absl::StrAppend(&what, "carve capsule ", text(capsule.end0_m), ", ", text(capsule.end1_m), ", ", capsule.radius_m);
    }
  } else if (const auto* refine = std::get_if<RefineEdit>(&edit.what)) {
    const auto& ball = std::get<BallRegion>(refine->region);
    absl::StrAppend(&what, "refine ball ", text(ball.center_m), ", ", ball.radius_m, " to ", refine->max_edge_m, ", ", refine->tet_budget);
  } else if (const auto* incise = std::get_if<InciseEdit>(&edit.what)) {
    absl::StrAppend(&what, incise->goes_on ? "incise and go on" : "incise");
    for (const auto& at : incise->edges_m) absl::StrAppend(&what, " [", text(at[0]), ", ", text(at[1]), "]");
  }
  return what;
}

Vector3d Position(const std::vector<float>& x, uint32_t vertex) { return {x[3 * vertex], x[3 * vertex + 1], x[3 * vertex + 2]}; }

/// Vertices of surfaces inside tets that they are no corner of. Independent of the counter of crossings: it also finds what was swallowed
/// whole or came through. Where tets are inverted a body overlaps itself without its surface passing through itself; then only vertices of
/// other bodies count.
size_t CountSwallowed(const Frame& frame) {
  struct Vertex {
    Vector3d position_m;
    size_t body = 0;
    uint32_t slot = 0;
  };
  std::vector<Vertex> vertices;
  for (size_t b = 0; b < frame.topology->bodies.size(); ++b) {
    for (const uint32_t v : frame.topology->bodies[b]->surface_vertices) {
      if (v != kNoSlot) vertices.push_back({Position(frame.volume_positions_m[b], v), b, v});
    }
  }
  std::sort(vertices.begin(), vertices.end(), [](const Vertex& a, const Vertex& b) { return a.position_m.x() < b.position_m.x(); });
  constexpr double kInside = 1e-4;  // least barycentric coordinate: positions are floats
  size_t swallowed = 0;
  for (size_t b = 0; b < frame.topology->bodies.size(); ++b) {
    for (const auto& tet : frame.topology->bodies[b]->tets) {
      if (tet == std::array<uint32_t, 4>{}) continue;
      std::array<Vector3d, 4> x;
      Eigen::AlignedBox3d box;
      for (size_t c = 0; c < 4; ++c) box.extend(x[c] = Position(frame.volume_positions_m[b], tet[c]));
      Eigen::Matrix3d frame_of_tet;
      for (int c = 0; c < 3; ++c) frame_of_tet.col(c) = x[static_cast<size_t>(c) + 1] - x[0];
      if (!(frame_of_tet.determinant() > 1e-18)) continue;  // inverted or flat
      const Eigen::Matrix3d inverse = frame_of_tet.inverse();
      auto at = std::lower_bound(vertices.begin(), vertices.end(), box.min().x(),
                                 [](const Vertex& v, double value) { return v.position_m.x() < value; });
      for (; at != vertices.end() && at->position_m.x() <= box.max().x(); ++at) {
        if (!box.contains(at->position_m) ||
            (at->body == b && (frame.inverted_tets > 0 || std::find(tet.begin(), tet.end(), at->slot) != tet.end())))
          continue;
        const Vector3d share = inverse * (at->position_m - x[0]);
        swallowed += share.minCoeff() > kInside && share.sum() < 1 - kInside ? 1 : 0;
      }
    }
  }
  return swallowed;
}

/// Tets that are inverted for sure, and those that rounding may make so: below, and up to, a share of the volume at rest that the shortest
/// edges cannot resolve in positions that are floats.
std::pair<uint32_t, uint32_t> CountInverted(const World& world, const Frame& frame) {
  constexpr double kUnresolved = 1e-3;
  std::pair<uint32_t, uint32_t> count = {0, 0};
  for (size_t b = 0; b < frame.topology->bodies.size(); ++b) {
    const std::vector<Vector3d> rest_m = world.RestPositions(b);
    for (const auto& tet : frame.topology->bodies[b]->tets) {
      if (tet == std::array<uint32_t, 4>{}) continue;
      Eigen::Matrix3d now, rest;
      for (size_t c = 0; c < 3; ++c) {
        now.col(static_cast<int>(c)) = Position(frame.volume_positions_m[b], tet[c + 1]) - Position(frame.volume_positions_m[b], tet[0]);
        rest.col(static_cast<int>(c)) = rest_m[tet[c + 1]] - rest_m[tet[0]];
      }
      const double share = now.determinant() / rest.determinant();
      count.first += share < -kUnresolved ? 1 : 0;
      count.second += share < kUnresolved ? 1 : 0;
    }
  }
  return count;
}

size_t CountTouching(const Frame& frame) {
  std::vector<std::array<float, 3>> places;
  for (size_t b = 0; b < frame.topology->bodies.size(); ++b) {
    const std::vector<uint32_t>& slots = frame.topology->bodies[b]->surface_vertices.values();
    const std::vector<float>& x = frame.surface_positions_m[b];
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] != kNoSlot) places.push_back({x[3 * i], x[3 * i + 1], x[3 * i + 2]});
    }
  }
  const size_t count = places.size();
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return count - places.size();
}

void StressTest::Operate(uint64_t seed, int edits, int rest_steps, Tally* tally) {
  const SceneDescription scene = ThreeOrgansInABox();
  ASSERT_EQ(scene.bodies.size(), 3U);
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  world->SetVolumeWanted(true);
  Surgeon surgeon(seed);
  double start_kg = 0;
  double start_j = 0;
  double top_m = 0;
  double fastest_wave_m_per_s = 0;
  for (const BodyDescription& body : scene.bodies) {
    const Material& m = body.material;
    const double modulus_pa = m.young_modulus_pa * (1 - m.poisson_ratio) / ((1 + m.poisson_ratio) * (1 - 2 * m.poisson_ratio));
    fastest_wave_m_per_s = std::max(fastest_wave_m_per_s, std::sqrt(modulus_pa / m.density_kg_per_m3));
    for (const auto& tet : body.mesh.tets) {
      std::array<Vector3d, 4> x;
      for (size_t c = 0; c < 4; ++c) x[c] = body.mesh.vertices[tet[c]];
      const double mass_kg = m.density_kg_per_m3 * (x[1] - x[0]).cross(x[2] - x[0]).dot(x[3] - x[0]) / 6;
      start_kg += mass_kg;
      start_j += mass_kg * kGravity * (x[0] + x[1] + x[2] + x[3]).z() / 4;
    }
    for (const Vector3d& v : body.mesh.vertices) top_m = std::max(top_m, v.z());
  }
  // All begins at rest and without stress, and nothing but gravity does work: edits only take energy away with the tissue, implicit steps
  // and friction lose some, and gravity, elasticity and contact store no negative amount. So motion never has more than the height above
  // the floor gave. That bound says little of small pieces: none of them is faster than a fall from the top makes it, and what a strain of
  // 0.3 that is let go adds, which is that share of the speed of the fastest wave.
  const double fastest_m_per_s = std::sqrt(2 * kGravity * top_m) + 0.3 * fastest_wave_m_per_s;

  const auto check = [&](const Frame& frame) {
    ASSERT_TRUE(std::isfinite(frame.kinetic_energy_j));
    ASSERT_TRUE(std::isfinite(frame.max_speed_m_per_s));
    ASSERT_EQ(frame.contact_statistics.intersection_count, 0U) << frame.inverted_tets << " inverted tets";
    tally->most_inverted = std::max(tally->most_inverted, frame.inverted_tets);
    const auto [surely_inverted, maybe_inverted] = CountInverted(*world, frame);
    ASSERT_GE(frame.inverted_tets, surely_inverted);
    ASSERT_LE(frame.inverted_tets, maybe_inverted);
    tally->peak_kinetic_j = std::max(tally->peak_kinetic_j, frame.kinetic_energy_j);
    tally->peak_speed_m_per_s = std::max(tally->peak_speed_m_per_s, frame.max_speed_m_per_s);
    ASSERT_LE(frame.kinetic_energy_j, start_j);
    ASSERT_LE(frame.max_speed_m_per_s, fastest_m_per_s);
    for (size_t b = 0; b < frame.volume_positions_m.size(); ++b) {
      for (const auto& tet : frame.topology->bodies[b]->tets) {
        if (tet == std::array<uint32_t, 4>{}) continue;
        for (const uint32_t v : tet) {
          const Vector3d x = Position(frame.volume_positions_m[b], v);
          ASSERT_TRUE(x.allFinite());
          ASSERT_GE(x.z(), -1e-6);
          ASSERT_LE(std::abs(x.x()), kHalfWidth_m + 1e-6);
          ASSERT_LE(std::abs(x.y()), kHalfDepth_m + 1e-6);
          ASSERT_LE(x.z(), 2 * top_m);
        }
      }
    }
  };
  const auto step = [&] {
    PALPATE_TEST_ASSIGN(const auto frame, world->Step({}));
    ASSERT_NO_FATAL_FAILURE(check(*frame));
  };
  for (int i = 0; i < 30; ++i) ASSERT_NO_FATAL_FAILURE(step());

  for (int e = 0; e < edits && !Surgeon::LiveBodies(*world).empty(); ++e) {
    if (surgeon.Chance(0.03)) {
      const auto before = world->CurrentFrame();
      const std::vector<Edit> bad = {surgeon.Bad(*world)};
      ASSERT_FALSE(world->Apply(bad).ok());
      ASSERT_EQ(world->CurrentFrame(), before);
      ++tally->invalid;
    }
    const Edit edit = surgeon.Next(*world);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", edit ", e, ", ", Describe(edit)));
    const auto before = world->CurrentFrame();
    const std::vector<Edit> now = {edit};
    PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(now));
    const EditOutcome& outcome = outcomes[0];
    const auto after = world->CurrentFrame();
    if (outcome.removed_tets.empty() && outcome.added_tets.empty()) {
      ASSERT_EQ(after->state_hash, before->state_hash);
      ASSERT_EQ(after->topology_version, before->topology_version);
      ++(outcome.is_refused ? tally->refused : tally->idle);
    } else {
      ++tally->accepted;
      tally->carved += std::holds_alternative<CarveEdit>(edit.what) ? 1 : 0;
      tally->incised += std::holds_alternative<InciseEdit>(edit.what) ? 1 : 0;
      tally->refined += std::holds_alternative<RefineEdit>(edit.what) ? 1 : 0;
    }
    tally->removed_tets += outcome.removed_tets.size();
    tally->added_tets += outcome.added_tets.size();
    tally->removed_kg += outcome.removed_mass_kg;
    if (!std::holds_alternative<CarveEdit>(edit.what)) {
      ASSERT_NEAR(outcome.removed_mass_kg, 0, 1e-12 * start_kg);
    }
    double mass_kg = tally->removed_kg;
    size_t tets = 0;
    for (const BodyStatistics& body : world->body_statistics()) {
      mass_kg += body.mass_kg;
      tets += body.tet_count;
    }
    tally->most_tets = std::max(tally->most_tets, tets);
    tally->most_pieces = std::max(tally->most_pieces, Surgeon::LiveBodies(*world).size());
    tally->worst_mass = std::max(tally->worst_mass, std::abs(mass_kg - start_kg) / start_kg);
    ASSERT_LT(tally->worst_mass, 1e-9);
    tally->most_touching = std::max(tally->most_touching, CountTouching(*after));
    // Interpolated velocities of new vertices have no more energy than what they come from, but for rounding.
    if (before->kinetic_energy_j > 0) {
      tally->worst_growth = std::max(tally->worst_growth, after->kinetic_energy_j / before->kinetic_energy_j - 1);
    }
    ASSERT_LT(tally->worst_growth, 1e-5);
    // New tets deform as what they come from.
    if (before->inverted_tets == 0) {
      ASSERT_EQ(CountInverted(*world, *after).first, 0U);
    }
    ASSERT_NO_FATAL_FAILURE(check(*after));
    ASSERT_NO_FATAL_FAILURE(test::CheckTopology(*world, before->topology.get()));
    ASSERT_FALSE(testing::Test::HasFailure());
    for (int i = 0; i < kStepsPerEdit; ++i) {
      SCOPED_TRACE(absl::StrCat("step ", i));
      ASSERT_NO_FATAL_FAILURE(step());
    }
    tally->hashes.push_back(world->CurrentFrame()->state_hash);
    if (e % 20 == 19) {
      ASSERT_EQ(CountSwallowed(*world->CurrentFrame()), 0U);
    }
    if (e % 100 == 99) {
      std::printf("edit %d: %zu pieces, %zu tets, %.1f g, kinetic %.2e J, speed %.2f m/s, inverted %u\n", e + 1,
                  Surgeon::LiveBodies(*world).size(), tets, 1e3 * (start_kg - tally->removed_kg), world->CurrentFrame()->kinetic_energy_j,
                  world->CurrentFrame()->max_speed_m_per_s, world->CurrentFrame()->inverted_tets);
      std::fflush(stdout);
    }
  }
  std::vector<double> floor_n_of_steps;
  if (rest_steps == 0) return;
  for (int i = 0; i < rest_steps; ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", rest, step ", i));
    ASSERT_NO_FATAL_FAILURE(step());
    if (i < rest_steps - kWeighingSteps) continue;
    double floor_n = 0;
    for (const FrameContact& contact : world->CurrentFrame()->contacts) floor_n += contact.force_n.z();
    floor_n_of_steps.push_back(floor_n);
  }
  // The median is what lies there; the largest tells of steps that did not balance.
  std::sort(floor_n_of_steps.begin(), floor_n_of_steps.end());
  tally->rest_floor_n = floor_n_of_steps[floor_n_of_steps.size() / 2];
  tally->most_floor_n = floor_n_of_steps.back();
  tally->rest_inverted = world->CurrentFrame()->inverted_tets;
  tally->rest_kinetic_j = world->CurrentFrame()->kinetic_energy_j;
  tally->rest_weight_n = kGravity * (start_kg - tally->removed_kg);
}

void Print(uint64_t seed, const Tally& t) {
  std::printf(
      "seed %llu: %d edits did something (%d carved, %d incised, %d refined), %d met nothing, %d refused by a budget, %d invalid\n"
      "  %zu tets removed, %zu added, at most %zu tets in %zu pieces, %u inverted; %.1f g removed, mass off by %.1e\n"
      "  kinetic energy at most %.2e J, speed %.2f m/s; by an edit at most +%.1e of it; at rest %.1e J, %.3f N (at most %.3f N) on the "
      "floor of %.3f N; %zu "
      "vertices touch\n",
      static_cast<unsigned long long>(seed), t.accepted, t.carved, t.incised, t.refined, t.idle, t.refused, t.invalid, t.removed_tets,
      t.added_tets, t.most_tets, t.most_pieces, t.most_inverted, 1e3 * t.removed_kg, t.worst_mass, t.peak_kinetic_j, t.peak_speed_m_per_s,
      t.worst_growth, t.rest_kinetic_j, t.rest_floor_n, t.most_floor_n, t.rest_weight_n, t.most_touching);
}

/// $PALPATE_STRESS_SEED chooses another course.
TEST_F(StressTest, ThreeOrgansSurviveAThousandEdits) {
  const char* const given = std::getenv("PALPATE_STRESS_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  Tally tally;
  Operate(seed, 1000, kRestSteps, &tally);
  Print(seed, tally);
  if (HasFatalFailure()) return;
  EXPECT_GT(tally.accepted, 700);
  EXPECT_EQ(tally.rest_inverted, 0U) << "tissue that was turned inside out turns back (at most " << tally.most_inverted << " tets were)";
  EXPECT_LT(tally.rest_kinetic_j, 0.01 * tally.peak_kinetic_j);
  EXPECT_NEAR(tally.rest_floor_n, tally.rest_weight_n, 0.15 * tally.rest_weight_n) << "walls carry some by friction";
  EXPECT_LT(tally.most_floor_n, 1.5 * tally.rest_weight_n) << "no step at rest feels a blow";
}

TEST_F(StressTest, SameEditsGiveTheSameBits) {
  Tally first;
  Tally second;
  ASSERT_NO_FATAL_FAILURE(Operate(77, 60, 0, &first));
  ASSERT_NO_FATAL_FAILURE(Operate(77, 60, 0, &second));
  EXPECT_EQ(first.hashes, second.hashes);
  EXPECT_EQ(first.most_inverted, second.most_inverted);
  EXPECT_EQ(first.most_touching, 0U) << "copies that were not drawn apart hold each other, and the tissue around them, where they are";
}

}  // namespace
}  // namespace palpate::sim::stress_test
