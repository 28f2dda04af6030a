#include "sim/volume/volume_file.h"

#include <unistd.h>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gdcmDataSet.h>
#include <gdcmItem.h>
#include <gdcmSequenceOfItems.h>
#include <gdcmWriter.h>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sim/volume/label_volume.h"

namespace palpate::sim::volume_file_test {
namespace {

using Eigen::Vector3d;
using ::testing::HasSubstr;

class VolumeFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / absl::StrFormat("palpate_volume_%d", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  void ExpectRefused(const std::string& name, const std::string& bytes, const std::string& part) const {
    const auto volume = ReadLabelVolume(Write(name, bytes));
    ASSERT_FALSE(volume.ok()) << name;
    EXPECT_THAT(std::string(volume.status().message()), HasSubstr(name));
    EXPECT_THAT(std::string(volume.status().message()), HasSubstr(part));
    EXPECT_THAT(std::string(volume.status().message()), ::testing::Not(HasSubstr("(0x")));
  }

  std::filesystem::path folder_;
};

// 3 x 2 x 2 voxels with values 0, 1, ... 11.
std::string Ramp() {
  std::string bytes;
  for (char value = 0; value < 12; ++value) bytes.push_back(value);
  return bytes;
}

std::string Nrrd(const std::string& more, const std::string& data, const std::string& sizes = "3 2 2") {
  return "NRRD0004\ntype: uint8\ndimension: 3\nsizes: " + sizes + "\nencoding: raw\n" + more + "\n" + data;
}

std::string MetaImage(const std::string& data, const std::string& sizes = "3 2 2", const std::string& type = "MET_UCHAR") {
  return "ObjectType = Image\nNDims = 3\nBinaryData = True\nBinaryDataByteOrderMSB = False\nTransformMatrix = 0 1 0 -1 0 0 0 0 1\n"
         "Offset = 10 20 30\nElementSpacing = 1 2 4\nDimSize = " +
         sizes + "\nElementType = " + type + "\nElementDataFile = LOCAL\n" + data;
}

// Little-endian, an sform without rotation; `type` 16 = float, 2 = uint8.
std::string Nifti(int16_t type, int16_t bits, const std::string& data) {
  std::string header(352, '\0');
  const auto put = [&](size_t at, auto value) { std::memcpy(header.data() + at, &value, sizeof(value)); };
  put(0, int32_t{348});
  const int16_t dims[8] = {3, 3, 2, 2, 1, 1, 1, 1};
  std::memcpy(header.data() + 40, dims, sizeof(dims));
  put(70, type);
  put(72, bits);
  const float spacing[4] = {1, 1, 2, 4};
  std::memcpy(header.data() + 76, spacing, sizeof(spacing));
  put(108, 352.0F);
  put(112, 1.0F);
  header[123] = 2;  // millimetres
  put(254, int16_t{1});
  const float rows[12] = {1, 0, 0, 10, 0, 2, 0, 20, 0, 0, 4, 30};
  std::memcpy(header.data() + 280, rows, sizeof(rows));
  std::memcpy(header.data() + 344, "n+1", 4);
  return header + data;
}

TEST_F(VolumeFileTest, MetaImageHasPlaceAndOrientation) {
  const auto volume = ReadLabelVolume(Write("a.mha", MetaImage(Ramp())));
  ASSERT_TRUE(volume.ok()) << volume.status();
  EXPECT_EQ(volume->size, (std::array<uint32_t, 3>{3, 2, 2}));
  EXPECT_TRUE(volume->spacing_m.isApprox(Vector3d(0.001, 0.002, 0.004)));
  EXPECT_TRUE(volume->origin_m.isApprox(Vector3d(0.01, 0.02, 0.03)));
  EXPECT_TRUE(volume->direction.col(0).isApprox(Vector3d(0, 1, 0))) << volume->direction;
  EXPECT_TRUE(volume->direction.col(1).isApprox(Vector3d(-1, 0, 0))) << volume->direction;
  for (uint16_t v = 0; v < 12; ++v) EXPECT_EQ(volume->voxels[v], v);
}

TEST_F(VolumeFileTest, NrrdTurnsToTheFrameOfThePatientAndNamesSegments) {
  const std::string where = "space: right-anterior-superior\nspace directions: (1,0,0) (0,2,0) (0,0,4)\nspace origin: (10,20,30)\n";
  const auto volume = ReadLabelVolume(Write(
      "a.nrrd", Nrrd(where + "Segment0_Name:=liver\nSegment0_LabelValue:=3\nSegment1_Name:=left lung\nSegment1_LabelValue:=7\n", Ramp())));
  ASSERT_TRUE(volume.ok()) << volume.status();
  EXPECT_TRUE(volume->origin_m.isApprox(Vector3d(-0.01, -0.02, 0.03))) << volume->origin_m.transpose();
  EXPECT_TRUE(volume->direction.isApprox(Vector3d(-1, -1, 1).asDiagonal().toDenseMatrix())) << volume->direction;
  EXPECT_TRUE(volume->spacing_m.isApprox(Vector3d(0.001, 0.002, 0.004)));
  EXPECT_EQ(volume->names, (std::map<uint16_t, std::string>{{3, "liver"}, {7, "left lung"}}));
  EXPECT_EQ(volume->voxels[11], 11);
}

TEST_F(VolumeFileTest, NiftiOfFloatsAreLabelsToo) {
  std::string data;
  for (int v = 0; v < 12; ++v) {
    const float value = static_cast<float>(v);
    data.append(reinterpret_cast<const char*>(&value), 4);
  }
  const auto volume = ReadLabelVolume(Write("a.nii", Nifti(16, 32, data)));
  ASSERT_TRUE(volume.ok()) << volume.status();
  EXPECT_TRUE(volume->origin_m.isApprox(Vector3d(-0.01, -0.02, 0.03))) << "NIfTI counts to the right and to the front";
  EXPECT_TRUE(volume->direction.isApprox(Vector3d(-1, -1, 1).asDiagonal().toDenseMatrix(), 1e-6)) << volume->direction;
  EXPECT_EQ(volume->voxels[11], 11);

  const float half = 0.5F;
  std::memcpy(data.data() + 16, &half, 4);
  ExpectRefused("half.nii", Nifti(16, 32, data), "voxel (1, 1, 0) is 0.5; labels are whole numbers");
}

TEST_F(VolumeFileTest, BadFilesAreRefusedByName) {
  EXPECT_EQ(ReadLabelVolume(folder_ / "none.nrrd").status().code(), absl::StatusCode::kNotFound);
  ExpectRefused("a.xyz", "whatever", "none of .nii");
  ExpectRefused("short.mha", MetaImage(Ramp().substr(0, 7)), "cut off: 7 bytes of voxels, must be 12");
  ExpectRefused("short.nrrd", Nrrd("", Ramp().substr(0, 7)), "cannot be read");
  ExpectRefused("short.nii", Nifti(2, 8, Ramp().substr(0, 7)), "cut off: 359 bytes, must be 364");
  ExpectRefused("text.nrrd", "no nrrd at all", "cannot be read");
  ExpectRefused("text.mha", "no mha at all", "");
  ExpectRefused("text.nii", "no nifti at all", "cannot be read");
  ExpectRefused("list.mhd", "ObjectType = Image\nNDims = 3\nDimSize = 3 2 2\nElementType = MET_UCHAR\nElementDataFile = LIST\na.raw\n",
                "several files");
  ExpectRefused("flat.nrrd", "NRRD0004\ntype: uint8\ndimension: 2\nsizes: 4 3\nencoding: raw\n\n" + Ramp(), "2 dimensions");
  ExpectRefused("layers.nrrd",
                "NRRD0004\ntype: uint8\ndimension: 4\nsizes: 2 3 2 1\nkinds: list domain domain domain\nspace: left-posterior-superior\n"
                "space directions: none (1,0,0) (0,1,0) (0,0,1)\nspace origin: (0,0,0)\nencoding: raw\n\n" +
                    Ramp(),
                "2 numbers a voxel");
  ExpectRefused("fine.mha", MetaImage(Ramp(), "3 2 2", "MET_DOUBLE"), "cut off: 12 bytes of voxels, must be 96");
}

// Nothing is allocated for what a header claims.
TEST_F(VolumeFileTest, HugeClaimsAreRefusedBeforeTheyAreRead) {
  for (const auto& [name, bytes] : {std::pair<std::string, std::string>("huge.mha", MetaImage(Ramp(), "60000 60000 60000")),
                                    std::pair<std::string, std::string>("huge.nrrd", Nrrd("", Ramp(), "60000 60000 60000"))}) {
    const auto volume = ReadLabelVolume(Write(name, bytes));
    EXPECT_EQ(volume.status().code(), absl::StatusCode::kResourceExhausted) << volume.status();
    EXPECT_THAT(std::string(volume.status().message()), HasSubstr("60000 x 60000 x 60000"));
  }
  ExpectRefused("long.mha", MetaImage(Ramp(), "100000 1 1"), "100000 voxels along axis 0");
}

// --- DICOM -----------------------------------------------------------------------------------------------------------------------------

void Put(gdcm::DataSet* data, gdcm::Tag tag, gdcm::VR vr, std::string value) {
  if (value.size() % 2 != 0) value.push_back(vr == gdcm::VR::UI || vr == gdcm::VR::OB ? '\0' : ' ');
  gdcm::DataElement element(tag);
  element.SetVR(vr);
  element.SetByteValue(value.data(), static_cast<uint32_t>(value.size()));
  data->Replace(element);
}
void PutShort(gdcm::DataSet* data, gdcm::Tag tag, uint16_t value) {
  Put(data, tag, gdcm::VR::US, std::string{static_cast<char>(value & 0xff), static_cast<char>(value >> 8)});
}
void PutSequence(gdcm::DataSet* data, gdcm::Tag tag, const std::vector<gdcm::DataSet>& items) {
  gdcm::SmartPointer<gdcm::SequenceOfItems> sequence = new gdcm::SequenceOfItems;
  sequence->SetLengthToUndefined();
  for (const gdcm::DataSet& nested : items) {
    gdcm::Item item;
    item.SetVLToUndefined();
    item.SetNestedDataSet(nested);
    sequence->AddItem(item);
  }
  gdcm::DataElement element(tag);
  element.SetVR(gdcm::VR::SQ);
  element.SetValue(*sequence);
  element.SetVLToUndefined();
  data->Replace(element);
}
gdcm::DataSet With(gdcm::Tag tag, gdcm::VR vr, const std::string& value) {
  gdcm::DataSet data;
  Put(&data, tag, vr, value);
  return data;
}

struct SegFrame {
  uint16_t segment;
  double z_mm;
  std::string bits;  // '1' or '0' for each voxel, row by row
};

// A segmentation of 5 columns and 3 rows, which is no whole number of bytes a frame; columns run along +y, rows along +x, slices down.
struct SegOptions {
  std::string spacing_between = "2.5";
  std::string sop_class = "1.2.840.10008.5.1.4.1.1.66.4";
  bool is_fractional = false;
  uint16_t max_fraction = 200;
  uint64_t cut_bytes = 0;
};
std::filesystem::path WriteSeg(const std::filesystem::path& path, const std::vector<SegFrame>& frames, const SegOptions& options = {}) {
  gdcm::Writer writer;
  gdcm::DataSet& data = writer.GetFile().GetDataSet();
  Put(&data, gdcm::Tag(0x0008, 0x0016), gdcm::VR::UI, options.sop_class);
  Put(&data, gdcm::Tag(0x0008, 0x0018), gdcm::VR::UI, "1.2.3.4");
  Put(&data, gdcm::Tag(0x0028, 0x0008), gdcm::VR::IS, std::to_string(frames.size()));
  PutShort(&data, gdcm::Tag(0x0028, 0x0010), 3);
  PutShort(&data, gdcm::Tag(0x0028, 0x0011), 5);
  PutShort(&data, gdcm::Tag(0x0028, 0x0100), options.is_fractional ? 8 : 1);
  Put(&data, gdcm::Tag(0x0062, 0x0001), gdcm::VR::CS, options.is_fractional ? "FRACTIONAL" : "BINARY");
  if (options.is_fractional) PutShort(&data, gdcm::Tag(0x0062, 0x000e), options.max_fraction);
  std::vector<gdcm::DataSet> segments;
  for (const auto& [number, label] : {std::pair<uint16_t, std::string>(1, "Liver"), std::pair<uint16_t, std::string>(4, "Tumour")}) {
    gdcm::DataSet segment = With(gdcm::Tag(0x0062, 0x0005), gdcm::VR::LO, label);
    PutShort(&segment, gdcm::Tag(0x0062, 0x0004), number);
    segments.push_back(segment);
  }
  PutSequence(&data, gdcm::Tag(0x0062, 0x0002), segments);
  gdcm::DataSet shared;
  PutSequence(&shared, gdcm::Tag(0x0020, 0x9116), {With(gdcm::Tag(0x0020, 0x0037), gdcm::VR::DS, "0\\1\\0\\1\\0\\0")});
  gdcm::DataSet measures = With(gdcm::Tag(0x0028, 0x0030), gdcm::VR::DS, "0.5\\0.75");
  Put(&measures, gdcm::Tag(0x0018, 0x0050), gdcm::VR::DS, "3");
  if (!options.spacing_between.empty()) Put(&measures, gdcm::Tag(0x0018, 0x0088), gdcm::VR::DS, options.spacing_between);
  PutSequence(&shared, gdcm::Tag(0x0028, 0x9110), {measures});
  PutSequence(&data, gdcm::Tag(0x5200, 0x9229), {shared});
  std::vector<gdcm::DataSet> each;
  std::string bits;
  for (const SegFrame& frame : frames) {
    gdcm::DataSet groups;
    gdcm::DataSet identification;
    PutShort(&identification, gdcm::Tag(0x0062, 0x000b), frame.segment);
    PutSequence(&groups, gdcm::Tag(0x0062, 0x000a), {identification});
    PutSequence(&groups, gdcm::Tag(0x0020, 0x9113),
                {With(gdcm::Tag(0x0020, 0x0032), gdcm::VR::DS, absl::StrFormat("10\\20\\%g", frame.z_mm))});
    each.push_back(groups);
    bits += frame.bits;
  }
  PutSequence(&data, gdcm::Tag(0x5200, 0x9230), each);
  std::string pixels;
  if (options.is_fractional) {
    for (const char bit : bits) pixels.push_back(static_cast<char>(bit == '1' ? 100 : 99));
  } else {
    pixels.assign((bits.size() + 7) / 8, '\0');
    for (size_t b = 0; b < bits.size(); ++b) {
      if (bits[b] == '1') pixels[b / 8] = static_cast<char>(pixels[b / 8] | 1 << (b % 8));
    }
  }
  pixels.resize(pixels.size() - options.cut_bytes);
  Put(&data, gdcm::Tag(0x7fe0, 0x0010), gdcm::VR::OB, pixels);
  writer.GetFile().GetHeader().SetDataSetTransferSyntax(gdcm::TransferSyntax::ExplicitVRLittleEndian);
  writer.SetFileName(path.c_str());
  EXPECT_TRUE(writer.Write());
  return path;
}

const std::vector<SegFrame> kFrames = {
    {1, 30, "110000000000001"}, {4, 25, "000001000000000"}, {1, 25, "000000000000010"}, {4, 30, "010000000000000"}};

TEST_F(VolumeFileTest, DicomSegmentationHasItsSegmentsInPlace) {
  for (const bool is_fractional : {false, true}) {
    const auto volume = ReadLabelVolume(WriteSeg(folder_ / "seg.dcm", kFrames, {.is_fractional = is_fractional}));
    ASSERT_TRUE(volume.ok()) << volume.status();
    // columns along +y, rows along +x: slices along -z, so the frame at 30 is the first and the empty one at 27.5 lies between
    EXPECT_EQ(volume->size, (std::array<uint32_t, 3>{5, 3, 3}));
    EXPECT_TRUE(volume->spacing_m.isApprox(Vector3d(0.00075, 0.0005, 0.0025))) << volume->spacing_m.transpose();
    EXPECT_TRUE(volume->origin_m.isApprox(Vector3d(0.01, 0.02, 0.03))) << volume->origin_m.transpose();
    EXPECT_TRUE(volume->direction.col(2).isApprox(Vector3d(0, 0, -1)));
    EXPECT_EQ(volume->names, (std::map<uint16_t, std::string>{{1, "Liver"}, {4, "Tumour"}}));
    std::vector<uint16_t> expected(45, 0);
    expected[0] = 1;
    expected[1] = 4;  // of both: the higher number
    expected[14] = 1;
    expected[30 + 5] = 4;
    expected[30 + 13] = 1;
    EXPECT_EQ(volume->voxels, expected);
    EXPECT_EQ(volume->overlap_count, 1U);
  }
}

TEST_F(VolumeFileTest, DicomWithoutAnExtensionIsKnownByItsMark) {
  const auto volume = ReadLabelVolume(WriteSeg(folder_ / "IM0001", kFrames));
  EXPECT_TRUE(volume.ok()) << volume.status();
}

TEST_F(VolumeFileTest, BadSegmentationsAreRefusedByName) {
  const auto refused = [&](const std::vector<SegFrame>& frames, const SegOptions& options, const std::string& part) {
    const auto volume = ReadLabelVolume(WriteSeg(folder_ / "bad.dcm", frames, options));
    ASSERT_FALSE(volume.ok());
    EXPECT_THAT(std::string(volume.status().message()), HasSubstr("bad.dcm"));
    EXPECT_THAT(std::string(volume.status().message()), HasSubstr(part));
  };
  refused(kFrames, {.sop_class = "1.2.840.10008.5.1.4.1.1.2"}, "is no segmentation");
  refused(kFrames, {.spacing_between = "2"}, "not on one grid");
  refused(kFrames, {.spacing_between = "many"}, "must be 1 numbers");
  refused(kFrames, {.cut_bytes = 2}, "bytes of pixels");
  // Half of 0 would be reached by every voxel.
  for (const uint16_t most : {uint16_t{0}, uint16_t{256}}) {
    refused(kFrames, {.is_fractional = true, .max_fraction = most},
            absl::StrFormat("maximum fractional value %d, must be in [1, 255]", most));
  }
  auto frames = kFrames;
  frames[2].segment = 3;
  refused(frames, {}, "frame 3 is of segment 3, which is not in the segment sequence");
  std::string bytes;
  {
    WriteSeg(folder_ / "whole.dcm", kFrames);
    std::ifstream file(folder_ / "whole.dcm", std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  // every way to cut it off, and a byte turned: an answer, whatever it is
  for (size_t size = 0; size < bytes.size(); size += 7) {
    const auto volume = ReadLabelVolume(Write("cut.dcm", bytes.substr(0, size)));
    EXPECT_FALSE(volume.ok()) << size;
  }
  for (size_t at = 128; at < bytes.size(); at += 3) {
    std::string turned = bytes;
    turned[at] = static_cast<char>(turned[at] ^ 0x41);
    ReadLabelVolume(Write("turned.dcm", turned)).IgnoreError();
  }
}

}  // namespace
}  // namespace palpate::sim::volume_file_test
