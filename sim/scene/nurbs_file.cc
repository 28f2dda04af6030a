#include "sim/scene/nurbs_file.h"

#include <algorithm>
#include <limits>

#include <google/protobuf/util/json_util.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/scene/checker.h"

namespace palpate::scene {
namespace {

constexpr uint32_t kVersion = 1;

/// Beyond what is allowed, a degree is only told to be wrong.
int DegreeOf(uint32_t degree) { return static_cast<int>(std::min<uint32_t>(degree, 1u << 20)); }

template <typename Field>
std::vector<double> ValuesOf(const Field& field) {
  return {field.begin(), field.end()};
}

absl::Status CheckTriples(const std::string& path, int count, int of) {
  if (count % of == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", count, " numbers, ", of, " for each point are wanted"));
}

absl::Status CheckName(const std::string& path, const std::string& name) {
  if (name.size() <= kMaxNurbsNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", name.size(), " bytes, at most ", kMaxNurbsNameBytes, " are allowed"));
}

absl::StatusOr<sim::NurbsTrimDescription> TrimFromProto(const v1::NurbsTrimCurve& curve, const std::string& path) {
  PALPATE_RETURN_IF_ERROR(CheckTriples(At(path, "points"), curve.points_size(), 2));
  sim::NurbsTrimDescription out;
  out.curve.degree = DegreeOf(curve.degree());
  out.curve.knots = ValuesOf(curve.knots());
  out.curve.weights = ValuesOf(curve.weights());
  for (int i = 0; i < curve.points_size(); i += 2) out.curve.control.emplace_back(curve.points(i), curve.points(i + 1));
  out.is_reversed = curve.is_reversed();
  out.edge = curve.edge();
  return out;
}

absl::StatusOr<sim::NurbsPatchDescription> PatchFromProto(const v1::NurbsPatch& patch, const std::string& path) {
  PALPATE_RETURN_IF_ERROR(CheckName(At(path, "name"), patch.name()));
  PALPATE_RETURN_IF_ERROR(CheckTriples(At(path, "control_m"), patch.control_m_size(), 3));
  sim::NurbsPatchDescription out;
  out.name = patch.name();
  out.surface.degree_u = DegreeOf(patch.degree_u());
  out.surface.degree_v = DegreeOf(patch.degree_v());
  out.surface.knots_u = ValuesOf(patch.knots_u());
  out.surface.knots_v = ValuesOf(patch.knots_v());
  out.surface.weights = ValuesOf(patch.weights());
  for (int i = 0; i < patch.control_m_size(); i += 3) {
    out.surface.control_m.emplace_back(patch.control_m(i), patch.control_m(i + 1), patch.control_m(i + 2));
  }
  for (int l = 0; l < patch.loops_size(); ++l) {
    std::vector<sim::NurbsTrimDescription> loop;
    for (int c = 0; c < patch.loops(l).curves_size(); ++c) {
      const std::string at = At(At(At(path, "loops"), l), "curves");
      PALPATE_ASSIGN_OR_RETURN(sim::NurbsTrimDescription trim, TrimFromProto(patch.loops(l).curves(c), At(at, c)));
      loop.push_back(std::move(trim));
    }
    out.loops.push_back(std::move(loop));
  }
  return out;
}

template <typename Field>
void Assign(const std::vector<double>& values, Field* field) {
  field->Assign(values.begin(), values.end());
}

v1::NurbsPatch ToProto(const sim::NurbsPatchDescription& patch) {
  v1::NurbsPatch out;
  out.set_name(patch.name);
  out.set_degree_u(static_cast<uint32_t>(patch.surface.degree_u));
  out.set_degree_v(static_cast<uint32_t>(patch.surface.degree_v));
  Assign(patch.surface.knots_u, out.mutable_knots_u());
  Assign(patch.surface.knots_v, out.mutable_knots_v());
  Assign(patch.surface.weights, out.mutable_weights());
  for (const Eigen::Vector3d& p : patch.surface.control_m) {
    for (int axis = 0; axis < 3; ++axis) out.add_control_m(p[axis]);
  }
  for (const auto& loop : patch.loops) {
    v1::NurbsLoop& to_loop = *out.add_loops();
    for (const sim::NurbsTrimDescription& trim : loop) {
      v1::NurbsTrimCurve& to = *to_loop.add_curves();
      to.set_degree(static_cast<uint32_t>(trim.curve.degree));
      Assign(trim.curve.knots, to.mutable_knots());
      Assign(trim.curve.weights, to.mutable_weights());
      for (const Eigen::Vector2d& p : trim.curve.control) {
        to.add_points(p.x());
        to.add_points(p.y());
      }
      to.set_is_reversed(trim.is_reversed);
      to.set_edge(trim.edge);
    }
  }
  return out;
}

// protobuf reads -0 as an integer, which has no sign. Text in quotes stays as it is.
std::string WithSignedZeros(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  bool is_quoted = false;
  bool is_escaped = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    out += c;
    if (c == '"' && !is_escaped) is_quoted = !is_quoted;
    is_escaped = is_quoted && c == '\\' && !is_escaped;
    // A whole number of a list: what follows and precedes "-0" tells.
    const bool is_zero = !is_quoted && c == '0' && i > 1 && json[i - 1] == '-' && (json[i - 2] == '[' || json[i - 2] == ',');
    if (is_zero && i + 1 < json.size() && (json[i + 1] == ',' || json[i + 1] == ']')) out += ".0";
  }
  return out;
}

std::string JsonOf(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  // Every message of ours has a JSON form: no Any, no unknown type.
  (void)google::protobuf::util::MessageToJsonString(message, &text, options);
  return text;
}

}  // namespace

absl::StatusOr<sim::NurbsObjectDescription> NurbsFromProto(const v1::NurbsObject& object) {
  if (object.version() != kVersion) {
    return absl::InvalidArgumentError(absl::StrCat("version: ", object.version(), ", this program reads ", kVersion));
  }
  PALPATE_RETURN_IF_ERROR(CheckName("name", object.name()));
  sim::NurbsObjectDescription out;
  out.name = object.name();
  for (int i = 0; i < object.patches_size(); ++i) {
    const std::string path = sim::NurbsPatchPath(static_cast<size_t>(i), "");
    PALPATE_ASSIGN_OR_RETURN(sim::NurbsPatchDescription patch, PatchFromProto(object.patches(i), path));
    out.patches.push_back(std::move(patch));
  }
  return out;
}

v1::NurbsObject NurbsToProto(const sim::NurbsObjectDescription& object) {
  v1::NurbsObject out;
  out.set_version(kVersion);
  out.set_name(object.name);
  for (const sim::NurbsPatchDescription& patch : object.patches) *out.add_patches() = ToProto(patch);
  return out;
}

absl::StatusOr<sim::NurbsObjectDescription> ParseNurbsJson(std::string_view text, std::string_view display_name) {
  const std::string name(display_name);
  if (text.size() > kMaxNurbsFileBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(name, ": ", text.size(), " bytes, at most ", kMaxNurbsFileBytes, " are allowed"));
  }
  v1::NurbsObject object;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = false;
  const auto status = google::protobuf::util::JsonStringToMessage({text.data(), text.size()}, &object, options);
  if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat(name, ": ", std::string(status.message())));
  absl::StatusOr<sim::NurbsObjectDescription> out = NurbsFromProto(object);
  if (!out.ok()) return Annotate(out.status(), name);
  return out;
}

absl::StatusOr<sim::NurbsObject> ReadNurbs(std::string_view text, std::string_view display_name) {
  PALPATE_ASSIGN_OR_RETURN(const sim::NurbsObjectDescription description, ParseNurbsJson(text, display_name));
  absl::StatusOr<sim::NurbsObject> object = sim::NurbsObject::Create(description);
  if (!object.ok()) return Annotate(object.status(), display_name);
  return object;
}

std::string FormatNurbsJson(const sim::NurbsObjectDescription& object) {
  v1::NurbsObject head;
  head.set_version(kVersion);
  head.set_name(object.name);
  std::string text = JsonOf(head);
  text.pop_back();  // of the object: its patches follow, each on a line of its own
  text += ",\"patches\":[";
  for (size_t i = 0; i < object.patches.size(); ++i)
    absl::StrAppend(&text, i == 0 ? "\n" : ",\n", WithSignedZeros(JsonOf(ToProto(object.patches[i]))));
  text += "\n]}\n";
  return text;
}

}  // namespace palpate::scene
