#include "gpu/collision/nurbs_motion.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/collision/nurbs_minima.h"
#include "gpu/collision/nurbs_patch.h"
#include "gpu/collision/nurbs_placement.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource nurbs_motion;
}
namespace {

using namespace nurbs;  // NOLINT: all of it is for files like this one

constexpr uint32_t kMaxLevel = 200;
constexpr uint32_t kNoHit = 0xffffffffU;
constexpr double kTouching = 1e-11;  // of the size: a distance that is none
constexpr double kNear = 1e-6;       // of the size: a distance from which Newton's step is exact
constexpr int kMaxSteps = 80;

double StretchOf(const NurbsPose& pose) {
  double sum = 0;
  for (const double x : pose.linear) sum += x * x;
  return std::sqrt(sum);
}

// Both slacks, and what mixing the two ends rounds, of coordinates about the first object's middle: two products and a sum, and where
// centres are, two more.
float SlackOf(const NurbsObjects& start, const NurbsObjects& end, const NurbsMotionQuery& query) {
  double slack = 0;
  double reach = 0;
  for (const auto& [objects, at] : {std::pair(&start, &query.start), std::pair(&end, &query.end)}) {
    const NurbsPlacement placement = nurbs::PlacementOf(*objects, *at);
    slack = std::max(slack, double{placement.slack_m});
    reach += std::hypot(double{placement.b0.w}, double{placement.b1.w}, double{placement.b2.w}) +
             StretchOf(at->pose_a) * objects->radius_m(at->object_a) + StretchOf(at->pose_b) * objects->radius_m(at->object_b);
  }
  return std::nextafter(static_cast<float>(slack + 8 * 0x1p-24 * reach), std::numeric_limits<float>::infinity());
}

absl::Status CheckSame(const NurbsObjects& start, const NurbsObjects& end) {
  if (start.object_count() != end.object_count()) {
    return absl::InvalidArgumentError(absl::StrCat("end: ", end.object_count(), " objects, the start has ", start.object_count()));
  }
  for (uint32_t object = 0; object < start.object_count(); ++object) {
    const auto error = [&](const char* what) {
      return absl::InvalidArgumentError(absl::StrCat("end: objects[", object, "]: ", what, " differ from those of the start"));
    };
    if (start.patch_count(object) != end.patch_count(object) || start.first_patch(object) != end.first_patch(object)) {
      return error("patches");
    }
    for (uint32_t i = 0; i < start.patch_count(object); ++i) {
      const auto a = start.patch_place(start.first_patch(object) + i);
      const auto b = end.patch_place(start.first_patch(object) + i);
      if (a.surface != b.surface || a.degree_u != b.degree_u || a.degree_v != b.degree_v || a.control != b.control ||
          a.stride != b.stride || a.u != b.u || a.v != b.v) {
        return error("surfaces, or their order in the tree,");
      }
    }
    const auto of_start = start.control(object);
    const auto of_end = end.control(object);
    for (size_t k = 3; k < of_start.size(); k += 4) {
      if (of_start[k] != of_end[k]) return error("weights");
    }
  }
  return absl::OkStatus();
}

double MiddleOf(uint32_t interval) {
  return std::ldexp(static_cast<double>(interval & 0xffffffU) + 0.5, -static_cast<int>(interval >> 24));
}

// Two patches on their way.
struct MovingPatches {
  std::array<Net, 2> start, end;
  double size_m = 0;

  Net At(size_t side, double time) const {
    Net net = start[side];
    for (size_t i = 0; i < net.points.size(); ++i) net.points[i] = nurbs::Mix(1 - time, start[side].points[i], time, end[side].points[i]);
    return net;
  }
  nurbs::PatchMinimum Nearest(const nurbs::Parameters& x, double time) const {
    return nurbs::MinimizeDistance(At(0, time), At(1, time), x, size_m);
  }
  // How fast the distance of the places changes.
  double Rate(const nurbs::PatchMinimum& at) const {
    const auto point = [](const Net& net, double u, double v) { return nurbs::Evaluate(net, u, v).point(); };
    const Vector way = point(end[0], at.x[0], at.x[1]) - point(start[0], at.x[0], at.x[1]);
    const Vector other = point(end[1], at.x[2], at.x[3]) - point(start[1], at.x[2], at.x[3]);
    return (1 / at.distance_m) * nurbs::Dot(at.point_a - at.point_b, way - other);
  }
};

MovingPatches LoadMoving(const NurbsObjects& start, const NurbsObjects& end, const NurbsMotionQuery& query, const NurbsPair& pair) {
  MovingPatches out;
  const uint32_t patch_a = start.node(pair.node_a).patch;
  const uint32_t patch_b = start.node(pair.node_b).patch;
  for (const auto& [objects, at, nets] : {std::tuple(&start, &query.start, &out.start), std::tuple(&end, &query.end, &out.end)}) {
    const Vector origin = nurbs::OriginOf(*objects, *at);
    (*nets)[0] = nurbs::PlacedNet(*objects, at->object_a, patch_a, at->pose_a, origin);
    (*nets)[1] = nurbs::PlacedNet(*objects, at->object_b, patch_b, at->pose_b, origin);
    out.size_m = std::max(
        out.size_m, StretchOf(at->pose_a) * objects->radius_m(at->object_a) + StretchOf(at->pose_b) * objects->radius_m(at->object_b));
  }
  return out;
}

// Newton's iteration on the distance as a function of time, from before the contact. Where it lands in contact from afar it may have gone
// too far; then the middle is next.
std::optional<std::pair<double, nurbs::Parameters>> PolishImpact(const MovingPatches& moving, const NurbsPair& pair, double lower,
                                                                 double upper) {
  const nurbs::Parameters x = {MiddleOf(pair.u_a), MiddleOf(pair.v_a), MiddleOf(pair.u_b), MiddleOf(pair.v_b)};
  const double touching = kTouching * moving.size_m;
  double before = lower;
  double after = std::numeric_limits<double>::infinity();
  double step = std::max(upper - lower, 1e-6);
  nurbs::PatchMinimum at = moving.Nearest(x, before);
  for (; at.distance_m <= touching && before > 0; step *= 2) {
    before = std::max(0.0, before - step);
    at = moving.Nearest(x, before);
  }
  if (at.distance_m <= touching) return std::nullopt;
  for (int i = 0; i < kMaxSteps; ++i) {
    const double rate = moving.Rate(at);
    if (!(rate < -1e-9 * moving.size_m)) return std::nullopt;
    double next = before - at.distance_m / rate;
    if (!(next < after)) next = 0.5 * (before + after);
    if (next > 1 + 1e-12) return std::nullopt;
    const nurbs::PatchMinimum then = moving.Nearest(at.x, next);
    if (then.distance_m > touching && next - before > 1e-15) {
      before = next;
      at = then;
    } else if (at.distance_m <= kNear * moving.size_m || next - before <= 1e-13) {
      return std::pair(next, then.x);
    } else {
      after = next;
    }
  }
  return std::nullopt;
}

NurbsImpact ImpactOf(const NurbsObjects& start, const NurbsObjects& end, const NurbsMotionQuery& query, const NurbsPair& pair,
                     double lower) {
  NurbsImpact out;
  out.lower = lower;
  out.may_meet = pair.level != kNoHit;
  out.is_complete = out.may_meet || lower > 1;
  if (!out.may_meet) return out;
  out.upper = std::ldexp(static_cast<double>(pair.time & 0xffffffU) + 1, -static_cast<int>(pair.time >> 24));
  const auto place_a = start.patch_place(start.node(pair.node_a).patch);
  const auto place_b = start.patch_place(start.node(pair.node_b).patch);
  const auto in = [](const std::array<double, 2>& span, double t) { return (1 - t) * span[0] + t * span[1]; };
  nurbs::Parameters x = {MiddleOf(pair.u_a), MiddleOf(pair.v_a), MiddleOf(pair.u_b), MiddleOf(pair.v_b)};
  if (const auto polished = PolishImpact(LoadMoving(start, end, query, pair), pair, out.lower, out.upper)) {
    out.time = polished->first;
    x = polished->second;
  }
  out.surface_a = place_a.surface;
  out.surface_b = place_b.surface;
  out.uv_a = {in(place_a.u, x[0]), in(place_a.v, x[1])};
  out.uv_b = {in(place_b.u, x[2]), in(place_b.v, x[3])};
  return out;
}

// How deep the deepest tree of the queries is.
absl::StatusOr<uint32_t> CheckMotions(const NurbsObjects& start, const NurbsObjects& end, std::span<const NurbsMotionQuery> queries) {
  uint32_t deepest = 0;
  for (size_t i = 0; i < queries.size(); ++i) {
    const NurbsMotionQuery& query = queries[i];
    if (query.start.object_a != query.end.object_a || query.start.object_b != query.end.object_b) {
      return absl::InvalidArgumentError(absl::StrCat("queries[", i, "].end: its objects are not those of the start"));
    }
    PALPATE_RETURN_IF_ERROR(Annotate(nurbs::CheckQueries(start, {&query.start, 1}), absl::StrCat("queries[", i, "].start")));
    PALPATE_RETURN_IF_ERROR(Annotate(nurbs::CheckQueries(end, {&query.end, 1}), absl::StrCat("queries[", i, "].end")));
    deepest = std::max({deepest, start.depth(query.start.object_a), start.depth(query.start.object_b)});
  }
  return deepest;
}

}  // namespace

absl::Status NurbsMotionOptions::Validate() const {
  if (!(tolerance_m > 0 && tolerance_m <= 1e12)) {
    return absl::InvalidArgumentError(absl::StrCat("NurbsMotionOptions.tolerance_m: ", tolerance_m, " is not in (0, 1e12]"));
  }
  if (max_level > kMaxLevel) {
    return absl::InvalidArgumentError(absl::StrCat("NurbsMotionOptions.max_level: ", max_level, " is not in [0, ", kMaxLevel, "]"));
  }
  if (max_tests < 1) return absl::InvalidArgumentError("NurbsMotionOptions.max_tests: 0, it must be positive");
  return absl::OkStatus();
}

absl::StatusOr<NurbsMotions> NurbsMotions::Create(const std::shared_ptr<Context>& context, const NurbsMotionOptions& options) {
  PALPATE_RETURN_IF_ERROR(options.Validate());
  NurbsMotions out;
  out.context_ = context;
  out.options_ = options;
  out.group_ = context->device().is_gpu ? 32 : 1;
  return out;
}

absl::Status NurbsMotions::MakeKernel(const NurbsObjects& objects, uint32_t stack) {
  ProgramDefines defines = objects.Defines();
  defines["VOLUME"] = "0";
  defines["SPLIT"] = "0";
  defines["STACK"] = std::to_string(stack);
  if (defines == defines_) return absl::OkStatus();
  PALPATE_ASSIGN_OR_RETURN(search_, context_->CreateKernel(kernels::nurbs_motion, "nurbs_first_impacts", defines));
  defines_ = std::move(defines);
  return absl::OkStatus();
}

absl::Status NurbsMotions::Place(Queue& queue, const NurbsObjects& start, const NurbsObjects& end,
                                 std::span<const NurbsMotionQuery> queries) {
  std::vector<NurbsPlacement> start_placements, end_placements;
  for (const NurbsMotionQuery& query : queries) {
    start_placements.push_back(nurbs::PlacementOf(start, query.start));
    end_placements.push_back(nurbs::PlacementOf(end, query.end));
    start_placements.back().slack_m = end_placements.back().slack_m = SlackOf(start, end, query);
  }
  PALPATE_RETURN_IF_ERROR(Grow(context_, start_placements_, queries.size(), "nurbs placements"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, end_placements_, queries.size(), "nurbs placements of the end"));
  PALPATE_RETURN_IF_ERROR(queue.Write(start_placements_, std::span<const NurbsPlacement>(start_placements)));
  return queue.Write(end_placements_, std::span<const NurbsPlacement>(end_placements));
}

absl::StatusOr<std::vector<NurbsImpact>> NurbsMotions::Run(Queue& queue, const NurbsObjects& start, const NurbsObjects& end,
                                                           std::span<const NurbsMotionQuery> queries) {
  PALPATE_RETURN_IF_ERROR(CheckSame(start, end));
  PALPATE_ASSIGN_OR_RETURN(const uint32_t deepest, CheckMotions(start, end, queries));
  std::vector<NurbsImpact> results(queries.size());
  if (queries.empty()) return results;
  // A cut leaves one pair behind. Rounded up, so that few programs are made.
  const uint32_t cuts = 2 * deepest + options_.max_level;
  PALPATE_RETURN_IF_ERROR(MakeKernel(start, (cuts / 64 + 1) * 64));
  PALPATE_RETURN_IF_ERROR(Place(queue, start, end, queries));
  const auto count = static_cast<uint32_t>(queries.size());
  PALPATE_RETURN_IF_ERROR(Grow(context_, found_, count, "nurbs hits"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, lower_, count, "nurbs times"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, tests_, count, "nurbs test counts"));
  const NurbsRule rule{
      .tolerance_m = static_cast<float>(options_.tolerance_m), .max_level = options_.max_level, .count = count, .padding = 0};
  PALPATE_RETURN_IF_ERROR(queue.Launch(search_, {count, group_}, Arg("rule", rule), Arg("most", options_.max_tests),
                                       Arg("start_placements", start_placements_), Arg("end_placements", end_placements_),
                                       Arg("nodes", start.nodes()), Arg("patches", start.patches()), Arg("start_boxes", start.boxes()),
                                       Arg("start_bezier", start.bezier()), Arg("end_boxes", end.boxes()), Arg("end_bezier", end.bezier()),
                                       Arg("found", found_), Arg("lower", lower_), Arg("tests", tests_)));
  std::vector<NurbsPair> found(count);
  std::vector<float> lower(count);
  std::vector<uint32_t> tests(count);
  PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(found_, std::span<NurbsPair>(found)));
  PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(lower_, std::span<float>(lower)));
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(tests_, std::span<uint32_t>(tests)));
  for (uint32_t q = 0; q < count; ++q) {
    results[q] = ImpactOf(start, end, queries[q], found[q], double{lower[q]});
    results[q].tests = tests[q];
  }
  return results;
}

}  // namespace palpate::gpu
