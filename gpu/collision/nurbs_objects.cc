#include "gpu/collision/nurbs_objects.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource nurbs_objects;
}
namespace {

constexpr double kMinRadius_m = 1e-12;
constexpr double kMaxCoordinate_m = 1e12;
constexpr uint64_t kMaxBezierPoints = uint64_t{1} << 28;

absl::Status CheckKnots(std::span<const double> knots, uint32_t degree, const std::string& name) {
  if (degree < 1 || degree > PALPATE_NURBS_MAX_DEGREE) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": degree ", degree, " is not in [1, ", PALPATE_NURBS_MAX_DEGREE, "]"));
  }
  if (knots.size() < 2 * size_t{degree} + 2) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", knots.size(), " knots, degree ", degree, " needs ", 2 * degree + 2));
  }
  size_t run = 1;
  for (size_t i = 0; i < knots.size(); ++i) {
    if (!std::isfinite(knots[i])) return absl::InvalidArgumentError(absl::StrCat(name, "[", i, "]: is not finite"));
    if (i == 0) continue;
    if (knots[i] < knots[i - 1]) {
      return absl::InvalidArgumentError(absl::StrCat(name, "[", i, "]: ", knots[i], " is less than the one before"));
    }
    run = knots[i] == knots[i - 1] ? run + 1 : 1;
    const bool is_end = knots[i] == knots.front() || knots[i] == knots.back();
    if (run > size_t{degree} + (is_end ? 1 : 0)) {
      return absl::InvalidArgumentError(absl::StrCat(name, "[", i, "]: ", knots[i], " is there more often than the degree allows"));
    }
  }
  if (knots[degree] != knots.front() || knots[knots.size() - 1 - degree] != knots.back() || !(knots.front() < knots.back())) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": is not clamped, the first and the last ", degree + 1, " must be equal"));
  }
  return absl::OkStatus();
}

// Row k: shares of the degree + 1 control points of the span (knots[span], knots[span + 1]) in its Bezier point k, which is the blossom
// at degree - k times the one end and k times the other (Ramshaw). All quotients are in [0, 1].
void AppendBezierCoefficients(std::span<const double> knots, uint32_t degree, size_t span, std::vector<double>& out) {
  const size_t order = size_t{degree} + 1;
  std::vector<std::vector<double>> points(order, std::vector<double>(order));
  for (size_t k = 0; k < order; ++k) {
    for (size_t i = 0; i < order; ++i) {
      std::fill(points[i].begin(), points[i].end(), 0.0);
      points[i][i] = 1;
    }
    for (size_t r = 1; r < order; ++r) {
      const double t = r <= degree - k ? knots[span] : knots[span + 1];
      for (size_t i = degree; i >= r; --i) {
        const double from = knots[span - degree + i];
        const double to = knots[span + i + 1 - r];
        const double share = (t - from) / (to - from);
        const double rest = (to - t) / (to - from);  // 1 - share would lose digits
        for (size_t j = 0; j < order; ++j) points[i][j] = rest * points[i - 1][j] + share * points[i][j];
      }
    }
    out.insert(out.end(), points[degree].begin(), points[degree].end());
  }
}

}  // namespace

void NurbsObjects::AddKnots(std::span<const double> knots, uint32_t degree, std::vector<std::array<double, 2>>& spans,
                            std::vector<uint32_t>& first, std::vector<uint32_t>& coefficients) {
  for (size_t s = degree; s + degree + 1 < knots.size(); ++s) {
    if (!(knots[s] < knots[s + 1])) continue;
    spans.push_back({knots[s], knots[s + 1]});
    first.push_back(static_cast<uint32_t>(s - degree));
    coefficients.push_back(static_cast<uint32_t>(to_bezier_.size()));
    AppendBezierCoefficients(knots, degree, s, to_bezier_);
  }
}

absl::Status NurbsObjects::Check(const Object& object, std::span<const double> control, uint32_t index) const {
  const size_t expected = object.control.size();
  if (control.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat("objects[", index, "]: ", control.size() / 4, " control points, it has ", expected / 4));
  }
  double least = std::numeric_limits<double>::infinity();
  double most = 0;
  for (size_t i = 0; i < control.size(); i += 4) {
    const double w = control[i + 3];
    if (!(w > 0) || !std::isfinite(w)) {
      return absl::InvalidArgumentError(
          absl::StrCat("objects[", index, "].control[", i / 4, "]: weight ", w, ", it must be positive and finite"));
    }
    least = std::min(least, w);
    most = std::max(most, w);
    for (size_t k = 0; k < 3; ++k) {
      if (!(std::abs(control[i + k] / w) <= kMaxCoordinate_m)) {
        return absl::InvalidArgumentError(
            absl::StrCat("objects[", index, "].control[", i / 4, "]: is not finite, or farther than ", kMaxCoordinate_m, " m"));
      }
    }
  }
  if (most > kMaxWeightRatio * least) {
    return absl::InvalidArgumentError(
        absl::StrCat("objects[", index, "]: weights from ", least, " to ", most, ", the ratio is at most ", kMaxWeightRatio));
  }
  return absl::OkStatus();
}

void NurbsObjects::Place(Object& object) {
  std::array<double, 3> low, high;
  low.fill(std::numeric_limits<double>::infinity());
  high.fill(-std::numeric_limits<double>::infinity());
  object.is_rational = false;
  for (size_t i = 0; i < object.control.size(); i += 4) {
    for (size_t k = 0; k < 3; ++k) {
      const double x = object.control[i + k] / object.control[i + 3];
      low[k] = std::min(low[k], x);
      high[k] = std::max(high[k], x);
    }
    object.is_rational |= object.control[i + 3] != object.control[3];
  }
  for (size_t k = 0; k < 3; ++k) object.middle_m[k] = 0.5 * (low[k] + high[k]);
  const double diagonal = std::hypot(high[0] - low[0], high[1] - low[1], high[2] - low[2]);
  object.radius_m = std::max(0.5 * diagonal * (1 + 1e-9), kMinRadius_m);
}

absl::Status NurbsObjects::AddObject(std::span<const NurbsNet> nets, uint32_t index) {
  if (nets.empty()) return absl::InvalidArgumentError(absl::StrCat("objects[", index, "]: has no surfaces"));
  Object object;
  uint64_t bezier_points = bezier_count_;
  for (size_t s = 0; s < nets.size(); ++s) {
    const NurbsNet& net = nets[s];
    const std::string name = absl::StrCat("objects[", index, "].surfaces[", s, "]");
    PALPATE_RETURN_IF_ERROR(CheckKnots(net.knots_u, net.degree_u, absl::StrCat(name, ".knots_u")));
    PALPATE_RETURN_IF_ERROR(CheckKnots(net.knots_v, net.degree_v, absl::StrCat(name, ".knots_v")));
    const size_t count_u = net.knots_u.size() - net.degree_u - 1;
    const size_t count_v = net.knots_v.size() - net.degree_v - 1;
    if (net.control.size() != 4 * count_u * count_v) {
      return absl::InvalidArgumentError(absl::StrCat(name, ".control: ", net.control.size(), " numbers, knots and degrees are for ",
                                                     count_u, " x ", count_v, " points of 4"));
    }
    if (control_count_ + object.control.size() / 4 + count_u * count_v > kMaxControlPoints) {
      return absl::InvalidArgumentError(absl::StrCat(name, ".control: more than ", kMaxControlPoints, " control points in all"));
    }
    Surface surface{.degree_u = net.degree_u,
                    .degree_v = net.degree_v,
                    .count_u = static_cast<uint32_t>(count_u),
                    .count_v = static_cast<uint32_t>(count_v),
                    .control = static_cast<uint32_t>(object.control.size() / 4),
                    .spans_u = {},
                    .spans_v = {},
                    .first_u = {},
                    .first_v = {},
                    .to_bezier_u = {},
                    .to_bezier_v = {}};
    AddKnots(net.knots_u, net.degree_u, surface.spans_u, surface.first_u, surface.to_bezier_u);
    AddKnots(net.knots_v, net.degree_v, surface.spans_v, surface.first_v, surface.to_bezier_v);
    const uint64_t patches = uint64_t{surface.spans_u.size()} * surface.spans_v.size();
    bezier_points += patches * (net.degree_u + 1) * (net.degree_v + 1);
    if (bezier_points > kMaxBezierPoints) {
      return absl::ResourceExhaustedError(absl::StrCat(name, ": more than ", kMaxBezierPoints, " control points of Bezier patches in all"));
    }
    object.control.insert(object.control.end(), net.control.begin(), net.control.end());
    object.surfaces.push_back(std::move(surface));
  }
  PALPATE_RETURN_IF_ERROR(Check(object, object.control, index));
  Place(object);
  object.control_begin = control_count_;
  control_count_ += static_cast<uint32_t>(object.control.size() / 4);

  // Surfaces in halves by the middles of their control points, along the longest way; neighbours in this order share nodes.
  std::vector<std::array<double, 3>> middles;
  for (const Surface& surface : object.surfaces) {
    std::array<double, 3> sum = {};
    const size_t count = size_t{surface.count_u} * surface.count_v;
    for (size_t i = 0; i < count; ++i) {
      const double* p = &object.control[4 * (surface.control + i)];
      for (size_t k = 0; k < 3; ++k) sum[k] += p[k] / p[3] / static_cast<double>(count);
    }
    middles.push_back(sum);
  }
  std::vector<uint32_t> order(object.surfaces.size());
  std::iota(order.begin(), order.end(), 0U);
  std::vector<std::pair<size_t, size_t>> pending = {{0, order.size()}};
  while (!pending.empty()) {
    const auto [begin, end] = pending.back();
    pending.pop_back();
    if (end - begin < 2) continue;
    size_t axis = 0;
    double longest = -1;
    for (size_t k = 0; k < 3; ++k) {
      double low = middles[order[begin]][k];
      double high = low;
      for (size_t i = begin; i < end; ++i) {
        low = std::min(low, middles[order[i]][k]);
        high = std::max(high, middles[order[i]][k]);
      }
      if (high - low > longest) {
        longest = high - low;
        axis = k;
      }
    }
    std::sort(order.begin() + static_cast<std::ptrdiff_t>(begin), order.begin() + static_cast<std::ptrdiff_t>(end),
              [&](uint32_t x, uint32_t y) { return std::pair(middles[x][axis], x) < std::pair(middles[y][axis], y); });
    const size_t middle = (begin + end) / 2;
    pending.emplace_back(begin, middle);
    pending.emplace_back(middle, end);
  }

  object.patch_begin = static_cast<uint32_t>(patches_.size());
  std::vector<uint32_t> first_patch;  // in the order of `order`
  for (const uint32_t s : order) {
    const Surface& surface = object.surfaces[s];
    first_patch.push_back(static_cast<uint32_t>(patches_.size()));
    const uint32_t order_u = surface.degree_u + 1;
    const uint32_t order_v = surface.degree_v + 1;
    for (uint32_t i = 0; i < surface.spans_u.size(); ++i) {
      for (uint32_t j = 0; j < surface.spans_v.size(); ++j) {
        patches_.push_back({.control = object.control_begin + surface.control + surface.first_u[i] * surface.count_v + surface.first_v[j],
                            .stride = surface.count_v,
                            .to_bezier_u = surface.to_bezier_u[i],
                            .to_bezier_v = surface.to_bezier_v[j],
                            .order_u = order_u,
                            .order_v = order_v,
                            .bezier = bezier_count_,
                            .padding = 0});
        sources_.push_back({s, i, j, index});
        bezier_count_ += order_u * order_v;
      }
    }
  }
  object.patch_end = static_cast<uint32_t>(patches_.size());

  // The tree, level by level: the two children of a node follow each other.
  struct Pending {
    uint32_t node;
    size_t begin, end;        // surfaces in `order`
    uint32_t r0, r1, c0, c1;  // of a single surface, its spans
    uint32_t depth;
  };
  object.node_begin = static_cast<uint32_t>(nodes_.size());
  object.root = object.node_begin;
  const auto whole = [&](uint32_t node, size_t begin, size_t end, uint32_t depth) {
    const Surface& surface = object.surfaces[order[begin]];
    return Pending{node, begin, end, 0, static_cast<uint32_t>(surface.spans_u.size()), 0, static_cast<uint32_t>(surface.spans_v.size()),
                   depth};
  };
  nodes_.emplace_back();
  std::vector<Pending> level = {whole(object.root, 0, order.size(), 0)};
  for (size_t next = 0; next < level.size(); ++next) {
    const Pending at = level[next];
    object.depth = std::max(object.depth, at.depth);
    NurbsNode node{};
    if (at.end - at.begin > 1) {
      const uint32_t end = at.end < order.size() ? first_patch[at.end] : object.patch_end;
      node = {.child = static_cast<uint32_t>(nodes_.size()),
              .patch = first_patch[at.begin],
              .rows = 1,
              .columns = end - first_patch[at.begin],
              .stride = 0,
              .padding = {}};
      const size_t middle = (at.begin + at.end) / 2;
      level.push_back(whole(node.child, at.begin, middle, at.depth + 1));
      level.push_back(whole(node.child + 1, middle, at.end, at.depth + 1));
    } else {
      const auto stride = static_cast<uint32_t>(object.surfaces[order[at.begin]].spans_v.size());
      const uint32_t rows = at.r1 - at.r0;
      const uint32_t columns = at.c1 - at.c0;
      node = {.child = 0,
              .patch = first_patch[at.begin] + at.r0 * stride + at.c0,
              .rows = rows,
              .columns = columns,
              .stride = stride,
              .padding = {}};
      if (rows * columns > 1) {
        node.child = static_cast<uint32_t>(nodes_.size());
        Pending low = at;
        Pending high = at;
        low.depth = high.depth = at.depth + 1;
        low.node = node.child;
        high.node = node.child + 1;
        if (rows >= columns) {
          low.r1 = high.r0 = at.r0 + rows / 2;
        } else {
          low.c1 = high.c0 = at.c0 + columns / 2;
        }
        level.push_back(low);
        level.push_back(high);
      }
    }
    nodes_[at.node] = node;
    if (node.child != 0) nodes_.resize(nodes_.size() + 2);
  }
  object.node_end = static_cast<uint32_t>(nodes_.size());
  objects_.push_back(std::move(object));
  return absl::OkStatus();
}

NurbsObjects::PatchPlace NurbsObjects::patch_place(uint32_t patch) const {
  const PatchSource& source = sources_[patch];
  const Object& object = objects_[source.object];
  const Surface& surface = object.surfaces[source.surface];
  return {.surface = source.surface,
          .u = surface.spans_u[source.span_u],
          .v = surface.spans_v[source.span_v],
          .control = surface.control + surface.first_u[source.span_u] * surface.count_v + surface.first_v[source.span_v],
          .stride = surface.count_v,
          .degree_u = surface.degree_u,
          .degree_v = surface.degree_v,
          .to_bezier = {&to_bezier_[surface.to_bezier_u[source.span_u]], &to_bezier_[surface.to_bezier_v[source.span_v]]}};
}

ProgramDefines NurbsObjects::Defines() const {
  const bool is_rational = std::any_of(objects_.begin(), objects_.end(), [](const Object& object) { return object.is_rational; });
  return {{"MAX_ORDER", std::to_string(max_order_)},
          {"ORDER_U", std::to_string(common_order_v_ == 0 ? 0 : common_order_u_)},
          {"ORDER_V", std::to_string(common_order_u_ == 0 ? 0 : common_order_v_)},
          {"RATIONAL", is_rational ? "1" : "0"}};
}

double NurbsObjects::relative_error() const {
  // Roundings of a homogeneous coordinate: 1 of the input; of the extraction, in each direction, a coefficient, a product and a sum of
  // `order` terms; of the part, in each direction, two schemes of `degree` levels: a product and a sum, and a share in the second; and, in
  // one direction, halving.
  const double order = max_order_;
  const double roundings = 1 + 2 * (order + 2) + 11 * (order - 1);
  // A quotient has those of both and its own. What is of second order is in the share above 1.
  const bool is_rational = std::any_of(objects_.begin(), objects_.end(), [](const Object& object) { return object.is_rational; });
  return 1.001 * (is_rational ? 2 * roundings + 1 : roundings) * 0x1p-24;
}

absl::Status NurbsObjects::MakeKernels(const std::shared_ptr<Context>& context) {
  const ProgramDefines defines = Defines();
  if (defines == kernel_defines_) return absl::OkStatus();
  PALPATE_ASSIGN_OR_RETURN(extract_, context->CreateKernel(kernels::nurbs_objects, "nurbs_extract", defines));
  PALPATE_ASSIGN_OR_RETURN(node_boxes_, context->CreateKernel(kernels::nurbs_objects, "nurbs_node_boxes", defines));
  kernel_defines_ = defines;
  return absl::OkStatus();
}

absl::Status NurbsObjects::Upload(Queue& queue, const Object& object) {
  double most = 0;
  for (size_t i = 3; i < object.control.size(); i += 4) most = std::max(most, object.control[i]);
  // By a power of two, so that nothing is rounded. Equal weights become 1.
  const double scale = object.is_rational ? std::exp2(-std::ilogb(most)) : 1;
  std::vector<Float4> points;
  points.reserve(object.control.size() / 4);
  for (size_t i = 0; i < object.control.size(); i += 4) {
    const double* p = &object.control[i];
    const double w = object.is_rational ? scale * p[3] : 1;
    const auto about = [&](size_t k) { return static_cast<float>(w * (p[k] / p[3] - object.middle_m[k])); };
    points.push_back({about(0), about(1), about(2), static_cast<float>(w)});
  }
  PALPATE_RETURN_IF_ERROR(queue.Write(device_control_, std::span<const Float4>(points), object.control_begin));
  // Private nets are large: on a CPU a group is a single work-item.
  const size_t group = queue.context()->device().is_gpu ? 32 : 1;
  const uint32_t patch_count = object.patch_end - object.patch_begin;
  const uint32_t node_count = object.node_end - object.node_begin;
  PALPATE_RETURN_IF_ERROR(queue.Launch(extract_, {patch_count, group}, Arg("count", patch_count), Arg("first", object.patch_begin),
                                       Arg("patches", device_patches_), Arg("to_bezier", device_to_bezier_),
                                       Arg("control", device_control_), Arg("bezier", device_bezier_)));
  return queue.Launch(node_boxes_, {node_count, group}, Arg("count", node_count), Arg("first", object.node_begin),
                      Arg("nodes", device_nodes_), Arg("patches", device_patches_), Arg("bezier", device_bezier_),
                      Arg("boxes", device_boxes_));
}

absl::StatusOr<NurbsObjects> NurbsObjects::Create(Queue& queue, std::span<const std::vector<NurbsNet>> objects) {
  NurbsObjects out;
  for (size_t i = 0; i < objects.size(); ++i) PALPATE_RETURN_IF_ERROR(out.AddObject(objects[i], static_cast<uint32_t>(i)));
  if (objects.empty()) return out;
  out.common_order_u_ = out.patches_.front().order_u;
  out.common_order_v_ = out.patches_.front().order_v;
  for (const NurbsPatch& patch : out.patches_) {
    out.max_order_ = std::max({out.max_order_, patch.order_u, patch.order_v});
    if (patch.order_u != out.common_order_u_) out.common_order_u_ = 0;
    if (patch.order_v != out.common_order_v_) out.common_order_v_ = 0;
  }
  const auto& context = queue.context();
  PALPATE_RETURN_IF_ERROR(out.MakeKernels(context));
  const std::vector<float> coefficients(out.to_bezier_.begin(), out.to_bezier_.end());
  PALPATE_ASSIGN_OR_RETURN(out.device_to_bezier_, CreateBufferFrom(queue, std::span<const float>(coefficients), "nurbs bezier shares"));
  PALPATE_ASSIGN_OR_RETURN(out.device_patches_, CreateBufferFrom(queue, std::span<const NurbsPatch>(out.patches_), "nurbs patches"));
  PALPATE_ASSIGN_OR_RETURN(out.device_nodes_, CreateBufferFrom(queue, std::span<const NurbsNode>(out.nodes_), "nurbs nodes"));
  PALPATE_ASSIGN_OR_RETURN(out.device_boxes_, DeviceBuffer<NurbsBox>::Create(context, out.nodes_.size(), "nurbs boxes"));
  PALPATE_ASSIGN_OR_RETURN(out.device_bezier_, DeviceBuffer<Float4>::Create(context, out.bezier_count_, "nurbs bezier points"));
  PALPATE_ASSIGN_OR_RETURN(out.device_control_, DeviceBuffer<Float4>::Create(context, out.control_count_, "nurbs control points"));
  for (const Object& object : out.objects_) PALPATE_RETURN_IF_ERROR(out.Upload(queue, object));
  PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());
  return out;
}

absl::Status NurbsObjects::SetControl(Queue& queue, uint32_t object, std::span<const double> control) {
  if (object >= objects_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("objects[", object, "]: there are ", objects_.size()));
  }
  Object& target = objects_[object];
  PALPATE_RETURN_IF_ERROR(Check(target, control, object));
  target.control.assign(control.begin(), control.end());
  Place(target);
  PALPATE_RETURN_IF_ERROR(MakeKernels(queue.context()));
  return Upload(queue, target);
}

}  // namespace palpate::gpu
