// Gmsh MSH 1, 2.x and 4.1. Source of the format: the chapter on file formats of the Gmsh manual.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/mesh/io_cursor.h"
#include "sim/mesh/mesh_io.h"

namespace palpate::sim {
namespace {

struct ElementType {
  int dimension = -1;  // -1: not known
  int vertex_count = 0;
  const char* name = "";
};

constexpr uint64_t kTetType = 4;
constexpr int64_t kMaxGroup = std::numeric_limits<int32_t>::max();

// By Gmsh's number of the type.
constexpr std::array<ElementType, 32> kElementTypes = {{
    {},
    {1, 2, "line"},
    {2, 3, "triangle"},
    {2, 4, "quadrangle"},
    {3, 4, "tetrahedron"},
    {3, 8, "hexahedron"},
    {3, 6, "prism"},
    {3, 5, "pyramid"},
    {1, 3, "second-order line"},
    {2, 6, "second-order triangle"},
    {2, 9, "second-order quadrangle"},
    {3, 10, "second-order tetrahedron"},
    {3, 27, "second-order hexahedron"},
    {3, 18, "second-order prism"},
    {3, 14, "second-order pyramid"},
    {0, 1, "point"},
    {2, 8, "second-order quadrangle"},
    {3, 20, "second-order hexahedron"},
    {3, 15, "second-order prism"},
    {3, 13, "second-order pyramid"},
    {2, 9, "incomplete third-order triangle"},
    {2, 10, "third-order triangle"},
    {2, 12, "incomplete fourth-order triangle"},
    {2, 15, "fourth-order triangle"},
    {2, 15, "incomplete fifth-order triangle"},
    {2, 21, "fifth-order triangle"},
    {1, 4, "third-order line"},
    {1, 5, "fourth-order line"},
    {1, 6, "fifth-order line"},
    {3, 20, "third-order tetrahedron"},
    {3, 35, "fourth-order tetrahedron"},
    {3, 56, "fifth-order tetrahedron"},
}};

class MshParser {
 public:
  MshParser(std::string_view bytes, std::string_view name) : in_(bytes, name) {}

  absl::StatusOr<TetMesh> Parse(const ReadOptions& options) {
    while (true) {
      in_.SkipSpace();
      if (in_.AtEnd()) break;
      const size_t begin = in_.offset();
      std::string_view section = in_.Word();
      if (section.front() != '$')
        return ErrorAt(in_.source(), begin, absl::StrFormat("a section ($...) expected, found %s", Quoted(section)));
      section.remove_prefix(1);
      in_.Line();
      if (section == "MeshFormat") {
        PALPATE_RETURN_IF_ERROR(ReadFormat());
      } else if (section == "NOD" || section == "ELM") {
        PALPATE_RETURN_IF_ERROR(ReadSection1(section, begin));
      } else if (section == "Nodes" || section == "Elements") {
        if (major_ == 0) return ErrorAt(in_.source(), begin, absl::StrFormat("$%s before $MeshFormat", ToAbsl(section)));
        if (major_ == 1) return OtherVersion(section, begin);
        bool& was_seen = section == "Nodes" ? has_nodes_ : has_elements_;
        if (was_seen) return ErrorAt(in_.source(), begin, absl::StrFormat("a second $%s", ToAbsl(section)));
        was_seen = true;
        if (section == "Nodes") {
          PALPATE_RETURN_IF_ERROR(major_ == 2 ? ReadNodes2() : ReadNodes4());
        } else {
          PALPATE_RETURN_IF_ERROR(major_ == 2 ? ReadElements2() : ReadElements4());
        }
      } else if (section == "PhysicalNames") {
        PALPATE_RETURN_IF_ERROR(ReadPhysicalNames());
      } else if (section == "Entities" && major_ == 4) {
        PALPATE_RETURN_IF_ERROR(ReadEntities());
      } else {
        PALPATE_RETURN_IF_ERROR(SkipSection(section, begin));
        continue;
      }
      PALPATE_RETURN_IF_ERROR(ExpectEnd(section));
    }
    if (major_ == 0) return in_.Error("not an MSH file: no $MeshFormat");
    if (!has_nodes_) return in_.Error(major_ == 1 ? "no $NOD section" : "no $Nodes section");
    if (!has_elements_) return in_.Error(major_ == 1 ? "no $ELM section" : "no $Elements section");
    PALPATE_RETURN_IF_ERROR(ResolveTags());
    CollectGroups();
    raw_.vertex_source = in_.source();
    raw_.tet_source = in_.source();
    return FinishTetMesh(std::move(raw_), options);
  }

 private:
  absl::Status ReadFormat() {
    if (major_ == 1) return in_.Error("$MeshFormat does not belong in a file of MSH 1");
    if (major_ != 0) return in_.Error("a second $MeshFormat");
    const size_t begin = in_.offset();
    PALPATE_ASSIGN_OR_RETURN(const double version, in_.Real("the version of the format"));
    PALPATE_ASSIGN_OR_RETURN(const uint64_t file_type, in_.Unsigned("the file type"));
    PALPATE_ASSIGN_OR_RETURN(const uint64_t data_size, in_.Unsigned("the data size"));
    if (version >= 2.0 && version < 2.3) {
      major_ = 2;
    } else if (version == 4.1) {
      major_ = 4;
    } else {
      return ErrorAt(in_.source(), begin, absl::StrFormat("MSH version %g is not supported; 1, 2.0 to 2.2 and 4.1 are", version));
    }
    if (file_type > 1) return ErrorAt(in_.source(), begin, absl::StrFormat("file type %d is neither 0 (ASCII) nor 1 (binary)", file_type));
    if (data_size != 8 && !(major_ == 4 && data_size == 4)) {
      return ErrorAt(in_.source(), begin, absl::StrFormat("data size %d is not supported, must be 8", data_size));
    }
    has_wide_sizes_ = data_size == 8;
    if (file_type == 0) return absl::OkStatus();
    in_.Line();
    in_.SetBinary(false);
    PALPATE_ASSIGN_OR_RETURN(const uint32_t one, in_.Raw<uint32_t>("the byte-order mark"));
    if (one == 1) return absl::OkStatus();
    if (one != 0x01000000U) return ErrorAt(in_.source(), in_.offset() - 4, absl::StrFormat("byte-order mark is 0x%08x, must be 1", one));
    in_.SetBinary(true);
    return absl::OkStatus();
  }

  absl::Status ExpectEnd(std::string_view section) {
    in_.SkipSpace();
    const size_t begin = in_.offset();
    const std::string_view word = in_.Word();
    const std::string end = absl::StrCat(major_ == 1 ? "$END" : "$End", ToAbsl(section));
    if (word == end) return absl::OkStatus();
    if (word.empty()) return in_.Truncated(end);
    return ErrorAt(in_.source(), begin, absl::StrFormat("%s expected, found %s", end, Quoted(word)));
  }

  absl::Status OtherVersion(std::string_view section, size_t begin) const {
    return ErrorAt(in_.source(), begin, absl::StrFormat("$%s does not belong in a file of MSH %d", ToAbsl(section), major_));
  }

  // MSH 1 has no $MeshFormat: it is known by the names of its two sections, which are texts.
  absl::Status ReadSection1(std::string_view section, size_t begin) {
    if (major_ > 1) return OtherVersion(section, begin);
    major_ = 1;
    bool& was_seen = section == "NOD" ? has_nodes_ : has_elements_;
    if (was_seen) return ErrorAt(in_.source(), begin, absl::StrFormat("a second $%s", ToAbsl(section)));
    was_seen = true;
    return section == "NOD" ? ReadNodes2() : ReadElements1();
  }

  absl::Status SkipSection(std::string_view section, size_t begin) {
    const std::string end = absl::StrFormat("$End%s", ToAbsl(section));
    for (size_t from = in_.offset();;) {
      const size_t found = in_.source().bytes.find(end, from);
      if (found == std::string_view::npos) {
        return ErrorAt(in_.source(), begin, absl::StrFormat("section %s is not closed", Quoted(section)));
      }
      from = found + end.size();
      const bool starts_line = found == 0 || in_.source().bytes[found - 1] == '\n' || in_.is_binary();
      const bool ends_word = from == in_.source().bytes.size() || in_.source().bytes[from] == '\n' || in_.source().bytes[from] == '\r' ||
                             in_.source().bytes[from] == ' ';
      if (!starts_line || !ends_word) continue;
      in_.Advance(from - in_.offset());
      return absl::OkStatus();
    }
  }

  // Values that have the same order in both encodings.
  absl::StatusOr<uint64_t> Size(std::string_view what) {
    if (!in_.is_binary()) return in_.Unsigned(what);
    if (has_wide_sizes_) return in_.Raw<uint64_t>(what);
    return Raw32(what);
  }
  absl::StatusOr<uint64_t> Int(std::string_view what) {
    if (!in_.is_binary()) return in_.Unsigned(what);
    return Raw32(what);
  }
  absl::StatusOr<uint64_t> Raw32(std::string_view what) {
    PALPATE_ASSIGN_OR_RETURN(const int32_t value, in_.Raw<int32_t>(what));
    if (value < 0) return ErrorAt(in_.source(), in_.offset() - 4, absl::StrFormat("%s: %d is negative", ToAbsl(what), value));
    return static_cast<uint64_t>(value);
  }
  absl::StatusOr<int64_t> AnyInt(std::string_view what) {
    if (!in_.is_binary()) return in_.Signed(what);
    PALPATE_ASSIGN_OR_RETURN(const int32_t value, in_.Raw<int32_t>(what));
    return value;
  }
  // Entity tags of discrete parts may be negative.
  absl::Status SkipInt(std::string_view what) {
    if (in_.is_binary()) return in_.Raw<int32_t>(what).status();
    return in_.Signed(what).status();
  }
  absl::StatusOr<double> Real(std::string_view what) {
    if (!in_.is_binary()) return in_.Real(what);
    PALPATE_ASSIGN_OR_RETURN(const double value, in_.Raw<double>(what));
    if (!(std::abs(value) <= std::numeric_limits<double>::max())) {
      return ErrorAt(in_.source(), in_.offset() - 8, absl::StrFormat("%s: %g is not a finite number", ToAbsl(what), value));
    }
    return value;
  }
  absl::StatusOr<Eigen::Vector3d> Point() {
    Eigen::Vector3d point;
    for (int k = 0; k < 3; ++k) {
      PALPATE_ASSIGN_OR_RETURN(point[k], Real("a node's coordinate"));
    }
    return point;
  }
  // Where the next value starts.
  size_t Here() {
    if (!in_.is_binary()) in_.SkipSpace();
    return in_.offset();
  }
  // Bytes that `count` numbers take at least: a digit and a separator each in a text.
  uint64_t MinBytes(uint64_t text_count, uint64_t binary_bytes) const { return in_.is_binary() ? binary_bytes : 2 * text_count; }
  uint64_t SizeBytes() const { return has_wide_sizes_ ? 8 : 4; }

  absl::Status ReserveVertices(uint64_t count, uint64_t bytes_each) {
    PALPATE_RETURN_IF_ERROR(in_.CheckCount(count, bytes_each, "nodes"));
    raw_.mesh.vertices.reserve(count);
    raw_.vertex_offsets.reserve(count);
    vertex_tags_.reserve(count);
    return absl::OkStatus();
  }

  absl::Status ReadNodes2() {
    PALPATE_ASSIGN_OR_RETURN(const uint64_t count, in_.Unsigned("the number of nodes"));
    if (in_.is_binary()) in_.Line();
    PALPATE_RETURN_IF_ERROR(ReserveVertices(count, MinBytes(4, 4 + 24)));
    for (uint64_t i = 0; i < count; ++i) {
      raw_.vertex_offsets.push_back(Here());
      PALPATE_ASSIGN_OR_RETURN(const uint64_t tag, Int("a node's number"));
      PALPATE_ASSIGN_OR_RETURN(const Eigen::Vector3d point, Point());
      vertex_tags_.push_back(tag);
      raw_.mesh.vertices.push_back(point);
    }
    return absl::OkStatus();
  }

  absl::Status ReadNodes4() {
    PALPATE_ASSIGN_OR_RETURN(const uint64_t block_count, Size("the number of node blocks"));
    PALPATE_ASSIGN_OR_RETURN(const uint64_t count, Size("the number of nodes"));
    PALPATE_RETURN_IF_ERROR(Size("the smallest node tag").status());
    PALPATE_RETURN_IF_ERROR(Size("the largest node tag").status());
    PALPATE_RETURN_IF_ERROR(ReserveVertices(count, MinBytes(4, SizeBytes() + 24)));
    for (uint64_t block = 0; block < block_count; ++block) {
      const size_t begin = Here();
      PALPATE_ASSIGN_OR_RETURN(const uint64_t dimension, Int("a node block's dimension"));
      PALPATE_RETURN_IF_ERROR(SkipInt("a node block's entity tag"));
      PALPATE_ASSIGN_OR_RETURN(const uint64_t is_parametric, Int("a node block's parametric flag"));
      PALPATE_ASSIGN_OR_RETURN(const uint64_t block_size, Size("a node block's size"));
      if (dimension > 3 || is_parametric > 1) {
        return ErrorAt(
            in_.source(), begin,
            absl::StrFormat("node block %d: dimension %d must be 0..3, parametric flag %d 0 or 1", block, dimension, is_parametric));
      }
      if (block_size > count - vertex_tags_.size()) {
        return ErrorAt(in_.source(), begin,
                       absl::StrFormat("node block %d: its %d nodes exceed the %d announced in all", block, block_size, count));
      }
      for (uint64_t i = 0; i < block_size; ++i) {
        PALPATE_ASSIGN_OR_RETURN(const uint64_t tag, Size("a node's tag"));
        vertex_tags_.push_back(tag);
      }
      for (uint64_t i = 0; i < block_size; ++i) {
        raw_.vertex_offsets.push_back(Here());
        PALPATE_ASSIGN_OR_RETURN(const Eigen::Vector3d point, Point());
        raw_.mesh.vertices.push_back(point);
        for (uint64_t k = 0; k < is_parametric * dimension; ++k) PALPATE_RETURN_IF_ERROR(Real("a node's parameter").status());
      }
    }
    if (vertex_tags_.size() != count)
      return in_.Error(absl::StrFormat("%d nodes announced, the blocks have %d", count, vertex_tags_.size()));
    return absl::OkStatus();
  }

  // The type of an element or block if it can be read: tets are kept, what has no volume is skipped.
  absl::StatusOr<ElementType> CheckType(uint64_t type, size_t begin, uint64_t element) const {
    if (type >= kElementTypes.size() || kElementTypes[type].dimension < 0) {
      return ErrorAt(in_.source(), begin, absl::StrFormat("element %d: type %d is not known", element, type));
    }
    if (kElementTypes[type].dimension == 3 && type != kTetType) {
      return ErrorAt(in_.source(), begin,
                     absl::StrFormat("element %d: a %s (type %d) is not supported, volumes must be linear tetrahedra (type 4)", element,
                                     kElementTypes[type].name, type));
    }
    return kElementTypes[type];
  }

  // Reads the vertex tags of one element and keeps them if it is a tet.
  absl::Status ReadElement(uint64_t type, int vertex_count, size_t begin, uint32_t group, bool is_wide) {
    std::array<uint64_t, 4> tags = {};
    for (int k = 0; k < vertex_count; ++k) {
      PALPATE_ASSIGN_OR_RETURN(const uint64_t tag, is_wide ? Size("an element's node") : Int("an element's node"));
      if (type == kTetType) tags[static_cast<size_t>(k)] = tag;
    }
    if (type == kTetType) {
      tet_tags_.push_back(tags);
      tet_groups_.push_back(group);
      raw_.tet_offsets.push_back(begin);
    }
    return absl::OkStatus();
  }

  absl::Status ReadElements1() {
    PALPATE_ASSIGN_OR_RETURN(const uint64_t count, in_.Unsigned("the number of elements"));
    PALPATE_RETURN_IF_ERROR(in_.CheckCount(count, MinBytes(6, 0), "elements"));
    for (uint64_t i = 0; i < count; ++i) {
      const size_t begin = Here();
      PALPATE_ASSIGN_OR_RETURN(const uint64_t number, in_.Unsigned("an element's number"));
      PALPATE_ASSIGN_OR_RETURN(const uint64_t type, in_.Unsigned("an element's type"));
      PALPATE_ASSIGN_OR_RETURN(const ElementType info, CheckType(type, begin, number));
      PALPATE_ASSIGN_OR_RETURN(const int64_t group, AnyInt("an element's physical region"));
      PALPATE_RETURN_IF_ERROR(SkipInt("an element's geometrical region"));
      PALPATE_ASSIGN_OR_RETURN(const uint64_t vertex_count, in_.Unsigned("an element's number of nodes"));
      if (vertex_count != static_cast<uint64_t>(info.vertex_count)) {
        return ErrorAt(
            in_.source(), begin,
            absl::StrFormat("element %d: %d nodes, but a %s (type %d) has %d", number, vertex_count, info.name, type, info.vertex_count));
      }
      PALPATE_RETURN_IF_ERROR(ReadElement(type, info.vertex_count, begin, GroupOf(group), /*is_wide=*/false));
    }
    return absl::OkStatus();
  }

  absl::Status ReadElements2() {
    PALPATE_ASSIGN_OR_RETURN(const uint64_t count, in_.Unsigned("the number of elements"));
    if (in_.is_binary()) in_.Line();
    PALPATE_RETURN_IF_ERROR(in_.CheckCount(count, MinBytes(4, 4 + 4), "elements"));
    for (uint64_t read = 0; read < count;) {
      const size_t begin = Here();
      // In a binary file a header stands before each run of equal elements, in a text each element has its own.
      uint64_t number = 0;
      uint64_t type = 0;
      uint64_t run = 1;
      if (in_.is_binary()) {
        PALPATE_ASSIGN_OR_RETURN(type, Raw32("an element's type"));
        PALPATE_ASSIGN_OR_RETURN(run, Raw32("the length of a run of elements"));
      } else {
        PALPATE_ASSIGN_OR_RETURN(number, in_.Unsigned("an element's number"));
        PALPATE_ASSIGN_OR_RETURN(type, in_.Unsigned("an element's type"));
      }
      PALPATE_ASSIGN_OR_RETURN(const uint64_t tag_count, Int("an element's number of tags"));
      PALPATE_ASSIGN_OR_RETURN(const ElementType info, CheckType(type, begin, in_.is_binary() ? read : number));
      if (run == 0 || run > count - read) {
        return ErrorAt(in_.source(), begin,
                       absl::StrFormat("a run of %d elements, must be 1..%d: %d are announced in all", run, count - read, count));
      }
      for (uint64_t i = 0; i < run; ++i) {
        const size_t element_begin = in_.is_binary() ? in_.offset() : begin;
        if (in_.is_binary()) PALPATE_RETURN_IF_ERROR(Raw32("an element's number").status());
        uint32_t group = 0;
        for (uint64_t k = 0; k < tag_count; ++k) {
          PALPATE_ASSIGN_OR_RETURN(const int64_t tag, AnyInt("an element's tag"));
          if (k == 0) group = GroupOf(tag);
        }
        PALPATE_RETURN_IF_ERROR(ReadElement(type, info.vertex_count, element_begin, group, /*is_wide=*/false));
      }
      read += run;
    }
    return absl::OkStatus();
  }

  absl::Status ReadElements4() {
    PALPATE_ASSIGN_OR_RETURN(const uint64_t block_count, Size("the number of element blocks"));
    PALPATE_ASSIGN_OR_RETURN(const uint64_t count, Size("the number of elements"));
    PALPATE_RETURN_IF_ERROR(Size("the smallest element tag").status());
    PALPATE_RETURN_IF_ERROR(Size("the largest element tag").status());
    uint64_t read = 0;
    for (uint64_t block = 0; block < block_count; ++block) {
      const size_t begin = Here();
      PALPATE_RETURN_IF_ERROR(SkipInt("an element block's dimension"));
      PALPATE_ASSIGN_OR_RETURN(const int64_t entity, AnyInt("an element block's entity tag"));
      const auto group = entity_groups_.find(entity);
      PALPATE_ASSIGN_OR_RETURN(const uint64_t type, Int("an element block's type"));
      PALPATE_ASSIGN_OR_RETURN(const uint64_t block_size, Size("an element block's size"));
      PALPATE_ASSIGN_OR_RETURN(const ElementType info, CheckType(type, begin, read));
      if (block_size > count - read) {
        return ErrorAt(in_.source(), begin,
                       absl::StrFormat("element block %d: its %d elements exceed the %d announced in all", block, block_size, count));
      }
      const auto values = static_cast<uint64_t>(info.vertex_count) + 1;
      PALPATE_RETURN_IF_ERROR(in_.CheckCount(block_size, MinBytes(values, values * SizeBytes()), "elements"));
      for (uint64_t i = 0; i < block_size; ++i) {
        const size_t element_begin = Here();
        PALPATE_RETURN_IF_ERROR(Size("an element's tag").status());
        PALPATE_RETURN_IF_ERROR(
            ReadElement(type, info.vertex_count, element_begin, group == entity_groups_.end() ? 0 : group->second, /*is_wide=*/true));
      }
      read += block_size;
    }
    if (read != count) return in_.Error(absl::StrFormat("%d elements announced, the blocks have %d", count, read));
    return absl::OkStatus();
  }

  // Lines "dimension number "name"", always text.
  absl::Status ReadPhysicalNames() {
    PALPATE_ASSIGN_OR_RETURN(const uint64_t count, in_.Unsigned("the number of physical names"));
    PALPATE_RETURN_IF_ERROR(in_.CheckCount(count, 6, "physical names"));
    in_.Line();
    for (uint64_t i = 0; i < count; ++i) {
      PALPATE_ASSIGN_OR_RETURN(const uint64_t dimension, in_.Unsigned("a physical name's dimension"));
      PALPATE_ASSIGN_OR_RETURN(const uint64_t number, in_.Unsigned("a physical name's number"));
      const size_t begin = in_.offset();
      const std::string_view rest = in_.Line();
      const size_t first = rest.find('"');
      const size_t last = rest.rfind('"');
      if (first == std::string_view::npos || first == last) return ErrorAt(in_.source(), begin, "a physical name in quotes expected");
      if (dimension == 3 && number < kMaxGroup) {
        raw_.mesh.groups.push_back({static_cast<uint32_t>(number), std::string(rest.substr(first + 1, last - first - 1))});
      }
    }
    return absl::OkStatus();
  }

  // Of MSH 4.1: which physical groups the volumes belong to.
  absl::Status ReadEntities() {
    std::array<uint64_t, 4> counts{};
    for (uint64_t& count : counts) {
      PALPATE_ASSIGN_OR_RETURN(count, Size("a number of entities"));
      PALPATE_RETURN_IF_ERROR(in_.CheckCount(count, MinBytes(5, 36), "entities"));
    }
    for (int dimension = 0; dimension < 4; ++dimension) {
      for (uint64_t e = 0; e < counts[static_cast<size_t>(dimension)]; ++e) {
        PALPATE_ASSIGN_OR_RETURN(const int64_t tag, AnyInt("an entity's tag"));
        for (int k = 0; k < (dimension == 0 ? 3 : 6); ++k) PALPATE_RETURN_IF_ERROR(Real("an entity's bounds").status());
        for (int list = 0; list < (dimension == 0 ? 1 : 2); ++list) {
          PALPATE_ASSIGN_OR_RETURN(const uint64_t count, Size("an entity's number of groups or borders"));
          PALPATE_RETURN_IF_ERROR(in_.CheckCount(count, MinBytes(1, 4), "groups or borders of an entity"));
          for (uint64_t k = 0; k < count; ++k) {
            PALPATE_ASSIGN_OR_RETURN(const int64_t value, AnyInt("an entity's group or border"));
            if (dimension == 3 && list == 0 && k == 0) entity_groups_[tag] = GroupOf(value);
          }
        }
      }
    }
    return absl::OkStatus();
  }

  static uint32_t GroupOf(int64_t number) { return number > 0 && number < kMaxGroup ? static_cast<uint32_t>(number) : 0; }

  // Groups count where there are several, or names.
  void CollectGroups() {
    TetMesh& mesh = raw_.mesh;
    std::stable_sort(mesh.groups.begin(), mesh.groups.end(), [](const MeshGroup& a, const MeshGroup& b) { return a.number < b.number; });
    const auto equal = [](const MeshGroup& a, const MeshGroup& b) { return a.number == b.number; };
    mesh.groups.erase(std::unique(mesh.groups.begin(), mesh.groups.end(), equal), mesh.groups.end());
    const bool are_equal = std::all_of(tet_groups_.begin(), tet_groups_.end(), [this](uint32_t g) { return g == tet_groups_[0]; });
    if (mesh.groups.empty() && are_equal) return;
    mesh.tet_groups = std::move(tet_groups_);
  }

  // From node tags, which need not be dense or in order, to indices.
  absl::Status ResolveTags() {
    constexpr size_t kMaxCount = std::numeric_limits<uint32_t>::max();
    if (vertex_tags_.size() > kMaxCount) return in_.Error(absl::StrFormat("%d nodes are more than %d", vertex_tags_.size(), kMaxCount));
    std::vector<uint32_t> by_tag(vertex_tags_.size());
    for (size_t i = 0; i < by_tag.size(); ++i) by_tag[i] = static_cast<uint32_t>(i);
    std::sort(by_tag.begin(), by_tag.end(),
              [this](uint32_t a, uint32_t b) { return vertex_tags_[a] != vertex_tags_[b] ? vertex_tags_[a] < vertex_tags_[b] : a < b; });
    for (size_t i = 1; i < by_tag.size(); ++i) {
      if (vertex_tags_[by_tag[i]] == vertex_tags_[by_tag[i - 1]]) {
        return ErrorAt(in_.source(), raw_.vertex_offsets[by_tag[i]], absl::StrFormat("a second node with tag %d", vertex_tags_[by_tag[i]]));
      }
    }
    raw_.mesh.tets.resize(tet_tags_.size());
    for (size_t t = 0; t < tet_tags_.size(); ++t) {
      for (size_t k = 0; k < 4; ++k) {
        const uint64_t tag = tet_tags_[t][k];
        const auto found =
            std::lower_bound(by_tag.begin(), by_tag.end(), tag, [this](uint32_t v, uint64_t wanted) { return vertex_tags_[v] < wanted; });
        if (found == by_tag.end() || vertex_tags_[*found] != tag) {
          return ErrorAt(in_.source(), raw_.tet_offsets[t], absl::StrFormat("tet %d: there is no node with tag %d", t, tag));
        }
        raw_.mesh.tets[t][k] = *found;
      }
    }
    return absl::OkStatus();
  }

  Cursor in_;
  int major_ = 0;  // version, 0 until $MeshFormat or a section of MSH 1
  bool has_wide_sizes_ = true;
  bool has_nodes_ = false;
  bool has_elements_ = false;
  RawTetMesh raw_;
  std::vector<uint64_t> vertex_tags_;
  std::vector<std::array<uint64_t, 4>> tet_tags_;
  std::vector<uint32_t> tet_groups_;           // [tet_count]
  std::map<int64_t, uint32_t> entity_groups_;  // of volumes of MSH 4.1
};

}  // namespace

absl::StatusOr<TetMesh> ParseMsh(std::string_view bytes, std::string_view name, const ReadOptions& options) {
  return MshParser(bytes, name).Parse(options);
}

namespace {

// Consecutive tets of one group.
struct TetRun {
  size_t begin = 0;
  size_t end = 0;
  uint32_t group = 0;
};

uint32_t GroupOfTet(const TetMesh& mesh, size_t t) { return mesh.tet_groups.empty() ? 0 : mesh.tet_groups[t]; }

std::vector<TetRun> RunsOf(const TetMesh& mesh) {
  std::vector<TetRun> runs;
  for (size_t t = 0; t < mesh.tets.size(); ++t) {
    const uint32_t group = GroupOfTet(mesh, t);
    if (runs.empty() || runs.back().group != group) runs.push_back({t, t, group});
    runs.back().end = t + 1;
  }
  if (runs.empty()) runs.push_back({});
  return runs;
}

void AppendPhysicalNames(const TetMesh& mesh, std::string* out) {
  if (mesh.groups.empty()) return;
  absl::StrAppend(out, "$PhysicalNames\n", mesh.groups.size(), "\n");
  for (const MeshGroup& group : mesh.groups) {
    // a quote or a line end in a name would end it
    std::string name = group.name;
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == '"' || c == '\n' || c == '\r'; }, '_');
    absl::StrAppend(out, "3 ", group.number, " \"", name, "\"\n");
  }
  absl::StrAppend(out, "$EndPhysicalNames\n");
}

// One volume for each group, and one with tag 1 for tets without a group: the tag of that of group g is g + 1.
void AppendEntities(const TetMesh& mesh, std::string* out) {
  if (mesh.tet_groups.empty()) return;
  Eigen::Vector3d low = Eigen::Vector3d::Zero();
  Eigen::Vector3d high = Eigen::Vector3d::Zero();
  for (size_t v = 0; v < mesh.vertices.size(); ++v) {
    low = v == 0 ? mesh.vertices[v] : low.cwiseMin(mesh.vertices[v]);
    high = v == 0 ? mesh.vertices[v] : high.cwiseMax(mesh.vertices[v]);
  }
  std::vector<uint32_t> groups = mesh.tet_groups;
  groups.push_back(0);
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  absl::StrAppend(out, "$Entities\n0 0 0 ", groups.size(), "\n");
  for (const uint32_t group : groups) {
    absl::StrAppend(out, uint64_t{group} + 1, " ");
    AppendPoint(low, out);
    *out += ' ';
    AppendPoint(high, out);
    if (group == 0) {
      absl::StrAppend(out, " 0 0\n");
    } else {
      absl::StrAppend(out, " 1 ", group, " 0\n");
    }
  }
  absl::StrAppend(out, "$EndEntities\n");
}

void AppendTet(const std::array<uint32_t, 4>& v, std::string* out) {
  absl::StrAppend(out, size_t{1} + v[0], " ", size_t{1} + v[1], " ");
  absl::StrAppend(out, size_t{1} + v[2], " ", size_t{1} + v[3], "\n");
}

}  // namespace

std::string FormatMsh(const TetMesh& mesh, MshVersion version) {
  const size_t vertex_count = mesh.vertices.size();
  const size_t tet_count = mesh.tets.size();
  std::string out;
  out.reserve(64 * vertex_count + 40 * tet_count + 256);
  absl::StrAppend(&out, "$MeshFormat\n", version == MshVersion::k41 ? "4.1" : "2.2", " 0 8\n$EndMeshFormat\n");
  AppendPhysicalNames(mesh, &out);
  if (version == MshVersion::k41) {
    AppendEntities(mesh, &out);
    // The volume with tag 1 owns all nodes.
    absl::StrAppend(&out, "$Nodes\n1 ", vertex_count, " 1 ", vertex_count, "\n3 1 0 ", vertex_count, "\n");
    for (size_t v = 1; v <= vertex_count; ++v) absl::StrAppend(&out, v, "\n");
  } else {
    absl::StrAppend(&out, "$Nodes\n", vertex_count, "\n");
  }
  for (size_t v = 0; v < vertex_count; ++v) {
    if (version == MshVersion::k22) absl::StrAppend(&out, v + 1, " ");
    AppendPoint(mesh.vertices[v], &out);
    out += '\n';
  }
  absl::StrAppend(&out, "$EndNodes\n$Elements\n");
  if (version == MshVersion::k41) {
    const std::vector<TetRun> runs = RunsOf(mesh);
    absl::StrAppend(&out, runs.size(), " ", tet_count, " 1 ", tet_count, "\n");
    for (const TetRun& run : runs) {
      absl::StrAppend(&out, "3 ", uint64_t{run.group} + 1, " 4 ", run.end - run.begin, "\n");
      for (size_t t = run.begin; t < run.end; ++t) {
        absl::StrAppend(&out, t + 1, " ");
        AppendTet(mesh.tets[t], &out);
      }
    }
  } else {
    absl::StrAppend(&out, tet_count, "\n");
    for (size_t t = 0; t < tet_count; ++t) {
      const uint32_t group = mesh.tet_groups.empty() ? 1 : mesh.tet_groups[t];
      absl::StrAppend(&out, t + 1, " 4 2 ", group, " ", group);
      out += ' ';
      AppendTet(mesh.tets[t], &out);
    }
  }
  absl::StrAppend(&out, "$EndElements\n");
  return out;
}

}  // namespace palpate::sim
