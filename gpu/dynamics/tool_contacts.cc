#include "gpu/dynamics/tool_contacts.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/float4.h"
#include "gpu/dynamics/packed_types.h"

namespace palpate::gpu {

namespace kernels {
extern const KernelSource tools;
}  // namespace kernels

namespace {

constexpr uint32_t kMaxColliders = 32;    // bits of a triangle's collider mask
constexpr double kToolContactRatio = 20;  // a coupled tool's contacts are at most this much stiffer than what drives it
constexpr uint32_t kPlaneContact = 0xffffffffU;
constexpr size_t kLeastReports = 256;

}  // namespace

absl::StatusOr<Collider> ToolContacts::MakeCollider(std::span<const ColliderDescription> colliders, size_t index, double dt_s,
                                                    double stiffness_n_per_m) {
  ColliderDescription c = colliders[index];
  const uint32_t place = c.places_after_leader;
  if (place > 0 && (place > index || initial_[index - place].leader != index - place || initial_[index - place].members != place)) {
    return absl::InvalidArgumentError(absl::StrCat("collider ", index, ": is ", place, " places after no leader"));
  }
  Collider collider{};
  collider.leader = static_cast<uint32_t>(index - place);
  collider.members = 1;
  collider.skips_tissue = c.skips_tissue ? 1 : 0;
  if (place > 0) {
    const ColliderDescription& leader = colliders[collider.leader];
    initial_[collider.leader].members = place + 1;
    c.coupling_n_per_m = leader.coupling_n_per_m;
    c.damping_n_s_per_m = leader.damping_n_s_per_m;
    c.mass_kg = leader.mass_kg;
    collider.offset = ToFloat4({c.tip_m[0] - leader.tip_m[0], c.tip_m[1] - leader.tip_m[1], c.tip_m[2] - leader.tip_m[2]});
  }
  collider.tip_start = ToFloat4(c.tip_m, c.radius_m);
  collider.axis_start = ToFloat4(c.axis_m);
  collider.tip = ToFloat4(c.tip_m);
  // Against a light tool on a soft coupling a stiff contact is only slow to solve, and what is left unsolved shows as force peaks.
  const double impedance_n_per_m = c.mass_kg / (dt_s * dt_s) + c.damping_n_s_per_m / dt_s + c.coupling_n_per_m;
  collider.axis =
      ToFloat4(c.axis_m, c.coupling_n_per_m > 0 ? std::min(stiffness_n_per_m, kToolContactRatio * impedance_n_per_m) : stiffness_n_per_m);
  collider.velocity = ToFloat4({}, c.mass_kg);
  collider.device_tip = ToFloat4(c.tip_m, c.coupling_n_per_m);
  collider.device_velocity = ToFloat4({}, c.damping_n_s_per_m);
  any_coupled_ |= c.coupling_n_per_m > 0;
  return collider;
}

absl::Status ToolContacts::Init(Queue& queue, const TissueLayout& layout, const TissueOptions& options, const TissueTuning& tuning,
                                std::span<const ColliderDescription> colliders, std::span<const PlaneObstacle> planes,
                                double stiffness_n_per_m) {
  if (colliders.size() > kMaxColliders) {
    return absl::InvalidArgumentError(absl::StrCat(colliders.size(), " tools and capsule obstacles exceed the limit of ", kMaxColliders));
  }
  list_group_ = tuning.list_group;
  tool_group_ = tuning.phase_group;  // so that sums are grouped alike
  for (size_t c = 0; c < colliders.size(); ++c) {
    PALPATE_ASSIGN_OR_RETURN(const Collider collider, MakeCollider(colliders, c, options.dt_s, stiffness_n_per_m));
    initial_.push_back(collider);
  }
  descriptions_.assign(colliders.begin(), colliders.end());
  planes_host_.assign(planes.begin(), planes.end());
  states_ = initial_;
  const std::shared_ptr<Context>& context = queue.context();
  const size_t triangles = layout.triangles.size();
  PALPATE_ASSIGN_OR_RETURN(triangle_colliders_, DeviceBuffer<uint32_t>::Create(context, triangles, "triangle_colliders"));
  PALPATE_ASSIGN_OR_RETURN(contacts_, DeviceBuffer<ToolContact>::Create(context, triangles * colliders.size(), "contacts"));
  PALPATE_ASSIGN_OR_RETURN(colliders_, DeviceBuffer<Collider>::Create(context, colliders.size() + kMaxTissueClips, "colliders"));
  PALPATE_ASSIGN_OR_RETURN(targets_, DeviceBuffer<Float4>::Create(context, 2 * colliders.size(), "collider_targets"));
  PALPATE_ASSIGN_OR_RETURN(planes_, CreateBufferFrom(queue, planes, "planes"));
  PALPATE_ASSIGN_OR_RETURN(list_, DeviceBuffer<uint32_t>::Create(context, triangles * colliders.size() + 1, "contact_list"));
  PALPATE_ASSIGN_OR_RETURN(report_count_, DeviceBuffer<uint32_t>::Create(context, 1, "report_count"));
  PALPATE_ASSIGN_OR_RETURN(reports_, DeviceBuffer<ContactReport>::Create(context, kLeastReports, "contact_reports"));
  PALPATE_RETURN_IF_ERROR(queue.Zero(triangle_colliders_));
  PALPATE_RETURN_IF_ERROR(queue.Zero(contacts_));
  PALPATE_RETURN_IF_ERROR(queue.Zero(colliders_));
  return queue.Zero(list_);
}

absl::Status ToolContacts::MakeKernels(Context& context, ToolContacts* old) {
  constexpr std::pair<Kernel ToolContacts::*, const char*> kKernels[] = {
      {&ToolContacts::move_colliders_, "move_colliders"},   {&ToolContacts::find_contacts_, "find_contacts"},
      {&ToolContacts::list_contacts_, "list_contacts"},     {&ToolContacts::update_contacts_, "update_contacts"},
      {&ToolContacts::solve_colliders_, "solve_colliders"}, {&ToolContacts::finish_colliders_, "finish_colliders"},
      {&ToolContacts::report_contacts_, "report_contacts"}};
  const bool is_same = old != nullptr && old->list_group_ == list_group_ && old->tool_group_ == tool_group_;
  for (const auto& [kernel, name] : kKernels) {
    if (is_same) {
      this->*kernel = std::move(old->*kernel);
    } else {
      PALPATE_ASSIGN_OR_RETURN(this->*kernel, context.CreateKernel(kernels::tools, name, defines()));
    }
  }
  return absl::OkStatus();
}

absl::Status ToolContacts::Bind(const TissueBuffers& tissue, const TissueAnchors& anchors) {
  PALPATE_RETURN_IF_ERROR(move_colliders_.Bind(Arg("p", tissue.params), Arg("colliders", colliders_), Arg("targets", targets_)));
  PALPATE_RETURN_IF_ERROR(find_contacts_.Bind(Arg("p", tissue.params), Arg("x", tissue.x), Arg("x_start", tissue.x_start),
                                              Arg("triangles", tissue.triangles), Arg("colliders", colliders_), Arg("contacts", contacts_),
                                              Arg("triangle_colliders", triangle_colliders_)));
  PALPATE_RETURN_IF_ERROR(list_contacts_.Bind(Arg("p", tissue.params), Arg("triangle_colliders", triangle_colliders_), Arg("list", list_)));
  PALPATE_RETURN_IF_ERROR(update_contacts_.Bind(Arg("p", tissue.params), Arg("gate", tissue.gate), Arg("triangles", tissue.triangles),
                                                Arg("colliders", colliders_), Arg("list", list_), Arg("contacts", contacts_)));
  PALPATE_RETURN_IF_ERROR(solve_colliders_.Bind(
      Arg("p", tissue.params), Arg("x", tissue.x), Arg("x_start", tissue.x_start), Arg("triangles", tissue.triangles), Arg("list", list_),
      Arg("triangle_colliders", triangle_colliders_), Arg("vertex_triangle_range", tissue.vertex_triangle_range),
      Arg("vertex_triangles", tissue.vertex_triangles), Arg("contacts", contacts_), Arg("anchor_begin", anchors.begins()),
      Arg("anchors", anchors.anchors()), Arg("colliders", colliders_)));
  return finish_colliders_.Bind(Arg("p", tissue.params), Arg("gate", tissue.gate), Arg("colliders", colliders_));
}

absl::Status ToolContacts::BindAnchors(const TissueAnchors& anchors) { return solve_colliders_.Bind(Arg("anchors", anchors.anchors())); }

absl::Status ToolContacts::Reset(Queue& queue) {
  PALPATE_RETURN_IF_ERROR(ForgetContacts(queue));
  states_ = initial_;
  return initial_.empty() ? absl::OkStatus() : queue.Write(colliders_, std::span<const Collider>(initial_));
}

absl::Status ToolContacts::ForgetContacts(Queue& queue) {
  PALPATE_RETURN_IF_ERROR(queue.Fill(triangle_colliders_, 0U));
  return queue.Fill(list_, 0U, 1);
}

absl::Status ToolContacts::GoOnFrom(Queue& queue, const ToolContacts& old) {
  initial_ = old.initial_;
  states_ = old.states_;
  return queue.Copy(old.colliders_, colliders_, colliders_.count());
}

absl::Status ToolContacts::SaveState(Queue& queue, const TissueLayout& layout, StateWriter& archive) const {
  // All members, so that a new one is not forgotten: the rest is as described, of a step, or room.
  [[maybe_unused]] const auto& [list_group, tool_group, any_coupled, report_count_host, descriptions, planes_host, initial, states,
                                reports_host, colliders, targets, planes, contacts, triangle_colliders, list, report_count, reports, move,
                                find, list_kernel, update, solve, finish, report] = *this;
  std::vector<Collider> all(colliders.count());
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(colliders, std::span<Collider>(all)));
  PALPATE_ASSIGN_OR_RETURN(const std::vector<KnownSide> sides, ReadSides(queue, layout.triangle_count));
  archive.Enter("ToolContacts");
  archive(all, sides);
  return absl::OkStatus();
}

/// By triangle, then collider.
absl::StatusOr<std::vector<ToolContacts::KnownSide>> ToolContacts::ReadSides(Queue& queue, uint32_t triangle_count) const {
  std::vector<KnownSide> sides;
  if (descriptions_.empty() || triangle_count == 0) return sides;
  std::vector<uint32_t> masks(triangle_count);
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(triangle_colliders_, std::span<uint32_t>(masks)));
  if (std::all_of(masks.begin(), masks.end(), [](uint32_t mask) { return mask == 0; })) return sides;
  std::vector<ToolContact> contacts(size_t{triangle_count} * descriptions_.size());
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(contacts_, std::span<ToolContact>(contacts)));
  for (uint32_t t = 0; t < triangle_count; ++t) {
    for (uint32_t c = 0; c < collider_count(); ++c) {
      if ((masks[t] >> c & 1U) == 0) continue;
      const Float4& side = contacts[size_t{c} * triangle_count + t].side;
      if (side.w > 0) sides.push_back({t, c, side});
    }
  }
  return sides;
}

absl::Status ToolContacts::WriteSides(Queue& queue, uint32_t triangle_count, std::span<const KnownSide> sides) {
  if (sides.empty()) return absl::OkStatus();
  std::vector<uint32_t> masks(triangle_count);
  std::vector<ToolContact> contacts(size_t{triangle_count} * descriptions_.size());
  for (const KnownSide& known : sides) {
    masks[known.triangle] |= 1U << known.collider;
    contacts[size_t{known.collider} * triangle_count + known.triangle].side = known.side;
  }
  PALPATE_RETURN_IF_ERROR(queue.Write(triangle_colliders_, std::span<const uint32_t>(masks)));
  return queue.Write(contacts_, std::span<const ToolContact>(contacts));
}

absl::Status ToolContacts::LoadState(Queue& queue, const TissueLayout& layout, StateReader& archive) {
  std::vector<Collider> all;
  std::vector<KnownSide> sides;
  archive.Enter("ToolContacts");
  archive(all, sides);
  archive.Check(all.size() == colliders_.count(), "another number of colliders");
  archive.Check(std::all_of(sides.begin(), sides.end(),
                            [&](const KnownSide& known) {
                              const Float4& side = known.side;
                              return known.triangle < layout.triangle_count && known.collider < collider_count() && std::isfinite(side.x) &&
                                     std::isfinite(side.y) && std::isfinite(side.z) && side.w > 0;
                            }),
                "a contact of a tool that is not there");
  PALPATE_RETURN_IF_ERROR(archive.status());
  for (size_t c = 0; c < all.size(); ++c) {  // who leads whom is as described
    const Collider like = c < initial_.size() ? initial_[c] : Collider{};
    all[c].leader = like.leader;
    all[c].members = like.members;
    all[c].skips_tissue = like.skips_tissue;
  }
  std::copy_n(all.begin(), states_.size(), states_.begin());
  PALPATE_RETURN_IF_ERROR(ForgetContacts(queue));
  PALPATE_RETURN_IF_ERROR(WriteSides(queue, layout.triangle_count, sides));
  return queue.Write(colliders_, std::span<const Collider>(all));
}

absl::Status ToolContacts::Begin(Queue& queue, uint32_t triangle_count, std::span<const Float4> goals) {
  if (goals.empty()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.Write(targets_, goals));
  PALPATE_RETURN_IF_ERROR(queue.Enqueue(move_colliders_, {collider_count(), 0}));
  PALPATE_RETURN_IF_ERROR(queue.Enqueue(find_contacts_, {triangle_count, 0}));
  return queue.Enqueue(list_contacts_, {list_group_, list_group_});
}

absl::Status ToolContacts::SolveAlone(Queue& queue, const TissueBuffers& tissue) {
  for (uint32_t k = 0; any_coupled_ && k < kSweepsAlone; ++k) {
    PALPATE_RETURN_IF_ERROR(Update(queue, tissue));
    PALPATE_RETURN_IF_ERROR(Solve(queue));
  }
  return absl::OkStatus();
}

absl::Status ToolContacts::Update(Queue& queue, const TissueBuffers& tissue) {
  if (descriptions_.empty()) return absl::OkStatus();
  return queue.Launch(update_contacts_, Contacts(), Arg("x", tissue.x), Arg("notes_sides", uint32_t{1}));
}

absl::Status ToolContacts::Try(Queue& queue, const DeviceBuffer<Float4>& positions) {
  if (descriptions_.empty()) return absl::OkStatus();
  return queue.Launch(update_contacts_, Contacts(), Arg("x", positions), Arg("notes_sides", uint32_t{0}));
}

absl::Status ToolContacts::Solve(Queue& queue) { return any_coupled_ ? queue.Enqueue(solve_colliders_, Colliders()) : absl::OkStatus(); }

absl::Status ToolContacts::Finish(Queue& queue, const TissueBuffers& tissue) {
  if (descriptions_.empty()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(Update(queue, tissue));
  return queue.Enqueue(finish_colliders_, {collider_count(), 0});
}

absl::Status ToolContacts::EnqueueReport(Queue& queue, const TissueBuffers& tissue) {
  report_count_host_ = 0;
  if (empty()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.Fill(report_count_, 0U));
  PALPATE_RETURN_IF_ERROR(
      queue.Launch(report_contacts_, Contacts(), Arg("p", tissue.params), Arg("capacity", static_cast<uint32_t>(reports_.count())),
                   Arg("x", tissue.x), Arg("x_start", tissue.x_start), Arg("triangles", tissue.triangles), Arg("colliders", colliders_),
                   Arg("list", list_), Arg("triangle_colliders", triangle_colliders_), Arg("contacts", contacts_), Arg("planes", planes_),
                   Arg("vertex_triangle_range", tissue.vertex_triangle_range), Arg("vertex_triangles", tissue.vertex_triangles),
                   Arg("header", report_count_), Arg("reports", reports_)));
  reports_host_.resize(reports_.count());
  PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(report_count_, std::span<uint32_t>(&report_count_host_, 1)));
  return queue.EnqueueRead(reports_, std::span<ContactReport>(reports_host_));
}

absl::Status ToolContacts::CollectReport(Queue& queue, const TissueBuffers& tissue, const TissueLayout& layout) {
  if (report_count_host_ > reports_.count()) {  // grow and run the stage again
    PALPATE_RETURN_IF_ERROR(Grow(queue.context(), reports_, size_t{report_count_host_} * 2, "contact_reports"));
    PALPATE_RETURN_IF_ERROR(EnqueueReport(queue, tissue));
    PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());
  }
  reports_host_.resize(report_count_host_);
  std::sort(reports_host_.begin(), reports_host_.end(), [](const ContactReport& a, const ContactReport& b) {
    return std::tie(a.collider, a.triangle, a.arm, a.point.x, a.point.y, a.point.z) <
           std::tie(b.collider, b.triangle, b.arm, b.point.x, b.point.y, b.point.z);
  });
  for (ContactReport& r : reports_host_) {
    if (r.collider == kPlaneContact) r.triangle = layout.original_index[SolverSlot{r.triangle}];
  }
  return absl::OkStatus();
}

absl::Status ToolContacts::EnqueueRead(Queue& queue) {
  return states_.empty() ? absl::OkStatus() : queue.EnqueueRead(colliders_, std::span<Collider>(states_));
}

size_t ToolContacts::device_bytes() const {
  return colliders_.size_bytes() + targets_.size_bytes() + planes_.size_bytes() + contacts_.size_bytes() +
         triangle_colliders_.size_bytes() + list_.size_bytes() + report_count_.size_bytes() + reports_.size_bytes();
}

}  // namespace palpate::gpu
