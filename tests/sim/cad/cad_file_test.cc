#include "sim/cad/cad_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include <BRepAlgoAPI_Cut.hxx>
#include <BRepBuilderAPI_Transform.hxx>
#include <BRepPrimAPI_MakeBox.hxx>
#include <BRepPrimAPI_MakeCone.hxx>
#include <BRepPrimAPI_MakeCylinder.hxx>
#include <BRepPrimAPI_MakeSphere.hxx>
#include <BRepPrimAPI_MakeTorus.hxx>
#include <BRep_Builder.hxx>
#include <IGESControl_Writer.hxx>
#include <Interface_Static.hxx>
#include <Message.hxx>
#include <Message_Messenger.hxx>
#include <STEPControl_Controller.hxx>
#include <STEPControl_Writer.hxx>
#include <TopoDS_Compound.hxx>
#include <gp_Ax2.hxx>
#include <gp_Trsf.hxx>

#include "sim/mesh/surface_check.h"
#include "sim/nurbs/nurbs_mass_properties.h"
#include "sim/nurbs/nurbs_object_tessellation.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "tests/sim/nurbs/nurbs_test_objects.h"

namespace palpate::sim::cad_file_test {
namespace {

namespace fs = std::filesystem;
using Eigen::Vector3d;
using std::numbers::pi;
using ::testing::HasSubstr;

class CadFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("palpate-cad-test-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    Message::DefaultMessenger()->ChangePrinters().Clear();
  }
  void TearDown() override { fs::remove_all(folder_); }

  // In millimetres, written in `unit`.
  fs::path Write(const TopoDS_Shape& shape, const std::string& name, const char* unit = "MM", bool with_topology = true) {
    const fs::path path = folder_ / name;
    if (path.extension() == ".step") {
      STEPControl_Controller::Init();
      Interface_Static::SetCVal("xstep.cascade.unit", "MM");
      Interface_Static::SetCVal("write.step.unit", unit);
      STEPControl_Writer writer;
      EXPECT_EQ(writer.Transfer(shape, STEPControl_AsIs), IFSelect_RetDone);
      EXPECT_EQ(writer.Write(path.c_str()), IFSelect_RetDone);
    } else {
      IGESControl_Writer writer(unit, with_topology ? 1 : 0);
      EXPECT_TRUE(writer.AddShape(shape));
      writer.ComputeModel();
      EXPECT_TRUE(writer.Write(path.c_str()));
    }
    return path;
  }

  fs::path folder_;
};

struct Expected {
  double volume_m3, area_m2;
  Vector3d center_m;
};

void ExpectIs(const absl::StatusOr<NurbsObjectDescription>& description, const Expected& expected, const std::string& what,
              double precision = 1e-6) {
  ASSERT_TRUE(description.ok()) << what << ": " << description.status();
  const auto object = NurbsObject::Create(*description);
  ASSERT_TRUE(object.ok()) << what << ": " << object.status();
  const auto properties = ComputeNurbsObjectMassProperties(*object, 1);
  ASSERT_TRUE(properties.ok()) << what << ": " << properties.status();
  EXPECT_NEAR(properties->volume_m3 / expected.volume_m3, 1, precision) << what;
  EXPECT_NEAR(properties->area_m2 / expected.area_m2, 1, precision) << what;
  const double size = std::sqrt(expected.area_m2);
  EXPECT_LT((properties->mass.center_m - expected.center_m).norm(), precision * size) << what;
  // A mesh of it is closed and has its volume too.
  const auto mesh = TessellateNurbsObject(*object, 2e-3 * size);
  ASSERT_TRUE(mesh.ok()) << what << ": " << mesh.status();
  EXPECT_TRUE(CheckClosedSurface(*mesh).ok()) << what << ": " << CheckClosedSurface(*mesh);
  double volume = 0;
  for (const auto& [a, b, c] : mesh->triangles) volume += mesh->vertices[a].dot(mesh->vertices[b].cross(mesh->vertices[c])) / 6;
  EXPECT_NEAR(volume, expected.volume_m3, 2e-3 * size * expected.area_m2) << what;
}

std::vector<std::tuple<std::string, TopoDS_Shape, Expected>> Parts() {
  std::vector<std::tuple<std::string, TopoDS_Shape, Expected>> out;
  out.emplace_back("box", BRepPrimAPI_MakeBox(20, 30, 40).Shape(), Expected{24e-6, 2 * (6e-4 + 8e-4 + 12e-4), {0.01, 0.015, 0.02}});
  out.emplace_back("cylinder", BRepPrimAPI_MakeCylinder(10, 50).Shape(),
                   Expected{pi * 1e-4 * 0.05, 2 * pi * 1e-4 + 2 * pi * 0.01 * 0.05, {0, 0, 0.025}});
  out.emplace_back("sphere", BRepPrimAPI_MakeSphere(25).Shape(),
                   Expected{4.0 / 3 * pi * std::pow(0.025, 3), 4 * pi * 0.025 * 0.025, {0, 0, 0}});
  out.emplace_back("torus", BRepPrimAPI_MakeTorus(40, 10).Shape(),
                   Expected{2 * pi * pi * 0.04 * 1e-4, 4 * pi * pi * 0.04 * 0.01, {0, 0, 0}});
  out.emplace_back("cone", BRepPrimAPI_MakeCone(30, 0, 40).Shape(),
                   Expected{pi * 9e-4 * 0.04 / 3, pi * 0.03 * (0.03 + 0.05), {0, 0, 0.01}});
  const gp_Ax2 through(gp_Pnt(30, 20, -5), gp_Dir(0, 0, 1));
  const double hole = pi * 64e-6;
  out.emplace_back("drilled",
                   BRepAlgoAPI_Cut(BRepPrimAPI_MakeBox(60, 40, 10).Shape(), BRepPrimAPI_MakeCylinder(through, 8, 20).Shape()).Shape(),
                   Expected{(24e-4 - hole) * 0.01, 2 * (24e-4 - hole) + 2 * 0.1 * 0.01 + 2 * pi * 0.008 * 0.01, {0.03, 0.02, 0.005}});
  return out;
}

TEST_F(CadFileTest, PartsOfStepFilesHaveTheirVolumeAndArea) {
  for (const auto& [name, shape, expected] : Parts()) ExpectIs(ReadCadFile(Write(shape, name + ".step")), expected, name);
}

TEST_F(CadFileTest, PartsOfIgesFilesHaveTheirVolumeAndArea) {
  for (const auto& [name, shape, expected] : Parts()) ExpectIs(ReadCadFile(Write(shape, name + ".iges")), expected, name);
}

// As most IGES files are: trimmed surfaces, without a word on which belong together or which side is out.
TEST_F(CadFileTest, LooseSurfacesAreSewn) {
  for (const auto& [name, shape, expected] : Parts()) {
    ExpectIs(ReadCadFile(Write(shape, name + ".igs", "MM", false)), expected, name + " as surfaces", 1e-5);
  }
}

TEST_F(CadFileTest, LengthsFollowTheUnitOfTheFile) {
  const TopoDS_Shape box = BRepPrimAPI_MakeBox(20, 30, 40).Shape();
  const Expected expected{24e-6, 2 * (6e-4 + 8e-4 + 12e-4), {0.01, 0.015, 0.02}};
  for (const char* unit : {"MM", "M", "CM", "INCH"}) {
    ExpectIs(ReadCadFile(Write(box, "box.step", unit)), expected, unit);
    std::ifstream file(folder_ / "box.step");
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    EXPECT_EQ(text.find("20.,") == std::string::npos, std::string(unit) != "MM") << unit << ": the file is not in its unit";
  }
}

TEST_F(CadFileTest, AssembliesAreFlattenedWhereTheyPutTheirParts) {
  const TopoDS_Shape box = BRepPrimAPI_MakeBox(10, 10, 10).Shape();
  BRep_Builder builder;
  TopoDS_Compound assembly;
  builder.MakeCompound(assembly);
  gp_Trsf moved;
  moved.SetTranslation(gp_Vec(100, 0, 0));
  gp_Trsf turned;
  turned.SetRotation(gp_Ax1(gp_Pnt(0, 0, 0), gp_Dir(0, 0, 1)), pi / 2);
  builder.Add(assembly, box);
  builder.Add(assembly, box.Moved(TopLoc_Location(moved)));
  builder.Add(assembly, box.Moved(TopLoc_Location(turned)));
  const auto description = ReadCadFile(Write(assembly, "assembly.step"));
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_EQ(description->patches.size(), 18U);
  EXPECT_EQ(description->name, "assembly");
  const auto properties = ComputeNurbsObjectMassProperties(*NurbsObject::Create(*description), 1);
  ASSERT_TRUE(properties.ok()) << properties.status();
  EXPECT_NEAR(properties->volume_m3, 3e-6, 1e-12);
  EXPECT_LT((properties->mass.center_m - Vector3d((0.005 + 0.105 - 0.005) / 3, 0.005, 0.005)).norm(), 1e-9);
}

TEST_F(CadFileTest, NamesAreKept) {
  const fs::path path = Write(BRepPrimAPI_MakeBox(10, 10, 10).Shape(), "named.step");
  std::ifstream in(path);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  in.close();
  const size_t solid = text.find("MANIFOLD_SOLID_BREP('");
  const size_t face = text.find("ADVANCED_FACE('");
  ASSERT_NE(solid, std::string::npos);
  ASSERT_NE(face, std::string::npos);
  const auto rename = [&](size_t at, const std::string& name) {
    const size_t first = text.find('\'', at) + 1;
    text.replace(first, text.find('\'', first) - first, name);
  };
  rename(std::max(solid, face), solid > face ? "block" : "lid");
  rename(std::min(solid, face), solid > face ? "lid" : "block");
  std::ofstream(path) << text;
  const auto description = ReadCadFile(path);
  ASSERT_TRUE(description.ok()) << description.status();
  ASSERT_EQ(description->patches.size(), 6U);
  size_t lids = 0;
  size_t blocks = 0;
  for (const NurbsPatchDescription& patch : description->patches) {
    lids += patch.name == "lid" ? 1 : 0;
    blocks += patch.name == "block" ? 1 : 0;
  }
  EXPECT_EQ(lids, 1U);
  EXPECT_EQ(blocks, 5U);
}

TEST_F(CadFileTest, FacesThatCannotBeReadAreTold) {
  const fs::path path = Write(BRepPrimAPI_MakeBox(10, 10, 10).Shape(), "torn.step");
  std::vector<std::string> warnings;
  ASSERT_TRUE(ReadCadFile(path, &warnings).ok());
  EXPECT_TRUE(warnings.empty());
  std::ifstream in(path);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  in.close();
  // Of one face the plane is gone: its name in the file means nothing.
  const size_t at = text.find("= PLANE(");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 8, "= PLAIN(");
  std::ofstream(path) << text;
  const auto description = ReadCadFile(path, &warnings);
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_EQ(description->patches.size(), 5U);
  EXPECT_THAT(warnings, ::testing::ElementsAre("of 6 faces in the file only 5 could be read; the others are left out"));
  EXPECT_FALSE(NurbsObject::Create(*description)->CheckClosed().ok());
}

TEST_F(CadFileTest, WhatIsWrittenIsReadAgain) {
  for (const char* extension : {".step", ".iges"}) {
    for (const auto& [name, shape, expected] : Parts()) {
      const auto first = ReadCadFile(Write(shape, name + ".step"));
      ASSERT_TRUE(first.ok()) << name << first.status();
      const fs::path again = folder_ / (name + "-again" + extension);
      const absl::Status written = WriteCadFile(*NurbsObject::Create(*first), again);
      ASSERT_TRUE(written.ok()) << name << extension << ": " << written;
      ExpectIs(ReadCadFile(again), expected, name + extension + " written again", 1e-5);
    }
  }
}

TEST_F(CadFileTest, ShapesOfOurOwnAreWritten) {
  for (const auto& [name, shape] : {std::pair(std::string("sphere"), NurbsSphere(0.02)),
                                    {"torus", NurbsTorus(0.03, 0.01)},
                                    {"cylinder", NurbsCylinder(0.01, 0.04)},
                                    {"cone", NurbsCone(0.02, 0.03)}}) {
    const auto object = NurbsObject::FromSurfaces(name, shape);
    const auto exact = ComputeNurbsMassProperties(shape, 1);
    const fs::path path = folder_ / (name + ".step");
    ASSERT_TRUE(WriteCadFile(*object, path).ok()) << name << WriteCadFile(*object, path);
    ExpectIs(ReadCadFile(path), {exact->volume_m3, exact->area_m2, exact->mass.center_m}, name, 1e-5);
  }
  const auto plate = NurbsObject::Create(DrilledPlate(0.2, 0.1));
  ASSERT_TRUE(WriteCadFile(*plate, folder_ / "plate.step").ok());
  ExpectIs(ReadCadFile(folder_ / "plate.step"), {0.1 * (1 - pi * 0.04), 2 * (1 - pi * 0.04) + 0.4 + 2 * pi * 0.2 * 0.1, {0, 0, 0.05}},
           "plate", 1e-5);
}

TEST_F(CadFileTest, ErrorsNameTheFile) {
  const auto error = [&](const fs::path& path) {
    const auto object = ReadCadFile(path);
    return object.ok() ? "none" : std::string(object.status().message());
  };
  EXPECT_THAT(error(folder_ / "none.step"), HasSubstr("none.step: cannot be read"));
  EXPECT_THAT(error(folder_ / "part.sldprt"), HasSubstr("part.sldprt: extension \".sldprt\" is not one of .step .stp .iges .igs"));
  fs::create_directories(folder_ / "folder.step");
  EXPECT_THAT(error(folder_ / "folder.step"), HasSubstr("folder.step: is not a regular file"));
  for (const char* name : {"empty.step", "empty.iges"}) {
    std::ofstream(folder_ / name).close();
    EXPECT_THAT(error(folder_ / name), HasSubstr(name));
  }
  std::ofstream(folder_ / "words.step") << "solid nothing\nendsolid\n";
  EXPECT_THAT(error(folder_ / "words.step"), HasSubstr("words.step: "));
  const auto sphere = NurbsObject::FromSurfaces("", NurbsSphere(1));
  EXPECT_THAT(std::string(WriteCadFile(*sphere, folder_ / "a.obj").message()), HasSubstr("a.obj: extension \".obj\""));
  EXPECT_FALSE(WriteCadFile(*sphere, folder_ / "none" / "a.step").ok());
}

}  // namespace
}  // namespace palpate::sim::cad_file_test
