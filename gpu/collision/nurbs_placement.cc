#include "gpu/collision/nurbs_placement.h"

#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"

namespace palpate::gpu {
namespace {

// A pose with entries above this is taken for a mistake.
constexpr double kMaxStretch = 1e6;
constexpr double kMaxOffset_m = 1e12;
// How far from orthonormal a rigid pose may be; below what the test of boxes allows for.
constexpr double kRigid = 1e-7;

using Vector = std::array<double, 3>;

Vector Apply(const NurbsPose& pose, const Vector& p) {
  Vector out = pose.offset_m;
  for (size_t i = 0; i < 3; ++i) {
    for (size_t k = 0; k < 3; ++k) out[i] += pose.linear[3 * i + k] * p[k];
  }
  return out;
}

double Norm(const Vector& v) { return std::hypot(v[0], v[1], v[2]); }

double FrobeniusNorm(const NurbsPose& pose) {
  double sum = 0;
  for (const double x : pose.linear) sum += x * x;
  return std::sqrt(sum);
}

bool IsRigid(const NurbsPose& pose) {
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double product = 0;
      for (size_t k = 0; k < 3; ++k) product += pose.linear[3 * i + k] * pose.linear[3 * j + k];
      if (!(std::abs(product - (i == j ? 1 : 0)) <= kRigid)) return false;
    }
  }
  return true;
}

absl::Status CheckPose(const NurbsPose& pose, size_t query, const char* name) {
  for (const double x : pose.linear) {
    if (!(std::abs(x) <= kMaxStretch)) {
      return absl::InvalidArgumentError(
          absl::StrCat("queries[", query, "].", name, ".linear: ", x, " is not in [-", kMaxStretch, ", ", kMaxStretch, "]"));
    }
  }
  for (const double x : pose.offset_m) {
    if (!(std::abs(x) <= kMaxOffset_m)) {
      return absl::InvalidArgumentError(
          absl::StrCat("queries[", query, "].", name, ".offset_m: ", x, " is not in [-", kMaxOffset_m, ", ", kMaxOffset_m, "]"));
    }
  }
  return absl::OkStatus();
}

Vector OffsetOf(const NurbsObjects& objects, const NurbsQuery& query) {
  const Vector origin = nurbs::OriginOf(objects, query);
  Vector offset = Apply(query.pose_b, objects.middle_m(query.object_b));
  for (size_t k = 0; k < 3; ++k) offset[k] -= origin[k];
  return offset;
}

}  // namespace

namespace nurbs {

Vector OriginOf(const NurbsObjects& objects, const NurbsQuery& query) { return Apply(query.pose_a, objects.middle_m(query.object_a)); }

absl::Status CheckQueries(const NurbsObjects& objects, std::span<const NurbsQuery> queries) {
  for (size_t i = 0; i < queries.size(); ++i) {
    for (const uint32_t object : {queries[i].object_a, queries[i].object_b}) {
      if (object >= objects.object_count()) {
        return absl::InvalidArgumentError(absl::StrCat("queries[", i, "]: object ", object, ", there are ", objects.object_count()));
      }
    }
    PALPATE_RETURN_IF_ERROR(CheckPose(queries[i].pose_a, i, "pose_a"));
    PALPATE_RETURN_IF_ERROR(CheckPose(queries[i].pose_b, i, "pose_b"));
  }
  return absl::OkStatus();
}

NurbsPlacement PlacementOf(const NurbsObjects& objects, const NurbsQuery& query) {
  const Vector offset = OffsetOf(objects, query);
  const auto row = [&](const NurbsPose& pose, size_t i, double w) {
    return Float4{static_cast<float>(pose.linear[3 * i]), static_cast<float>(pose.linear[3 * i + 1]),
                  static_cast<float>(pose.linear[3 * i + 2]), static_cast<float>(w)};
  };
  const double slack = NurbsQueries::SlackMetres(objects, query);
  return {.a0 = row(query.pose_a, 0, 0),
          .a1 = row(query.pose_a, 1, 0),
          .a2 = row(query.pose_a, 2, 0),
          .b0 = row(query.pose_b, 0, offset[0]),
          .b1 = row(query.pose_b, 1, offset[1]),
          .b2 = row(query.pose_b, 2, offset[2]),
          .root_a = objects.root(query.object_a),
          .root_b = objects.root(query.object_b),
          .slack_m = std::nextafter(static_cast<float>(slack), std::numeric_limits<float>::infinity()),
          .is_rigid = IsRigid(query.pose_a) && IsRigid(query.pose_b) ? 1U : 0U};
}

}  // namespace nurbs

double NurbsQueries::LostInDouble(const NurbsObjects& objects, const NurbsQuery& query) {
  constexpr double kDouble = 0x1p-53;
  double lost = 0;
  for (const bool is_a : {true, false}) {
    const NurbsPose& pose = is_a ? query.pose_a : query.pose_b;
    const uint32_t object = is_a ? query.object_a : query.object_b;
    const double entries = FrobeniusNorm(pose);
    lost += 16 * kDouble * (entries * Norm(objects.middle_m(object)) + Norm(pose.offset_m) + entries * objects.radius_m(object));
  }
  return lost;
}

double NurbsQueries::SlackMetres(const NurbsObjects& objects, const NurbsQuery& query) {
  constexpr double kFloat = 0x1p-24;
  const double offset = Norm(OffsetOf(objects, query));
  // The offset is rounded to float, and sums with it are.
  double slack = 4 * kFloat * offset;
  for (const bool is_a : {true, false}) {
    const NurbsPose& pose = is_a ? query.pose_a : query.pose_b;
    const uint32_t object = is_a ? query.object_a : query.object_b;
    const double entries = FrobeniusNorm(pose);
    const double stretch = IsRigid(pose) ? 1 + kRigid : entries;
    const double radius = objects.radius_m(object);
    // Points of parts; the map's entries, its products and sums.
    slack += stretch * radius * objects.relative_error() + 12 * kFloat * entries * radius;
  }
  slack += LostInDouble(objects, query);  // what the host did, where an object is far away
  // Denormal floats may be taken for zero.
  return slack * (1 + 1e-6) + 1e-35;
}

}  // namespace palpate::gpu
