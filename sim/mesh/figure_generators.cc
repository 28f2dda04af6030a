#include "sim/mesh/figure_generators.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numbers>
#include <span>
#include <tuple>
#include <utility>

#include <Eigen/Geometry>

#include "absl/strings/str_cat.h"
#include "sim/mesh/isosurface_stuffing.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

constexpr double kLeastHeight_m = 0.1;
constexpr double kMostHeight_m = 3;
constexpr double kLeastGap_m = 0.002;
constexpr double kMostGap_m = 0.015;
constexpr double kGapHeight_m = 1.7;  // of the figure that has this gap

// The shapes below are those of a figure of height 1.

constexpr double kArmAngle = 35 * std::numbers::pi / 180;  // away from the body
const Vector3d kArmDirection(std::sin(kArmAngle), 0, -std::cos(kArmAngle));
const Vector3d kShoulder(0.106, 0.006, 0.782);
const Vector3d kElbow = kShoulder + 0.172 * kArmDirection;
const Vector3d kWrist = kElbow + Vector3d(0.08, -0.014, -0.118);
const Vector3d kHip(0.06, 0, 0.51);
const Vector3d kKnee(0.08, -0.004, 0.283);
const Vector3d kAnkle(0.092, 0.008, 0.05);
const Vector3d kWaist(0, 0, 0.61);
const Vector3d kNeck(0, 0.008, 0.845);

constexpr double kSleeve = 0.12;         // length from the shoulder
constexpr double kLegSeparation = 0.03;  // distance from the middle plane where a leg begins to have its full weight
constexpr double kRootBand = 0.08;       // of the difference of the distances from a limb and from the rest, over which its weight grows
constexpr double kCoarsestLattice = 1.0 / 80;  // resolves fingers, armpits and crotch
constexpr double kRemeshedEdge = 0.98;         // length that remeshing aims at for a mean edge of 1
constexpr double kAnyLength = std::numeric_limits<double>::max();

enum Chain { kTrunk, kLeftArm, kRightArm, kLeftLeg, kRightLeg, kChainCount };

// The hull of two balls.
struct RoundCone {
  Vector3d a;
  double radius_a;
  Vector3d b;
  double radius_b;
  double blend;   // width of the fillet to what comes before
  Chain chain;    // a limb: the left one
  bool has_twin;  // there is another one, mirrored at the middle plane
  bool is_worn;   // the dress goes round it
};

const Vector3d kKnuckles = kWrist + Vector3d(0.018, -0.012, -0.032);
const Vector3d kCalf(0.085, 0.008, 0.22);
const std::array<RoundCone, 17> kFigure = {{
    {{0, 0.004, 0.735}, 0.058, {0, 0, 0.62}, 0.05, 0.02, kTrunk, false, true},                         // middle of the chest
    {{0.046, 0.004, 0.735}, 0.058, {0.034, 0, 0.62}, 0.048, 0.02, kTrunk, true, true},                 // chest
    {{0, 0, 0.62}, 0.05, {0, 0.004, 0.535}, 0.06, 0.02, kTrunk, false, true},                          // middle of the belly
    {{0.034, 0, 0.62}, 0.048, {0.046, 0.006, 0.535}, 0.06, 0.02, kTrunk, true, true},                  // belly
    {{0.02, 0.012, 0.806}, 0.036, kShoulder, 0.03, 0.02, kTrunk, true, true},                          // collar
    {{0.038, -0.034, 0.726}, 0.031, {0.026, -0.014, 0.69}, 0.034, 0.03, kTrunk, true, true},           // breast
    {{0.042, 0.026, 0.515}, 0.045, {0.03, 0.016, 0.56}, 0.045, 0.03, kTrunk, true, true},              // seat
    {{0, 0.014, 0.8}, 0.034, {0, 0.002, 0.9}, 0.028, 0.03, kTrunk, false, true},                       // neck
    {{0, 0.006, 0.94}, 0.06, {0, -0.02, 0.898}, 0.034, 0.02, kTrunk, false, false},                    // head
    {kShoulder, 0.031, kElbow, 0.023, 0.012, kLeftArm, true, false},                                   // upper arm
    {kElbow, 0.023, kWrist, 0.0175, 0.01, kLeftArm, true, false},                                      // forearm
    {kWrist, 0.0175, kKnuckles, 0.0195, 0.01, kLeftArm, true, false},                                  // palm
    {kKnuckles, 0.0195, kWrist + Vector3d(0.03, -0.026, -0.068), 0.016, 0.01, kLeftArm, true, false},  // fingers
    {kHip, 0.049, kKnee, 0.032, 0.015, kLeftLeg, true, true},                                          // thigh
    {kKnee, 0.031, kCalf, 0.034, 0.015, kLeftLeg, true, true},                                         // calf
    {kCalf, 0.034, kAnkle, 0.021, 0.015, kLeftLeg, true, true},                                        // shin
    {{0.093, 0.018, 0.022}, 0.022, {0.104, -0.078, 0.018}, 0.018, 0.015, kLeftLeg, true, false},       // foot
}};

struct Field {
  double distance;
  Vector3d gradient;
};

/// The least distance from a ball between the two: the one in whose direction the side of the cone is at right angles.
Field RoundConeField(const RoundCone& cone, const Vector3d& x) {
  const Vector3d axis = cone.b - cone.a;
  const double length_sq = axis.squaredNorm();
  const double taper = cone.radius_a - cone.radius_b;
  const double along = (x - cone.a).dot(axis) / length_sq;
  const double across = (x - cone.a - along * axis).norm();
  const double t = std::clamp(along - across * taper / std::sqrt((length_sq - taper * taper) * length_sq), 0.0, 1.0);
  const Vector3d from_center = x - cone.a - t * axis;
  const double distance = from_center.norm();
  return {distance - cone.radius_a + t * taper, from_center / std::max(distance, 1e-12)};
}

Vector3d Mirrored(const Vector3d& x) { return {-x.x(), x.y(), x.z()}; }

/// The smooth union of the cones. Its gradient is a mean of theirs.
Field UnionField(std::span<const RoundCone> cones, const Vector3d& x) {
  Field field = {10, Vector3d::Zero()};
  for (const RoundCone& cone : cones) {
    for (int side = 0; side < (cone.has_twin ? 2 : 1); ++side) {
      Field next = RoundConeField(cone, side == 0 ? x : Mirrored(x));
      if (side == 1) next.gradient = Mirrored(next.gradient);
      const double h = std::max(1 - std::abs(field.distance - next.distance) / cone.blend, 0.0);
      if (next.distance < field.distance) std::swap(field, next);
      field.distance -= h * h * cone.blend / 4;
      field.gradient += h / 2 * (next.gradient - field.gradient);
    }
  }
  return field;
}

double SmoothStep(double x) {
  const double t = std::clamp(x, 0.0, 1.0);
  return t * t * (3 - 2 * t);
}

// ---- Weights ----

enum Part { kPelvis, kTorso, kHead, kLimbParts };

std::vector<FigurePart> Parts() {
  std::vector<FigurePart> parts = {{"pelvis", -1, {0, 0.004, 0.54}}, {"torso", kPelvis, kWaist}, {"head", kTorso, kNeck}};
  for (const auto& [upper, lower, parent, joint, middle] :
       {std::tuple("upper_arm", "forearm", kTorso, kShoulder, kElbow), std::tuple("thigh", "shin", kPelvis, kHip, kKnee)}) {
    for (const bool is_left : {true, false}) {
      const std::string side = is_left ? "left_" : "right_";
      const int index = static_cast<int>(parts.size());
      parts.push_back({side + upper, parent, is_left ? joint : Mirrored(joint)});
      parts.push_back({side + lower, index, is_left ? middle : Mirrored(middle)});
    }
  }
  return parts;
}

/// How far a point is past the plane through a joint, as a weight of what lies beyond.
double Beyond(const Vector3d& x, const Vector3d& joint, const Vector3d& direction) {
  return SmoothStep((x - joint).dot(direction.normalized()) / kFigureJointBand + 0.5);
}

/// A limb has its share where it is nearer than everything else, so that it begins where its skin does, in the armpit and the crotch too.
std::vector<PartWeight> WeightsAt(const Vector3d& x) {
  std::array<double, kChainCount> distance;
  distance.fill(10);
  for (const RoundCone& cone : kFigure) {
    distance[cone.chain] = std::min(distance[cone.chain], RoundConeField(cone, x).distance);
    if (!cone.has_twin) continue;
    double& twin = distance[cone.chain == kTrunk ? kTrunk : cone.chain + 1];
    twin = std::min(twin, RoundConeField(cone, Mirrored(x)).distance);
  }
  std::array<double, kLimbParts + 8> weights{};
  double trunk = 1;
  for (int limb = kLeftArm; limb < kChainCount; ++limb) {
    double nearest_other = 10;
    for (int other = 0; other < kChainCount; ++other) {
      if (other != limb) nearest_other = std::min(nearest_other, distance[other]);
    }
    const Vector3d on_left = limb == kLeftArm || limb == kLeftLeg ? x : Mirrored(x);
    // The last factor keeps the legs apart where they meet.
    const double share = SmoothStep((nearest_other - distance[limb]) / kRootBand + 0.5) * SmoothStep(on_left.x() / kLegSeparation);
    const double lower = limb <= kRightArm ? Beyond(on_left, kElbow, kWrist - kShoulder) : Beyond(on_left, kKnee, kAnkle - kHip);
    const int part = kLimbParts + 2 * (limb - kLeftArm);
    weights[part] = share * (1 - lower);
    weights[part + 1] = share * lower;
    trunk *= 1 - share;
  }
  const double head = Beyond(x, kNeck, {0, -0.35, 1});
  const double pelvis = 1 - Beyond(x, kWaist, Vector3d::UnitZ());
  weights[kPelvis] = trunk * pelvis;
  weights[kHead] = trunk * head;
  weights[kTorso] = trunk * std::max(1 - pelvis - head, 0.0);
  double sum = 0;
  for (double& w : weights) {
    if (w < 1e-6) w = 0;
    sum += w;
  }
  std::vector<PartWeight> out;
  for (uint32_t part = 0; part < weights.size(); ++part) {
    if (weights[part] > 0) out.push_back({part, static_cast<float>(weights[part] / sum)});
  }
  return out;
}

// ---- Surfaces ----

/// Where a surface ends: a plane, whose normal points to what is cut off. If the index of a cone is given, it holds where that, or its twin
/// on the side that the normal points to, is the nearest one.
struct Cut {
  Vector3d point;
  Vector3d normal;
  uint32_t limb = kNone;
};

struct Shape {
  std::vector<RoundCone> cones;
  std::vector<Cut> cuts;
};

/// A surface in the making: of each vertex the cut it lies on.
struct Draft {
  SurfaceMesh mesh;
  std::vector<uint32_t> cut_of;
};

struct Edge {
  uint32_t low, high, triangle, opposite;  // the corner of the triangle that is not on the edge
};

/// Each triangle's sides, those of one edge beside each other.
std::vector<Edge> EdgesOf(const SurfaceMesh& mesh) {
  std::vector<Edge> edges;
  for (uint32_t t = 0; t < mesh.triangles.size(); ++t) {
    for (size_t k = 0; k < 3; ++k) {
      const auto [low, high] = std::minmax(mesh.triangles[t][k], mesh.triangles[t][(k + 1) % 3]);
      edges.push_back({low, high, t, mesh.triangles[t][(k + 2) % 3]});
    }
  }
  std::sort(edges.begin(), edges.end(),
            [](const Edge& a, const Edge& b) { return std::tie(a.low, a.high, a.triangle) < std::tie(b.low, b.high, b.triangle); });
  return edges;
}

bool IsTwin(const std::vector<Edge>& edges, size_t i) {
  return i + 1 < edges.size() && edges[i].low == edges[i + 1].low && edges[i].high == edges[i + 1].high;
}

/// Moves a vertex onto the surface by a step of Newton's method, within the plane of its cut if it has one.
void Project(const Shape& shape, uint32_t cut, Vector3d* x) {
  auto [distance, gradient] = UnionField(shape.cones, *x);
  if (cut != kNone) gradient -= gradient.dot(shape.cuts[cut].normal) * shape.cuts[cut].normal;
  *x -= distance / std::max(gradient.squaredNorm(), 0.1) * gradient;
}

Vector3d NormalOf(const Vector3d& a, const Vector3d& b, const Vector3d& c) { return (b - a).cross(c - a); }

/// Whether a triangle may take the place of one with the normal `before`: it must not be folded over.
bool IsTurnedAlike(const Vector3d& normal, const Vector3d& before) { return normal.dot(before) > 0.5 * normal.norm() * before.norm(); }

/// Halves the edges longer than `longest`, at most one of each triangle.
void SplitEdges(const Shape& shape, double longest, Draft* draft) {
  std::vector<Vector3d>& x = draft->mesh.vertices;
  auto& triangles = draft->mesh.triangles;
  const std::vector<Edge> edges = EdgesOf(draft->mesh);
  std::vector<uint8_t> is_split(triangles.size(), 0);
  for (size_t i = 0; i < edges.size(); ++i) {
    const auto& [low, high, triangle, opposite] = edges[i];
    const bool has_twin = IsTwin(edges, i);
    i += has_twin ? 1 : 0;
    if ((x[high] - x[low]).norm() <= longest || is_split[triangle] + is_split[edges[i].triangle] > 0) continue;
    const auto middle = static_cast<uint32_t>(x.size());
    x.push_back((x[low] + x[high]) / 2);
    draft->cut_of.push_back(has_twin ? kNone : draft->cut_of[low]);
    Project(shape, draft->cut_of.back(), &x.back());
    for (size_t side = i - (has_twin ? 1 : 0); side <= i; ++side) {
      std::array<uint32_t, 3> second = triangles[edges[side].triangle];
      std::replace(triangles[edges[side].triangle].begin(), triangles[edges[side].triangle].end(), low, middle);
      std::replace(second.begin(), second.end(), high, middle);
      triangles.push_back(second);
      is_split[edges[side].triangle] = 1;
    }
  }
}

/// Drops the triangles that name a vertex twice, and the vertices without triangles.
void Compact(Draft* draft) {
  std::erase_if(draft->mesh.triangles, [](const auto& t) { return t[0] == t[1] || t[1] == t[2] || t[2] == t[0]; });
  std::vector<uint32_t> renamed(draft->mesh.vertices.size(), kNone);
  for (const auto& triangle : draft->mesh.triangles) {
    for (const uint32_t v : triangle) renamed[v] = 0;
  }
  uint32_t count = 0;
  for (size_t v = 0; v < renamed.size(); ++v) {
    if (renamed[v] == kNone) continue;
    draft->mesh.vertices[count] = draft->mesh.vertices[v];
    draft->cut_of[count] = draft->cut_of[v];
    renamed[v] = count++;
  }
  draft->mesh.vertices.resize(count);
  draft->cut_of.resize(count);
  for (auto& triangle : draft->mesh.triangles) {
    for (uint32_t& v : triangle) v = renamed[v];
  }
}

std::vector<std::vector<uint32_t>> TrianglesAround(const SurfaceMesh& mesh) {
  std::vector<std::vector<uint32_t>> around(mesh.vertices.size());
  for (uint32_t t = 0; t < mesh.triangles.size(); ++t) {
    for (const uint32_t v : mesh.triangles[t]) around[v].push_back(t);
  }
  return around;
}

/// The vertices of some triangles, each once, ascending.
std::vector<uint32_t> CornersOf(const SurfaceMesh& mesh, const std::vector<uint32_t>& triangles) {
  std::vector<uint32_t> corners;
  for (const uint32_t t : triangles) corners.insert(corners.end(), mesh.triangles[t].begin(), mesh.triangles[t].end());
  std::sort(corners.begin(), corners.end());
  corners.erase(std::unique(corners.begin(), corners.end()), corners.end());
  return corners;
}

/// Whether the triangles of one end of an edge, which is to move to `to`, stay sound: those with the other end vanish.
bool CanMove(const SurfaceMesh& mesh, const std::vector<uint32_t>& triangles, uint32_t from, uint32_t other, const Vector3d& to,
             double longest) {
  for (const uint32_t t : triangles) {
    std::array<uint32_t, 3> v = mesh.triangles[t];
    std::rotate(v.begin(), std::find(v.begin(), v.end(), from), v.end());
    if (v[1] == other || v[2] == other) continue;
    const Vector3d& b = mesh.vertices[v[1]];
    const Vector3d& c = mesh.vertices[v[2]];
    if ((b - to).norm() > longest || (c - to).norm() > longest) return false;
    if (!IsTurnedAlike(NormalOf(to, b, c), NormalOf(mesh.vertices[from], b, c))) return false;
  }
  return true;
}

/// Joins the ends of edges shorter than `shortest` where neither the topology nor a boundary suffers.
void CollapseEdges(const Shape& shape, double shortest, double longest, Draft* draft) {
  SurfaceMesh& mesh = draft->mesh;
  const std::vector<Edge> edges = EdgesOf(mesh);
  const auto around = TrianglesAround(mesh);
  std::vector<uint8_t> is_locked(mesh.vertices.size(), 0);
  for (size_t i = 0; i < edges.size(); ++i) {
    uint32_t keep = edges[i].low;
    uint32_t drop = edges[i].high;
    const bool has_twin = IsTwin(edges, i);
    i += has_twin ? 1 : 0;
    if ((mesh.vertices[keep] - mesh.vertices[drop]).norm() >= shortest) continue;
    if (draft->cut_of[keep] == kNone) std::swap(keep, drop);
    const bool is_pinned = draft->cut_of[keep] != kNone && draft->cut_of[drop] == kNone;
    if (has_twin && draft->cut_of[keep] != kNone && !is_pinned) continue;
    const std::vector<uint32_t> ring = CornersOf(mesh, around[keep]);
    const std::vector<uint32_t> other_ring = CornersOf(mesh, around[drop]);
    std::vector<uint32_t> both;
    std::set_intersection(ring.begin(), ring.end(), other_ring.begin(), other_ring.end(), std::back_inserter(both));
    if (both.size() != (has_twin ? 4 : 3)) continue;  // the ends, and the corners opposite
    const auto locked = [&](uint32_t v) { return is_locked[v] != 0; };
    if (std::any_of(ring.begin(), ring.end(), locked) || std::any_of(other_ring.begin(), other_ring.end(), locked)) continue;
    Vector3d to = mesh.vertices[keep];
    if (!is_pinned) {
      to = (to + mesh.vertices[drop]) / 2;
      Project(shape, draft->cut_of[keep], &to);
    }
    if (!CanMove(mesh, around[keep], keep, drop, to, longest) || !CanMove(mesh, around[drop], drop, keep, to, longest)) continue;
    mesh.vertices[keep] = to;
    for (const uint32_t t : around[drop]) std::replace(mesh.triangles[t].begin(), mesh.triangles[t].end(), drop, keep);
    for (const uint32_t v : ring) is_locked[v] = 1;
    for (const uint32_t v : other_ring) is_locked[v] = 1;
  }
  Compact(draft);
}

/// Gives edges to the other two corners of their triangles where that brings vertices nearer to six edges (four at a boundary), or,
/// `by_angle`, where their angles opposite the edge are together more than two right angles.
void FlipEdges(bool by_angle, Draft* draft) {
  SurfaceMesh* mesh = &draft->mesh;
  const std::vector<Edge> edges = EdgesOf(*mesh);
  std::vector<int> excess(mesh->vertices.size(), -6);
  std::vector<std::array<uint32_t, 2>> known;
  for (size_t i = 0; i < edges.size(); ++i) {
    known.push_back({edges[i].low, edges[i].high});
    const bool has_twin = IsTwin(edges, i);
    for (const uint32_t v : {edges[i].low, edges[i].high}) excess[v] += has_twin ? 1 : 2;
    i += has_twin ? 1 : 0;
  }
  std::vector<uint8_t> is_locked(mesh->vertices.size(), 0);
  for (size_t i = 0; i + 1 < edges.size(); ++i) {
    if (!IsTwin(edges, i)) continue;
    uint32_t a = edges[i].low, b = edges[i].high;
    const uint32_t c = edges[i].opposite, d = edges[i + 1].opposite;
    if (is_locked[a] + is_locked[b] + is_locked[c] + is_locked[d] > 0) continue;
    // What the square of an excess grows by; boundaries count more, since their angles suffer more.
    const auto growth = [&](uint32_t v, int change) { return (draft->cut_of[v] == kNone ? 1 : 2) * (2 * change * excess[v] + 1); };
    if (!by_angle && growth(a, -1) + growth(b, -1) + growth(c, 1) + growth(d, 1) >= 0) continue;
    // Together more than two right angles: the sum of the cosines is negative.
    const auto cosine = [&](uint32_t v) {
      return (mesh->vertices[a] - mesh->vertices[v]).normalized().dot((mesh->vertices[b] - mesh->vertices[v]).normalized());
    };
    if (by_angle && cosine(c) + cosine(d) >= -0.05) continue;
    if (std::binary_search(known.begin(), known.end(), std::array{std::min(c, d), std::max(c, d)})) continue;
    std::array<uint32_t, 3>& first = mesh->triangles[edges[i].triangle];
    std::array<uint32_t, 3>& second = mesh->triangles[edges[i + 1].triangle];
    // The first triangle is to run a b c.
    if (first[(std::find(first.begin(), first.end(), a) - first.begin() + 1) % 3] != b) std::swap(a, b);
    const auto& x = mesh->vertices;
    const Vector3d before = NormalOf(x[a], x[b], x[c]).normalized() + NormalOf(x[b], x[a], x[d]).normalized();
    if (!IsTurnedAlike(NormalOf(x[a], x[d], x[c]), before) || !IsTurnedAlike(NormalOf(x[d], x[b], x[c]), before)) continue;
    first = {a, d, c};
    second = {d, b, c};
    for (const uint32_t v : {a, b, c, d}) is_locked[v] = 1;
    --excess[a], --excess[b], ++excess[c], ++excess[d];
  }
}

/// Moves each vertex to the middle of its neighbours (at a boundary: of those along it), and back onto the surface.
void Relax(const Shape& shape, Draft* draft) {
  const std::vector<Edge> edges = EdgesOf(draft->mesh);
  const auto around = TrianglesAround(draft->mesh);
  std::vector<std::vector<uint32_t>> neighbours(draft->mesh.vertices.size());
  for (size_t i = 0; i < edges.size(); ++i) {
    const auto& [low, high, triangle, opposite] = edges[i];
    const bool has_twin = IsTwin(edges, i);
    i += has_twin ? 1 : 0;
    if (!has_twin || draft->cut_of[low] == kNone) neighbours[low].push_back(high);
    if (!has_twin || draft->cut_of[high] == kNone) neighbours[high].push_back(low);
  }
  for (size_t v = 0; v < neighbours.size(); ++v) {
    Vector3d middle = Vector3d::Zero();
    for (const uint32_t n : neighbours[v]) middle += draft->mesh.vertices[n] / static_cast<double>(neighbours[v].size());
    Project(shape, draft->cut_of[v], &middle);
    if (CanMove(draft->mesh, around[v], static_cast<uint32_t>(v), kNone, middle, kAnyLength)) draft->mesh.vertices[v] = middle;
  }
}

/// Nearly regular triangles of nearly that edge length: rounds of local changes (Botsch and Kobbelt, "A Remeshing Approach to
/// Multiresolution Modeling", 2004).
void Remesh(const Shape& shape, double edge, int rounds, Draft* draft) {
  constexpr int kSettlingRounds = 5;
  const double longest = 4.0 / 3 * edge;
  for (int round = 0; round < rounds + kSettlingRounds; ++round) {
    if (round < rounds) {
      SplitEdges(shape, longest, draft);
      // A pass leaves alone what is beside a change.
      for (size_t before = 2 * draft->cut_of.size(); 50 * draft->cut_of.size() < 49 * before;) {
        before = draft->cut_of.size();
        CollapseEdges(shape, 0.8 * edge, longest, draft);
      }
    }
    FlipEdges(round + 2 >= rounds + kSettlingRounds, draft);
    Relax(shape, draft);
  }
  for (int i = 0; i < 2; ++i) {
    for (size_t v = 0; v < draft->cut_of.size(); ++v) Project(shape, draft->cut_of[v], &draft->mesh.vertices[v]);
  }
}

/// How far a point of the surface is past a cut; negative where the cut does not hold.
double PastCut(const Shape& shape, const Cut& cut, const Vector3d& x) {
  if (cut.limb != kNone) {
    const bool is_left = cut.normal.x() > 0;
    const double limb = RoundConeField(shape.cones[cut.limb], is_left ? x : Mirrored(x)).distance;
    for (uint32_t c = 0; c < shape.cones.size(); ++c) {
      if ((c != cut.limb || !is_left) && RoundConeField(shape.cones[c], x).distance <= limb) return -1;
      if ((c != cut.limb || is_left) && RoundConeField(shape.cones[c], Mirrored(x)).distance <= limb) return -1;
    }
  }
  return cut.normal.dot(x - cut.point);
}

/// Ends the surface at a cut. Vertices near its plane are moved into it, so that no small pieces remain.
void Clip(const Shape& shape, uint32_t cut, double edge, Draft* draft) {
  SurfaceMesh& mesh = draft->mesh;
  std::vector<double> past;
  for (size_t v = 0; v < mesh.vertices.size(); ++v) {
    past.push_back(PastCut(shape, shape.cuts[cut], mesh.vertices[v]));
    if (std::abs(past[v]) > 0.3 * edge) continue;
    mesh.vertices[v] -= past[v] * shape.cuts[cut].normal;
    Project(shape, cut, &mesh.vertices[v]);
    past[v] = 0;
    draft->cut_of[v] = cut;
  }
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> crossings;
  const auto crossing = [&](uint32_t a, uint32_t b) {
    const auto [found, is_new] = crossings.try_emplace(std::minmax(a, b), static_cast<uint32_t>(mesh.vertices.size()));
    if (is_new) {
      Vector3d x = mesh.vertices[a] + past[a] / (past[a] - past[b]) * (mesh.vertices[b] - mesh.vertices[a]);
      Project(shape, cut, &x);
      mesh.vertices.push_back(x);
      draft->cut_of.push_back(cut);
    }
    return found->second;
  };
  std::vector<std::array<uint32_t, 3>> kept;
  for (const auto& triangle : mesh.triangles) {
    std::vector<uint32_t> polygon;
    for (size_t k = 0; k < 3; ++k) {
      const uint32_t a = triangle[k];
      const uint32_t b = triangle[(k + 1) % 3];
      if (past[a] <= 0) polygon.push_back(a);
      if (past[a] * past[b] < 0) polygon.push_back(crossing(a, b));
    }
    if (std::min({past[triangle[0]], past[triangle[1]], past[triangle[2]]}) >= 0) continue;
    for (size_t k = 2; k < polygon.size(); ++k) kept.push_back({polygon[0], polygon[k - 1], polygon[k]});
  }
  mesh.triangles = std::move(kept);
  Compact(draft);
}

/// The whole surface of a shape: the outer one of the tets of a thin layer below it.
absl::StatusOr<Draft> Isosurface(const Shape& shape, double edge) {
  Eigen::AlignedBox3d bounds;
  for (const RoundCone& cone : shape.cones) {
    for (const auto& [ball, radius] : {std::pair(cone.a, cone.radius_a), std::pair(cone.b, cone.radius_b)}) {
      for (const Vector3d& center : {ball, cone.has_twin ? Mirrored(ball) : ball}) {
        bounds.extend(center + Vector3d::Constant(radius + 0.02));
        bounds.extend(center - Vector3d::Constant(radius + 0.02));
      }
    }
  }
  StuffingOptions options;
  options.edge_length_m = edge;
  options.is_distance = true;
  options.max_lattice_points = 50'000'000;
  const double depth = 3 * edge;
  const auto layer = [&](const Vector3d& x) {
    const double distance = UnionField(shape.cones, x).distance;
    return std::max(distance, -depth - distance);
  };
  PALPATE_ASSIGN_OR_RETURN(const TetMesh tets, StuffIsosurface(layer, bounds, options));
  const BoundarySurface boundary = ExtractBoundary(tets);
  Draft draft;
  for (const uint32_t v : boundary.vertices) draft.mesh.vertices.push_back(tets.vertices[v]);
  draft.cut_of.assign(boundary.vertices.size(), kNone);
  for (const auto& triangle : boundary.triangles) {
    if (UnionField(shape.cones, draft.mesh.vertices[triangle[0]]).distance > -depth / 2) draft.mesh.triangles.push_back(triangle);
  }
  Compact(&draft);
  return draft;
}

/// The surface of a shape, with its cuts.
absl::StatusOr<SurfaceMesh> Triangulate(const Shape& shape, double edge, double scale) {
  const double cut_edge = std::min(edge, kCoarsestLattice);
  PALPATE_ASSIGN_OR_RETURN(Draft draft, Isosurface(shape, cut_edge));
  if (!shape.cuts.empty()) Remesh(shape, cut_edge, 2, &draft);
  for (uint32_t cut = 0; cut < shape.cuts.size(); ++cut) Clip(shape, cut, cut_edge, &draft);
  Remesh(shape, edge * kRemeshedEdge, 5, &draft);
  for (Vector3d& x : draft.mesh.vertices) x *= scale;
  return std::move(draft.mesh);
}

absl::Status CheckFigureSize(const char* name, double value, double least, double most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", value, " is outside [", least, ", ", most, "]"));
}

/// The edge length for height 1.
absl::StatusOr<double> FigureEdge(double edge_length_m, double height_m) {
  if (edge_length_m == 0) return 1 / kDefaultEdgesPerFigure;
  // A hair of tolerance: a caller may have computed the bound itself.
  const double least_m = height_m / kMaxEdgesPerFigure;
  const double most_m = height_m / kMinEdgesPerFigure;
  const bool is_bound = std::abs(edge_length_m - least_m) < 1e-9 * least_m || std::abs(edge_length_m - most_m) < 1e-9 * most_m;
  if (!is_bound) PALPATE_RETURN_IF_ERROR(CheckFigureSize("edge_length_m", edge_length_m, least_m, most_m));
  return edge_length_m / height_m;
}

/// The dress as a closed solid with its cuts: what it covers, grown by `gap`, with half an arm and a skirt.
Shape DressShape(double gap) {
  Shape shape;
  for (const RoundCone& cone : kFigure) {
    if (cone.is_worn) shape.cones.push_back(cone);
  }
  const auto sleeve = static_cast<uint32_t>(shape.cones.size());
  const auto& arm = *std::find_if(kFigure.begin(), kFigure.end(), [](const RoundCone& c) { return c.chain == kLeftArm; });
  const double length = (arm.b - arm.a).norm();
  shape.cones.push_back(arm);
  shape.cones.back().b = arm.a + (kSleeve + 0.03) * kArmDirection;
  shape.cones.back().blend = 0.02;
  shape.cones.back().radius_b = arm.radius_a + (kSleeve + 0.03) / length * (arm.radius_b - arm.radius_a);
  for (RoundCone& cone : shape.cones) {
    cone.radius_a += gap;
    cone.radius_b += gap;
  }
  // The skirt, whose middle part keeps it from folding in.
  shape.cones.push_back({{0.04, 0.006, 0.56}, 0.065 + gap, {0.05, 0, 0.235}, 0.14 + gap, 0.03, kLeftLeg, true, true});
  shape.cones.push_back({{0, 0.006, 0.56}, 0.065 + gap, {0, 0, 0.235}, 0.14 + gap, 0.03, kLeftLeg, false, true});
  const Vector3d neckline = Vector3d(0, -0.45, 0.9).normalized();
  shape.cuts = {{{0, 0.008, 0.853}, neckline, kNone},
                {kShoulder + kSleeve * kArmDirection, kArmDirection, sleeve},
                {Mirrored(kShoulder + kSleeve * kArmDirection), Mirrored(kArmDirection), sleeve},
                {{0, 0, 0.27}, -Vector3d::UnitZ(), kNone}};
  return shape;
}

}  // namespace

double FigureDistance(const Vector3d& x_m, double height_m) { return height_m * UnionField(kFigure, x_m / height_m).distance; }

absl::StatusOr<FigureSurface> GenerateFigureSurface(double height_m, double edge_length_m) {
  PALPATE_RETURN_IF_ERROR(CheckFigureSize("height_m", height_m, kLeastHeight_m, kMostHeight_m));
  PALPATE_ASSIGN_OR_RETURN(const double edge, FigureEdge(edge_length_m, height_m));
  FigureSurface out;
  PALPATE_ASSIGN_OR_RETURN(out.surface, Triangulate({{kFigure.begin(), kFigure.end()}, {}}, edge, height_m));
  out.parts = Parts();
  for (FigurePart& part : out.parts) part.joint_m *= height_m;
  for (const Vector3d& x : out.surface.vertices) out.weights.push_back(WeightsAt(x / height_m));
  return out;
}

absl::StatusOr<SurfaceMesh> GenerateDressSurface(double figure_height_m, double gap_m, double edge_length_m) {
  PALPATE_RETURN_IF_ERROR(CheckFigureSize("figure_height_m", figure_height_m, kLeastHeight_m, kMostHeight_m));
  PALPATE_RETURN_IF_ERROR(CheckFigureSize("gap_m", gap_m, kLeastGap_m, kMostGap_m));
  PALPATE_ASSIGN_OR_RETURN(const double edge, FigureEdge(edge_length_m, figure_height_m));
  // Triangles cut off what is curved: on a ball of the radius of an arm this or less, if their edges are up to a fifth longer.
  const double sag = edge * edge / (4 * 0.031);
  return Triangulate(DressShape(gap_m / kGapHeight_m + sag), edge, figure_height_m);
}

}  // namespace palpate::sim
