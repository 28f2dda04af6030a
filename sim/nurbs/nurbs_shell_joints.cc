#include "sim/nurbs/nurbs_shell_joints.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>

#include <Eigen/QR>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr double kSamePlace = 1e-7;  // of the object's size
constexpr double kSameShare = 1e-6;  // of knots, weights and the place of a point between its neighbours
constexpr size_t kU = 0, kV = 1;
constexpr std::array<const char*, 4> kSideNames = {"first v", "last u", "last v", "first u"};  // as Boundary() has them

NurbsDirection DirectionOf(size_t d) { return d == kU ? NurbsDirection::kU : NurbsDirection::kV; }

/// A side of a piece, along its rising parameter.
struct Side {
  uint32_t piece = 0, number = 0;  // as in kSideNames
  std::vector<uint32_t> on, inner;
  std::vector<double> weight_on, weight_inner;
  std::vector<double> shares;  // knots, from 0 to 1
  Vector3d middle = Vector3d::Zero();
  bool is_point = false;
};

class Joiner {
 public:
  Joiner(const NurbsObject& object, std::vector<uint8_t> is_kept)
      : object_(object), tolerance_m_(kSamePlace * object.ControlBox_m().diagonal().norm()) {
    out_.is_kept = std::move(is_kept);
  }

  absl::StatusOr<NurbsShellJoints> Run() {
    out_.net_begin = {0};
    for (const NurbsPatch& patch : object_.patches()) {
      for (size_t i = 0; i < patch.surface.control().size(); ++i) {
        position_.push_back(patch.surface.control()[i].hnormalized());
        weight_.push_back(patch.surface.control()[i].w());
      }
      out_.net_begin.push_back(static_cast<uint32_t>(position_.size()));
    }
    if (out_.is_kept.empty()) out_.is_kept.assign(position_.size(), 1);
    root_.resize(position_.size());
    std::iota(root_.begin(), root_.end(), 0U);
    for (uint32_t p = 0; p < object_.patches().size(); ++p) SplitPatch(p);
    ListSides();
    PALPATE_RETURN_IF_ERROR(MatchSides());
    TieSeams();
    Number();
    return std::move(out_);
  }

 private:
  void SplitPatch(uint32_t p) {
    const NurbsSurface& surface = object_.patches()[p].surface;
    std::array<std::vector<NurbsShellPiece>, 2> strips;  // with one direction set
    for (size_t d = 0; d < 2; ++d) {
      const auto knots = surface.knots(DirectionOf(d));
      const int degree = surface.degree(DirectionOf(d));
      const auto order = static_cast<size_t>(degree) + 1;
      size_t begin = 0;  // first knot of the piece
      for (size_t k = order; k < knots.size(); ++k) {
        if (k + 1 < knots.size() && knots[k + 1] == knots[k]) continue;  // not the last of its multiplicity
        const auto multiplicity = std::count(knots.begin(), knots.end(), knots[k]);
        if (multiplicity < degree) continue;
        NurbsShellPiece piece;
        const size_t last = k - order + (k + 1 == knots.size() ? 0 : 1);  // control point at the piece's end
        piece.first[d] = begin;
        piece.count[d] = last - begin + 1;
        piece.knots[d].assign(knots.begin() + static_cast<std::ptrdiff_t>(begin),
                              knots.begin() + static_cast<std::ptrdiff_t>(begin + piece.count[d] + order));
        std::fill_n(piece.knots[d].begin(), order, piece.knots[d][order - 1]);
        std::fill_n(piece.knots[d].end() - static_cast<std::ptrdiff_t>(order), order, knots[k]);
        strips[d].push_back(piece);
        begin = last;
      }
    }
    for (const NurbsShellPiece& u : strips[kU]) {
      for (const NurbsShellPiece& v : strips[kV]) {
        NurbsShellPiece piece = u;
        piece.patch = p;
        piece.degree = {surface.degree(NurbsDirection::kU), surface.degree(NurbsDirection::kV)};
        piece.first[kV] = v.first[kV];
        piece.count[kV] = v.count[kV];
        piece.knots[kV] = v.knots[kV];
        out_.pieces.push_back(std::move(piece));
      }
    }
  }

  uint32_t Net(const NurbsShellPiece& piece, size_t i, size_t j) const {
    const size_t columns = object_.patches()[piece.patch].surface.count(NurbsDirection::kV);
    return out_.net_begin[piece.patch] + static_cast<uint32_t>((piece.first[kU] + i) * columns + piece.first[kV] + j);
  }

  void ListSides() {
    for (uint32_t q = 0; q < out_.pieces.size(); ++q) {
      const NurbsShellPiece& piece = out_.pieces[q];
      for (uint32_t number = 0; number < 4; ++number) {
        const size_t along = number % 2 == 0 ? kU : kV;
        const size_t across = 1 - along;
        const bool is_last = number == 1 || number == 2;
        Side side;
        side.piece = q;
        side.number = number;
        const size_t at = is_last ? piece.count[across] - 1 : 0;
        const size_t next = is_last ? at - 1 : 1;
        for (size_t k = 0; k < piece.count[along]; ++k) {
          side.on.push_back(along == kU ? Net(piece, k, at) : Net(piece, at, k));
          side.inner.push_back(along == kU ? Net(piece, k, next) : Net(piece, next, k));
          side.weight_on.push_back(weight_[side.on.back()]);
          side.weight_inner.push_back(weight_[side.inner.back()]);
          side.middle += position_[side.on.back()] / static_cast<double>(piece.count[along]);
        }
        const std::vector<double>& knots = piece.knots[along];
        for (const double t : knots) side.shares.push_back((t - knots.front()) / (knots.back() - knots.front()));
        double extent = 0;
        for (const uint32_t n : side.on) extent = std::max(extent, (position_[n] - position_[side.on[0]]).norm());
        side.is_point = extent <= tolerance_m_;
        if (side.is_point) {  // a pole
          for (const uint32_t n : side.on) Unite(n, side.on[0]);
        }
        sides_.push_back(std::move(side));
      }
    }
  }

  uint32_t Root(uint32_t n) {
    while (root_[n] != n) n = root_[n] = root_[root_[n]];
    return n;
  }
  void Unite(uint32_t a, uint32_t b) {
    a = Root(a);
    b = Root(b);
    if (a != b) root_[std::max(a, b)] = std::min(a, b);
  }

  static Side Reversed(Side side) {
    std::reverse(side.on.begin(), side.on.end());
    std::reverse(side.inner.begin(), side.inner.end());
    std::reverse(side.weight_on.begin(), side.weight_on.end());
    std::reverse(side.weight_inner.begin(), side.weight_inner.end());
    std::reverse(side.shares.begin(), side.shares.end());
    for (double& s : side.shares) s = 1 - s;
    return side;
  }

  bool IsSame(const Side& a, const Side& b) const {
    if (a.on.size() != b.on.size() || a.shares.size() != b.shares.size()) return false;
    for (size_t k = 0; k < a.shares.size(); ++k) {
      if (std::abs(a.shares[k] - b.shares[k]) > kSameShare) return false;
    }
    for (size_t k = 0; k < a.on.size(); ++k) {
      if ((position_[a.on[k]] - position_[b.on[k]]).norm() > tolerance_m_) return false;
      const double ratio = b.weight_on[k] * a.weight_on[0] / (a.weight_on[k] * b.weight_on[0]);
      if (std::abs(ratio - 1) > kSameShare) return false;
    }
    return true;
  }

  std::string PathOf(const Side& side) const {
    const uint32_t p = out_.pieces[side.piece].patch;
    return absl::StrCat(NurbsPatchPath(p, object_.patches()[p].name), ", the side of the ", kSideNames[side.number]);
  }

  absl::Status MatchSides() {
    std::vector<uint32_t> order(sides_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return std::pair(sides_[a].middle.x(), a) < std::pair(sides_[b].middle.x(), b); });
    std::vector<std::optional<uint32_t>> mate(sides_.size());
    for (size_t i = 0; i < order.size(); ++i) {
      const Side& a = sides_[order[i]];
      if (a.is_point) continue;
      for (size_t k = i + 1; k < order.size() && sides_[order[k]].middle.x() - a.middle.x() <= tolerance_m_; ++k) {
        const Side& b = sides_[order[k]];
        if (b.is_point || (a.middle - b.middle).norm() > tolerance_m_) continue;
        const Side back = Reversed(b);
        const bool is_ahead = IsSame(a, b);
        if (!is_ahead && !IsSame(a, back)) continue;
        for (const uint32_t side : {order[i], order[k]}) {
          if (mate[side]) return absl::InvalidArgumentError(absl::StrCat(PathOf(sides_[side]), ": more than two sides meet there"));
        }
        mate[order[i]] = order[k];
        mate[order[k]] = order[i];
        AddSeam(a, is_ahead ? b : back);
      }
    }
    return absl::OkStatus();
  }

  void AddSeam(const Side& a, const Side& b) {
    const NurbsShellPiece& piece = out_.pieces[a.piece];
    const size_t along = a.number % 2 == 0 ? kU : kV;
    NurbsShellSeam seam;
    seam.patch = piece.patch;
    seam.degree = piece.degree[along];
    seam.knots = piece.knots[along];
    seam.on = a.on;
    seam.before = a.inner;
    seam.after = b.inner;
    seam.weight_on = a.weight_on;
    seam.weight_before = a.weight_inner;
    seam.weight_after = b.weight_inner;
    for (double& w : seam.weight_after) w *= a.weight_on[0] / b.weight_on[0];
    for (size_t k = 0; k < a.on.size(); ++k) seam.is_kept.push_back(out_.is_kept[a.on[k]] & out_.is_kept[b.on[k]]);
    if (std::ranges::count(seam.is_kept, 1) == 0) return;
    for (size_t k = 0; k < a.on.size(); ++k) Unite(a.on[k], b.on[k]);
    out_.seams.push_back(std::move(seam));
  }

  /// Where a point on a seam lies between those beside it, in (0, 1); nothing if it is not on their line.
  std::optional<double> PlaceBetween(const Vector3d& before, const Vector3d& on, const Vector3d& after) const {
    const Vector3d line = after - before;
    const double share = (on - before).dot(line) / line.squaredNorm();
    if (!(share > 1e-3 && share < 1 - 1e-3)) return std::nullopt;
    if ((before + share * line - on).norm() > kSameShare * line.norm() + tolerance_m_) return std::nullopt;
    return share;
  }

  // Smooth for all positions of the control points: the homogeneous ones on the seam are one combination of those beside it, all along it.
  void TieSeams() {
    for (NurbsShellSeam& seam : out_.seams) {
      std::vector<std::pair<uint32_t, double>> shares;  // of point k
      std::optional<double> speed, gain;
      bool is_smooth = true;
      for (size_t k = 0; k < seam.on.size() && is_smooth; ++k) {
        if (seam.is_kept[k] == 0) continue;
        const uint32_t on = Root(seam.on[k]);
        if (on == Root(seam.before[k]) && on == Root(seam.after[k])) continue;  // a pole
        const auto share = PlaceBetween(position_[seam.before[k]], position_[on], position_[seam.after[k]]);
        if (!share) {
          is_smooth = false;
          break;
        }
        const double here = seam.weight_after[k] * (1 - *share) / (*share * seam.weight_before[k]);
        const double gain_here = (seam.weight_after[k] + here * seam.weight_before[k]) / seam.weight_on[k];
        if (!speed) speed = here;
        if (!gain) gain = gain_here;
        is_smooth = std::abs(here - *speed) <= 1e-4 * *speed && std::abs(gain_here - *gain) <= 1e-4 * *gain;
        shares.emplace_back(static_cast<uint32_t>(k), *share);
      }
      if (!is_smooth) continue;
      seam.is_smooth = true;
      for (const auto& [k, share] : shares) {
        const uint32_t on = Root(seam.on[k]);
        ties_.emplace(on, Tie{Root(seam.before[k]), Root(seam.after[k]), share});
      }
    }
  }

  /// The unknowns that a root depends on; nothing where ties go in a circle.
  const std::map<uint32_t, double>& Resolve(uint32_t root) {
    const auto [entry, is_new] = resolved_.try_emplace(root);
    if (!is_new) return entry->second;
    const auto tie = ties_.find(root);
    if (tie == ties_.end()) {
      entry->second = {{root, 1.0}};
      return entry->second;
    }
    std::map<uint32_t, double> sum;
    for (const auto& [to, weight] :
         {std::pair(tie->second.before, 1 - tie->second.share), std::pair(tie->second.after, tie->second.share)}) {
      const std::map<uint32_t, double>& of = Resolve(to);
      if (of.empty()) {  // a circle: this point stays an unknown
        sum = {{root, 1.0}};
        break;
      }
      for (const auto& [unknown, part] : of) sum[unknown] += weight * part;
    }
    return resolved_[root] = std::move(sum);
  }

  void Number() {
    for (uint32_t n = 0; n < root_.size(); ++n) {  // joined points are kept together
      Resolve(Root(n));
      out_.is_kept[Root(n)] |= out_.is_kept[n];
    }
    std::map<uint32_t, uint32_t> number;
    for (uint32_t n = 0; n < root_.size(); ++n) {  // rising, so that neighbours stay near each other
      out_.is_kept[n] = out_.is_kept[Root(n)];
      const std::map<uint32_t, double>& of = resolved_[Root(n)];
      if (out_.is_kept[n] == 0 || Root(n) != n || of.size() != 1 || of.begin()->first != n) continue;
      number.emplace(n, static_cast<uint32_t>(number.size()));
    }
    out_.control_count = static_cast<uint32_t>(number.size());
    out_.parts.resize(root_.size());
    for (uint32_t n = 0; n < root_.size(); ++n) {
      if (out_.is_kept[n] == 0) continue;
      for (const auto& [unknown, weight] : resolved_[Root(n)]) out_.parts[n].emplace_back(number.at(unknown), weight);
    }
    for (uint32_t p = 0; p < object_.patches().size(); ++p) CarryCutAway(p);
  }

  /// Points of a net that are cut away: the mean of kept ones near them that is where they are at rest, as far as one is, with the least
  /// squares of weights.
  void CarryCutAway(uint32_t p) {
    const size_t columns = object_.patches()[p].surface.count(NurbsDirection::kV);
    const size_t rows = object_.patches()[p].surface.count(NurbsDirection::kU);
    // The kept point that is nearest in the net, from neighbour to neighbour.
    std::vector<std::optional<size_t>> nearest(rows * columns);
    std::vector<size_t> front;
    for (size_t n = 0; n < nearest.size(); ++n) {
      if (out_.is_kept[out_.net_begin[p] + n] == 0) continue;
      nearest[n] = n;
      front.push_back(n);
    }
    for (size_t next = 0; next < front.size(); ++next) {
      const size_t i = front[next] / columns, j = front[next] % columns;
      const auto visit = [&](size_t n) {
        if (nearest[n]) return;
        nearest[n] = nearest[front[next]];
        front.push_back(n);
      };
      if (i > 0) visit(front[next] - columns);
      if (i + 1 < rows) visit(front[next] + columns);
      if (j > 0) visit(front[next] - 1);
      if (j + 1 < columns) visit(front[next] + 1);
    }
    for (size_t n = 0; n < nearest.size(); ++n) {
      if (out_.is_kept[out_.net_begin[p] + n] != 0) continue;
      constexpr size_t kReach = 2;
      const size_t i = *nearest[n] / columns, j = *nearest[n] % columns;
      std::vector<uint32_t> near;
      for (size_t a = i - std::min(i, kReach); a < std::min(rows, i + kReach + 1); ++a) {
        for (size_t b = j - std::min(j, kReach); b < std::min(columns, j + kReach + 1); ++b) {
          const auto net = out_.net_begin[p] + static_cast<uint32_t>(a * columns + b);
          if (out_.is_kept[net] != 0) near.push_back(net);
        }
      }
      Carry(out_.net_begin[p] + static_cast<uint32_t>(n), near);
    }
  }

  void Carry(uint32_t net, const std::vector<uint32_t>& near) {
    Eigen::MatrixXd equations(4, static_cast<Eigen::Index>(near.size()));
    const double size = (position_[net] - position_[near[0]]).norm() + tolerance_m_;
    for (size_t k = 0; k < near.size(); ++k) {
      equations.col(static_cast<Eigen::Index>(k)) << (position_[near[k]] - position_[net]) / size, 1;
    }
    Eigen::CompleteOrthogonalDecomposition<Eigen::MatrixXd> solver;
    solver.setThreshold(1e-6);
    Eigen::VectorXd weights = solver.compute(equations).solve(Eigen::Vector4d::UnitW());
    if (weights.sum() > 0.5) {
      weights /= weights.sum();
    } else {
      weights.setConstant(1 / static_cast<double>(near.size()));
    }
    std::map<uint32_t, double> sum;
    for (size_t k = 0; k < near.size(); ++k) {
      for (const auto& [unknown, part] : out_.parts[near[k]]) sum[unknown] += weights[static_cast<Eigen::Index>(k)] * part;
    }
    out_.parts[net].assign(sum.begin(), sum.end());
  }

  struct Tie {
    uint32_t before, after;
    double share;
  };

  const NurbsObject& object_;
  double tolerance_m_;
  std::vector<Vector3d> position_;  // [point of a net]
  std::vector<double> weight_;
  std::vector<uint32_t> root_;
  std::vector<Side> sides_;
  std::map<uint32_t, Tie> ties_;
  std::map<uint32_t, std::map<uint32_t, double>> resolved_;
  NurbsShellJoints out_;
};

}  // namespace

absl::StatusOr<NurbsShellJoints> JoinNurbsShell(const NurbsObject& object, std::vector<uint8_t> is_kept) {
  return Joiner(object, std::move(is_kept)).Run();
}

}  // namespace palpate::sim
