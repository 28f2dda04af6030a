#include "sim/volume/volume_file.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <zlib.h>

#include <itkMetaDataObject.h>
#include <itkMetaImageIO.h>
#include <itkNiftiImageIO.h>
#include <itkNrrdImageIO.h>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/base/status.h"
#include "sim/volume/dicom_segmentation.h"

namespace palpate::sim {
namespace {

constexpr double kMetres = 0.001;  // of the millimetres of all these formats
constexpr uint64_t kMaxBytes = uint64_t{2} << 30;

/// What ITK says in one line, without the addresses of its objects.
std::string ToText(const char* what) {
  std::string text(what == nullptr ? "" : what);
  for (char& c : text) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  }
  if (const size_t address = text.find("(0x"); address != std::string::npos) {
    if (const size_t end = text.find("): ", address); end != std::string::npos) text.erase(0, end + 3);
  }
  return std::string(absl::StripAsciiWhitespace(text));
}

/// MetaImage files that are cut off are read with a message alone, so their sizes are compared here. `bytes`: of all voxels.
absl::Status CheckMetaImage(const std::filesystem::path& path, uint64_t bytes) {
  const std::string name = path.string();
  std::ifstream file(path, std::ios::binary);
  std::string line;
  uint64_t read = 0;
  bool is_compressed = false;
  uint64_t compressed_bytes = 0;
  constexpr uint64_t kMaxHeaderBytes = 1 << 20;
  while (read < kMaxHeaderBytes && std::getline(file, line)) {
    read += line.size() + 1;
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string key = absl::AsciiStrToLower(absl::StripAsciiWhitespace(line.substr(0, equals)));
    const std::string value(absl::StripAsciiWhitespace(line.substr(equals + 1)));
    if (key == "compresseddata") is_compressed = absl::EqualsIgnoreCase(value, "true");
    if (key == "compresseddatasize" && !absl::SimpleAtoi(value, &compressed_bytes)) compressed_bytes = 0;
    if (key != "elementdatafile") continue;
    std::error_code error;
    const bool is_local = absl::EqualsIgnoreCase(value, "LOCAL");
    if (!is_local && (absl::StartsWithIgnoreCase(value, "LIST") || value.find('%') != std::string::npos)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": its voxels lie in several files (ElementDataFile = ", value, "); store them in one"));
    }
    const std::filesystem::path data = is_local ? path : path.parent_path() / value;
    const uint64_t size = std::filesystem::file_size(data, error);
    if (error)
      return absl::InvalidArgumentError(absl::StrCat(name, ": its voxels cannot be read from ", data.string(), ": ", error.message()));
    const uint64_t there = is_local ? size - std::min(size, read) : size;
    const uint64_t needed = is_compressed ? compressed_bytes : bytes;
    if (there < needed) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: cut off: %d bytes of voxels, must be %d", name, there, needed));
    }
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(name, ": no ElementDataFile in its header"));
}

/// NIfTI files that are cut off are read without a word, so the bytes are counted here; unzipped if they have to be.
absl::Status CheckNifti(const std::string& name, uint64_t bytes) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(name.c_str(), "rb"), gzclose);
  std::vector<char> buffer(1 << 16);
  uint64_t there = 0;
  uint64_t needed = bytes;
  while (file != nullptr) {
    const int count = gzread(file.get(), buffer.data(), static_cast<unsigned>(buffer.size()));
    if (count <= 0) break;
    if (there == 0) {
      // voxels begin behind the header and four bytes, or later
      constexpr int kHeader2 = 540;
      constexpr uint64_t kFirst1 = 352;
      constexpr uint64_t kFirst2 = 544;
      int32_t header = 0;
      if (count >= 4) std::memcpy(&header, buffer.data(), 4);
      const bool is_second = header == kHeader2 || header == static_cast<int32_t>(__builtin_bswap32(kHeader2));
      needed += is_second ? kFirst2 : kFirst1;
    }
    there += static_cast<uint64_t>(count);
    if (there >= needed) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat("%s: cut off: %d bytes, must be %d", name, there, needed));
}

itk::ImageIOBase::Pointer MakeReader(const std::string& lower_name) {
  if (absl::EndsWith(lower_name, ".nii") || absl::EndsWith(lower_name, ".nii.gz")) return itk::NiftiImageIO::New().GetPointer();
  if (absl::EndsWith(lower_name, ".nrrd") || absl::EndsWith(lower_name, ".nhdr")) return itk::NrrdImageIO::New().GetPointer();
  if (absl::EndsWith(lower_name, ".mha") || absl::EndsWith(lower_name, ".mhd")) return itk::MetaImageIO::New().GetPointer();
  return nullptr;
}

/// Sizes, spacing, orientation and origin.
absl::Status ReadGrid(const itk::ImageIOBase& io, const std::string& name, LabelVolume* volume) {
  const unsigned dimensions = io.GetNumberOfDimensions();
  bool is_volume = dimensions >= 3;
  for (unsigned d = 3; d < dimensions; ++d) is_volume = is_volume && io.GetDimensions(d) == 1;
  if (!is_volume) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: has %d dimensions, a volume of labels has three", name, dimensions));
  }
  if (io.GetNumberOfComponents() != 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %d numbers a voxel, must be one label; segments that overlap (layers) have to be exported as one label map",
                        name, io.GetNumberOfComponents()));
  }
  for (unsigned axis = 0; axis < 3; ++axis) {
    const uint64_t size = io.GetDimensions(axis);
    volume->size[axis] = static_cast<uint32_t>(std::min<uint64_t>(size, std::numeric_limits<uint32_t>::max()));
    volume->spacing_m[axis] = kMetres * io.GetSpacing(axis);
    volume->origin_m[axis] = kMetres * io.GetOrigin(axis);
    const std::vector<double> along = io.GetDirection(axis);
    for (unsigned row = 0; row < 3; ++row) volume->direction(row, axis) = row < along.size() ? along[row] : 0;
  }
  return CheckLabelGrid(*volume, name);
}

/// Any type of number to labels.
template <typename T>
absl::Status Convert(const std::vector<char>& bytes, const std::string& name, LabelVolume* volume) {
  const uint64_t count = volume->voxel_count();
  for (uint64_t v = 0; v < count; ++v) {
    T value;
    std::memcpy(&value, bytes.data() + v * sizeof(T), sizeof(T));
    const auto number = static_cast<double>(value);
    if (!(number >= 0 && number <= 65535) || number != std::floor(number)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: voxel (%d, %d, %d) is %g; labels are whole numbers in [0, 65535]. Is this an image, not a label map?", name,
          v % volume->size[0], v / volume->size[0] % volume->size[1], v / (uint64_t{volume->size[0]} * volume->size[1]), number));
    }
    volume->voxels[v] = static_cast<uint16_t>(number);
  }
  return absl::OkStatus();
}

absl::Status ConvertAny(itk::ImageIOBase::IOComponentType type, const std::vector<char>& bytes, const std::string& name,
                        LabelVolume* volume) {
  using Io = itk::ImageIOBase;
  switch (type) {
    case Io::UCHAR:
      return Convert<unsigned char>(bytes, name, volume);
    case Io::CHAR:
      return Convert<signed char>(bytes, name, volume);
    case Io::USHORT:
      return Convert<unsigned short>(bytes, name, volume);
    case Io::SHORT:
      return Convert<short>(bytes, name, volume);
    case Io::UINT:
      return Convert<unsigned int>(bytes, name, volume);
    case Io::INT:
      return Convert<int>(bytes, name, volume);
    case Io::ULONG:
      return Convert<unsigned long>(bytes, name, volume);
    case Io::LONG:
      return Convert<long>(bytes, name, volume);
    case Io::ULONGLONG:
      return Convert<unsigned long long>(bytes, name, volume);
    case Io::LONGLONG:
      return Convert<long long>(bytes, name, volume);
    case Io::FLOAT:
      return Convert<float>(bytes, name, volume);
    case Io::DOUBLE:
      return Convert<double>(bytes, name, volume);
    default:
      return absl::InvalidArgumentError(absl::StrCat(name, ": the type of its voxels is not known"));
  }
}

/// Segments as 3D Slicer writes them: SegmentN_Name and SegmentN_LabelValue.
void ReadNames(const itk::MetaDataDictionary& dictionary, LabelVolume* volume) {
  constexpr int kMaxSegments = 1 << 16;
  for (int n = 0; n < kMaxSegments; ++n) {
    std::string name;
    if (!itk::ExposeMetaData(dictionary, absl::StrFormat("Segment%d_Name", n), name)) break;
    std::string value;
    int label = n + 1;
    if (itk::ExposeMetaData(dictionary, absl::StrFormat("Segment%d_LabelValue", n), value) && !absl::SimpleAtoi(value, &label)) continue;
    if (label > 0 && label <= 65535) volume->names[static_cast<uint16_t>(label)] = name;
  }
}

absl::StatusOr<LabelVolume> ReadWithItk(itk::ImageIOBase& io, const std::string& name) {
  LabelVolume volume;
  io.SetFileName(name);
  io.ReadImageInformation();
  PALPATE_RETURN_IF_ERROR(ReadGrid(io, name, &volume));
  const auto size = static_cast<uint64_t>(io.GetComponentSize());
  if (size == 0 || size > 8) return absl::InvalidArgumentError(absl::StrCat(name, ": the type of its voxels is not known"));
  if (volume.voxel_count() * size > kMaxBytes) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: %d voxels of %d bytes are more than the limit of %d bytes", name, volume.voxel_count(), size, kMaxBytes));
  }
  if (dynamic_cast<const itk::MetaImageIO*>(&io) != nullptr) PALPATE_RETURN_IF_ERROR(CheckMetaImage(name, volume.voxel_count() * size));
  if (dynamic_cast<const itk::NiftiImageIO*>(&io) != nullptr) PALPATE_RETURN_IF_ERROR(CheckNifti(name, volume.voxel_count() * size));
  itk::ImageIORegion region(io.GetNumberOfDimensions());
  for (unsigned d = 0; d < io.GetNumberOfDimensions(); ++d) region.SetSize(d, io.GetDimensions(d));
  io.SetIORegion(region);
  std::vector<char> bytes(volume.voxel_count() * size);
  io.Read(bytes.data());
  volume.voxels.resize(volume.voxel_count());
  PALPATE_RETURN_IF_ERROR(ConvertAny(io.GetComponentType(), bytes, name, &volume));
  ReadNames(io.GetMetaDataDictionary(), &volume);
  return volume;
}

bool SaysDicom(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  char magic[132] = {};
  return file.read(magic, sizeof(magic)) && std::string(magic + 128, 4) == "DICM";
}

}  // namespace

absl::StatusOr<LabelVolume> ReadLabelVolume(const std::filesystem::path& path) {
  const std::string name = path.string();
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read ", name));
  if (!std::filesystem::is_regular_file(status)) return absl::InvalidArgumentError(absl::StrCat(name, ": not a regular file"));
  if (!std::ifstream(path)) return absl::PermissionDeniedError(absl::StrCat("cannot read ", name));
  try {
    itk::Object::SetGlobalWarningDisplay(false);
    const itk::ImageIOBase::Pointer io = MakeReader(absl::AsciiStrToLower(name));
    if (io != nullptr) return ReadWithItk(*io, name);
    if (absl::EndsWithIgnoreCase(name, ".dcm") || SaysDicom(path)) return ReadDicomSegmentation(path);
  } catch (const itk::ExceptionObject& exception) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": cannot be read: ", ToText(exception.GetDescription())));
  } catch (const std::exception& exception) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": cannot be read: ", ToText(exception.what())));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": the extension is none of .nii .nii.gz .nrrd .nhdr .mha .mhd .dcm, and the file is not DICOM"));
}

bool ReadsLabelVolumes() { return true; }

}  // namespace palpate::sim
