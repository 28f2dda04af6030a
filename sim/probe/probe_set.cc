#include "sim/probe/probe_set.h"

#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gpu/base/status.h"
#include "sim/probe/probe_path.h"

namespace palpate::sim {

struct ProbeSet::Probe {
  std::function<void(FrameMeasures&, double*)> measure;
  std::vector<size_t> picks;  ///< components that are columns; kNorm: the length of the vector
};

namespace {

constexpr size_t kNorm = kMaxComponents;
constexpr size_t kListedNames = 40;  ///< in messages

std::span<const std::string_view> ComponentsOf(QuantityShape shape) {
  static constexpr std::array<std::string_view, 3> kVectorNames = {"x", "y", "z"};
  static constexpr std::array<std::string_view, 4> kRotationNames = {"w", "x", "y", "z"};
  static constexpr std::array<std::string_view, 2> kHashNames = {"high", "low"};
  switch (shape) {
    case QuantityShape::kVector:
      return kVectorNames;
    case QuantityShape::kRotation:
      return kRotationNames;
    case QuantityShape::kHash:
      return kHashNames;
    case QuantityShape::kScalar:
      break;
  }
  return {};
}

absl::string_view View(std::string_view s) { return {s.data(), s.size()}; }

std::string ListOf(const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  std::string text;
  for (size_t i = 0; i < names.size() && i < kListedNames; ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", names[i]);
  if (names.size() > kListedNames) absl::StrAppend(&text, ", ... (", names.size(), " in all)");
  return text;
}

template <typename Table>
std::vector<std::string> NamesOf(const Table& table) {
  std::vector<std::string> names;
  for (const auto& quantity : table) names.emplace_back(quantity.name);
  return names;
}

/// What paths may name.
struct SceneNames {
  explicit SceneNames(const SceneDescription& scene) {
    for (const BodyDescription& body : scene.bodies) {
      bodies.push_back(body.name);
      for (const MarkerDescription& marker : body.markers) {
        markers.push_back(marker.name);
        marker_paths.push_back(absl::StrCat(body.name, "/", marker.name));
      }
    }
    for (const ToolDescription& tool : scene.tools) tools.push_back(tool.name);
    others = tools;
    others.emplace_back("obstacles");
  }
  std::vector<std::string> bodies, tools, others;
  std::vector<std::string> markers;       ///< their own names
  std::vector<std::string> marker_paths;  ///< BODY/MARKER
};

/// Of what fits: exactly, or else as a pattern.
std::vector<uint32_t> Matching(const std::vector<std::string>& names, const std::string& pattern) {
  std::vector<uint32_t> fitting;
  for (const bool is_exact : {true, false}) {
    if (!fitting.empty()) break;
    for (uint32_t i = 0; i < names.size(); ++i) {
      if (is_exact ? names[i] == pattern : MatchesPattern(pattern, names[i])) fitting.push_back(i);
    }
  }
  return fitting;
}

bool IsPattern(std::string_view name) { return name.find('*') != std::string_view::npos; }

/// What one path stands for, before it is known which of its components are wanted.
struct Measured {
  std::string name;
  std::string_view unit;
  QuantityShape shape = QuantityShape::kScalar;
  bool is_wall_clock = false;
  std::function<void(FrameMeasures&, double*)> measure;
};

class PathReader {
 public:
  explicit PathReader(const SceneNames& names) : names_(names) {}

  /// What the parts name; afterwards used() of them are used, the next is a component.
  absl::StatusOr<std::vector<Measured>> Read(const std::vector<PathPart>& parts) {
    used_ = 0;
    const std::string& first = parts[0].name;
    if (first == "tool") return ReadIndexed(parts, names_.tools, ToolQuantities());
    if (first == "marker") return ReadMarkers(parts);
    if (first == "body" || first == "tissue") return ReadBodies(parts, first == "tissue");
    if (first == "contacts") return ReadContacts(parts, ContactQuantities(), names_.others);
    if (first == "surface_contacts") return ReadContacts(parts, SurfaceContactQuantities(), names_.bodies);
    return ReadScene(parts);
  }
  size_t used() const { return used_; }

 private:
  /// The part at used_, which has to be there.
  absl::StatusOr<const PathPart*> Next(const std::vector<PathPart>& parts, std::string_view what,
                                       const std::function<std::vector<std::string>()>& there) {
    if (used_ < parts.size()) return &parts[used_++];
    return absl::InvalidArgumentError(absl::StrCat("ends where ", View(what), " is expected; there are: ", ListOf(there())));
  }

  static absl::Status Unknown(const PathPart& part, std::string_view what, const std::vector<std::string>& there) {
    return absl::InvalidArgumentError(
        absl::StrCat("at byte ", part.position, ": there is no ", View(what), " \"", part.name, "\"; there are: ", ListOf(there)));
  }

  static absl::Status NoArguments(const PathPart& part) {
    if (!part.has_arguments) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("at byte ", part.position, ": \"", part.name, "\" takes no arguments"));
  }

  template <typename Entry>
  absl::StatusOr<const Entry*> Find(const std::vector<PathPart>& parts, std::span<const Entry> table, std::string_view what) {
    PALPATE_ASSIGN_OR_RETURN(const PathPart* part, Next(parts, what, [table] { return NamesOf(table); }));
    for (const Entry& entry : table) {
      if (entry.name == part->name) return &entry;
    }
    return Unknown(*part, what, NamesOf(table));
  }

  absl::StatusOr<std::vector<uint32_t>> FindSubjects(const std::vector<PathPart>& parts, const std::vector<std::string>& names) {
    const std::string& kind = parts[0].name;
    PALPATE_RETURN_IF_ERROR(NoArguments(parts[0]));
    used_ = 1;
    PALPATE_ASSIGN_OR_RETURN(const PathPart* part, Next(parts, absl::StrCat("the name of a ", kind), [&names] { return names; }));
    PALPATE_RETURN_IF_ERROR(NoArguments(*part));
    std::vector<uint32_t> fitting = Matching(names, part->name);
    if (fitting.empty()) return Unknown(*part, kind, names);
    return fitting;
  }

  template <typename Entry>
  absl::StatusOr<std::vector<Measured>> ReadIndexed(const std::vector<PathPart>& parts, const std::vector<std::string>& names,
                                                    std::span<const Entry> table) {
    PALPATE_ASSIGN_OR_RETURN(const std::vector<uint32_t> subjects, FindSubjects(parts, names));
    PALPATE_ASSIGN_OR_RETURN(const Entry* quantity, Find(parts, table, "measure"));
    PALPATE_RETURN_IF_ERROR(NoArguments(parts[2]));
    std::vector<Measured> measured;
    for (const uint32_t subject : subjects) {
      measured.push_back({absl::StrCat(parts[0].name, ".", QuotedName(names[subject]), ".", View(quantity->name)), quantity->unit,
                          quantity->shape, quantity->is_wall_clock,
                          [quantity, subject](FrameMeasures& m, double* out) { quantity->measure(m, subject, out); }});
    }
    return measured;
  }

  absl::StatusOr<std::vector<Measured>> ReadMarkers(const std::vector<PathPart>& parts) {
    if (parts.size() > 1) {
      const std::vector<uint32_t> by_name = Matching(names_.markers, parts[1].name);
      if (by_name.size() == 1) return ReadIndexed(parts, names_.markers, MarkerQuantities());
      if (by_name.size() > 1 && !IsPattern(parts[1].name)) {
        std::vector<std::string> full;
        for (const uint32_t i : by_name) full.push_back(names_.marker_paths[i]);
        return absl::InvalidArgumentError(absl::StrCat("at byte ", parts[1].position, ": several bodies have a marker \"", parts[1].name,
                                                       "\"; say which: ", ListOf(full)));
      }
    }
    return ReadIndexed(parts, names_.marker_paths, MarkerQuantities());
  }

  absl::StatusOr<std::vector<Measured>> ReadBodies(const std::vector<PathPart>& parts, bool with_pieces) {
    PALPATE_ASSIGN_OR_RETURN(const std::vector<uint32_t> bodies, FindSubjects(parts, names_.bodies));
    if (!with_pieces && parts.size() > 2 && parts[2].name == "vertex") return ReadVertices(parts, bodies);
    PALPATE_ASSIGN_OR_RETURN(const BodyQuantity* quantity, Find(parts, BodyQuantities(), "measure"));
    PALPATE_RETURN_IF_ERROR(NoArguments(parts[2]));
    std::vector<Measured> measured;
    for (const uint32_t body : bodies) {
      measured.push_back({absl::StrCat(parts[0].name, ".", QuotedName(names_.bodies[body]), ".", View(quantity->name)), quantity->unit,
                          quantity->shape, quantity->is_wall_clock, [quantity, body, with_pieces](FrameMeasures& m, double* out) {
                            if (with_pieces) {
                              quantity->measure(m, m.PiecesOf(body), out);
                            } else {
                              quantity->measure(m, std::span(&body, 1), out);
                            }
                          }});
    }
    return measured;
  }

  /// `body.NAME.vertex(SLOT).position`.
  absl::StatusOr<std::vector<Measured>> ReadVertices(const std::vector<PathPart>& parts, const std::vector<uint32_t>& bodies) {
    const PathPart& part = parts[2];
    uint32_t vertex = 0;
    const std::string text = part.arguments.size() == 1 ? part.arguments[0] : "";
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), vertex);
    if (error != std::errc() || end != text.data() + text.size()) {
      return absl::InvalidArgumentError(absl::StrCat("at byte ", part.position, ": vertex takes one argument, the index of a vertex"));
    }
    used_ = 3;
    PALPATE_ASSIGN_OR_RETURN(const PathPart* what, Next(parts, "position", [] { return std::vector<std::string>{"position"}; }));
    if (what->name != "position") return Unknown(*what, "measure", {"position"});
    std::vector<Measured> measured;
    for (const uint32_t body : bodies) {
      measured.push_back({absl::StrCat("body.", QuotedName(names_.bodies[body]), ".vertex(", vertex, ").position"), "m",
                          QuantityShape::kVector, false,
                          [body, vertex](FrameMeasures& m, double* out) { m.MeasureSurfaceVertex(body, vertex, out); }});
    }
    return measured;
  }

  /// Filters are arguments of the quantity: `contacts.force(BODY, TOOL)`.
  absl::StatusOr<std::vector<Measured>> ReadContacts(const std::vector<PathPart>& parts, std::span<const ContactQuantity> table,
                                                     const std::vector<std::string>& others) {
    PALPATE_RETURN_IF_ERROR(NoArguments(parts[0]));
    used_ = 1;
    PALPATE_ASSIGN_OR_RETURN(const ContactQuantity* quantity, Find(parts, table, "measure"));
    const PathPart& part = parts[1];
    if (part.arguments.size() > 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("at byte ", part.position, ": at most two arguments are taken, not ", part.arguments.size()));
    }
    ContactFilter filter;
    std::string name = absl::StrCat(parts[0].name, ".", View(quantity->name));
    for (size_t a = 0; a < part.arguments.size(); ++a) {
      const std::vector<std::string>& names = a == 0 ? names_.bodies : others;
      const std::vector<uint32_t> fitting = Matching(names, part.arguments[a]);
      if (fitting.empty()) return Unknown({part.arguments[a], part.position}, "such body or tool", names);
      std::vector<bool>& wanted = a == 0 ? filter.bodies : filter.others;
      wanted.resize(names.size());
      for (const uint32_t i : fitting) wanted[i] = true;
      const std::string& written = part.arguments[a];
      absl::StrAppend(&name, a == 0 ? "(" : ", ", IsPattern(written) ? written : QuotedName(written));
    }
    if (!part.arguments.empty()) name += ')';
    Measured measured{std::move(name), quantity->unit, quantity->shape, quantity->is_wall_clock,
                      [quantity, filter](FrameMeasures& m, double* out) { quantity->measure(m, filter, out); }};
    return std::vector<Measured>{std::move(measured)};
  }

  absl::StatusOr<std::vector<Measured>> ReadScene(const std::vector<PathPart>& parts) {
    for (const size_t count : {size_t{2}, size_t{1}}) {
      if (parts.size() < count) continue;
      const std::string name = count == 2 ? absl::StrCat(parts[0].name, ".", parts[1].name) : parts[0].name;
      for (const SceneQuantity& quantity : SceneQuantities()) {
        if (quantity.name != name) continue;
        PALPATE_RETURN_IF_ERROR(NoArguments(parts[count - 1]));
        used_ = count;
        return std::vector<Measured>{{name, quantity.unit, quantity.shape, quantity.is_wall_clock,
                                      [&quantity](FrameMeasures& m, double* out) { quantity.measure(m, out); }}};
      }
    }
    std::vector<std::string> there = {"tool.", "body.", "tissue.", "marker.", "contacts.", "surface_contacts."};
    for (std::string& name : NamesOf(SceneQuantities())) there.push_back(std::move(name));
    return Unknown(parts[0], "probe", there);
  }

  const SceneNames& names_;
  size_t used_ = 0;
};

/// The components that the rest of a path asks for; without one all.
absl::StatusOr<std::vector<size_t>> PickComponents(const std::vector<PathPart>& parts, size_t used, QuantityShape shape) {
  const auto components = ComponentsOf(shape);
  std::vector<size_t> picks;
  if (used == parts.size()) {
    for (size_t i = 0; i < std::max<size_t>(1, components.size()); ++i) picks.push_back(i);
    return picks;
  }
  const PathPart& part = parts[used];
  std::vector<std::string> there(components.begin(), components.end());
  if (shape == QuantityShape::kVector) there.emplace_back("norm");
  if (used + 1 == parts.size() && !part.has_arguments) {
    for (size_t i = 0; i < components.size(); ++i) {
      if (components[i] == part.name) picks.push_back(i);
    }
    if (shape == QuantityShape::kVector && part.name == "norm") picks.push_back(kNorm);
    if (!picks.empty()) return picks;
  }
  if (there.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("at byte ", part.position, ": \"", part.name, "\" follows what is one number and has no components"));
  }
  return absl::InvalidArgumentError(absl::StrCat("at byte ", part.position, ": there is no component \"", part.name,
                                                 "\"; there are: ", ListOf(there), ", and nothing may follow"));
}

std::string ColumnName(const Measured& measured, size_t pick) {
  if (pick == kNorm) return measured.name + ".norm";
  const auto components = ComponentsOf(measured.shape);
  return components.empty() ? measured.name : absl::StrCat(measured.name, ".", View(components[pick]));
}

}  // namespace

absl::StatusOr<ProbeSet> ProbeSet::Parse(std::span<const std::string> paths, const SceneDescription& scene) {
  if (paths.size() > kMaxProbes) {
    return absl::ResourceExhaustedError(absl::StrCat("probes: ", paths.size(), " entries are more than ", kMaxProbes));
  }
  const SceneNames names(scene);
  PathReader reader(names);
  ProbeSet set;
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::string where = absl::StrCat("probes[", i, "]");
    if (paths[i].size() > kMaxProbePathBytes) {
      return absl::ResourceExhaustedError(absl::StrCat(where, ": ", paths[i].size(), " bytes are more than ", kMaxProbePathBytes));
    }
    const std::string shown = absl::StrCat(where, ": \"", paths[i], "\"");
    const auto parts = ParsePath(paths[i]);
    if (!parts.ok()) return Annotate(parts.status(), shown);
    auto measured = reader.Read(*parts);
    if (!measured.ok()) return Annotate(measured.status(), shown);
    for (Measured& one : *measured) {
      auto picks = PickComponents(*parts, reader.used(), one.shape);
      if (!picks.ok()) return Annotate(picks.status(), shown);
      for (const size_t pick : *picks) set.columns_.push_back({ColumnName(one, pick), std::string(one.unit), one.is_wall_clock});
      set.probes_.push_back(std::make_shared<const Probe>(Probe{std::move(one.measure), *std::move(picks)}));
    }
    if (set.columns_.size() > kMaxProbeColumns) {
      return absl::ResourceExhaustedError(absl::StrCat(shown, ": the set has more than ", kMaxProbeColumns, " columns"));
    }
  }
  return set;
}

void ProbeSet::Evaluate(const Frame& frame, std::span<double> out, const World* world) {
  FrameMeasures measures(frame, world, kept_);
  size_t at = 0;
  for (const auto& probe : probes_) {
    std::array<double, kMaxComponents> values{};
    probe->measure(measures, values.data());
    for (const size_t pick : probe->picks) out[at++] = pick == kNorm ? std::hypot(values[0], values[1], values[2]) : values[pick];
  }
}

std::vector<ProbeColumn> ListProbes(const SceneDescription& scene) {
  const SceneNames names(scene);
  std::vector<ProbeColumn> probes;
  const auto add = [&probes](const std::string& prefix, const auto& table, bool has_arguments) {
    for (const auto& quantity : table) {
      std::string name = absl::StrCat(prefix, View(quantity.name), has_arguments ? "(BODY, OTHER)" : "");
      const auto components = ComponentsOf(quantity.shape);
      if (!components.empty()) {
        absl::StrAppend(&name, "[.", absl::StrJoin(std::vector<std::string>(components.begin(), components.end()), "|."));
        absl::StrAppend(&name, quantity.shape == QuantityShape::kVector ? "|.norm]" : "]");
      }
      probes.push_back({std::move(name), std::string(quantity.unit), quantity.is_wall_clock});
    }
  };
  add("", SceneQuantities(), false);
  for (const std::string& tool : names.tools) add(absl::StrCat("tool.", QuotedName(tool), "."), ToolQuantities(), false);
  for (const std::string& marker : names.marker_paths) add(absl::StrCat("marker.", QuotedName(marker), "."), MarkerQuantities(), false);
  for (const std::string& body : names.bodies) {
    add(absl::StrCat("body.", QuotedName(body), "."), BodyQuantities(), false);
    probes.push_back({absl::StrCat("body.", QuotedName(body), ".vertex(INDEX).position[.x|.y|.z|.norm]"), "m", false});
  }
  for (const std::string& body : names.bodies) add(absl::StrCat("tissue.", QuotedName(body), "."), BodyQuantities(), false);
  add("contacts.", ContactQuantities(), true);
  add("surface_contacts.", SurfaceContactQuantities(), true);
  return probes;
}

}  // namespace palpate::sim
