#include "sim/cad/cad_file.h"

#include <cerrno>
#include <exception>
#include <fstream>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <IFSelect_ReturnStatus.hxx>
#include <IGESControl_Reader.hxx>
#include <IGESControl_Writer.hxx>
#include <IGESData_IGESEntity.hxx>
#include <Interface_InterfaceModel.hxx>
#include <Interface_Static.hxx>
#include <Message.hxx>
#include <Message_Messenger.hxx>
#include <STEPControl_Controller.hxx>
#include <STEPControl_Reader.hxx>
#include <STEPControl_Writer.hxx>
#include <Standard_Failure.hxx>
#include <StepRepr_RepresentationItem.hxx>
#include <StepShape_FaceSurface.hxx>
#include <TCollection_HAsciiString.hxx>
#include <TopExp_Explorer.hxx>
#include <TopLoc_Location.hxx>
#include <TopoDS_Iterator.hxx>
#include <TopoDS_Shape.hxx>
#include <XSControl_TransferReader.hxx>
#include <XSControl_WorkSession.hxx>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/cad/cad_convert.h"

namespace palpate::sim {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNameBytes = 128;

enum class Format { kStep, kIges };

absl::StatusOr<Format> FormatOf(const fs::path& path) {
  const std::string extension = absl::AsciiStrToLower(path.extension().string());
  if (extension == ".step" || extension == ".stp") return Format::kStep;
  if (extension == ".iges" || extension == ".igs") return Format::kIges;
  return absl::InvalidArgumentError(absl::StrCat("extension \"", extension, "\" is not one of .step .stp .iges .igs"));
}

absl::Status CheckFile(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), "cannot be read");
  if (!fs::is_regular_file(status)) return absl::InvalidArgumentError("is not a regular file");
  const uintmax_t size = fs::file_size(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), "cannot be read");
  if (size > kMaxCadFileBytes)
    return absl::ResourceExhaustedError(absl::StrCat(size, " bytes, at most ", kMaxCadFileBytes, " are allowed"));
  if (!std::ifstream(path)) return absl::ErrnoToStatus(errno, "cannot be read");
  return absl::OkStatus();
}

/// What OpenCASCADE throws becomes a status; its own messages stay unsaid.
template <typename Work>
auto Guarded(const fs::path& path, const Work& work) -> decltype(work()) {
  Message::DefaultMessenger()->ChangePrinters().Clear();
  absl::Status status;
  try {
    auto result = work();
    if (result.ok()) return result;
    if constexpr (std::is_same_v<decltype(result), absl::Status>) {
      status = result;
    } else {
      status = result.status();
    }
  } catch (const Standard_Failure& failure) {
    const char* what = failure.GetMessageString();
    status = absl::InvalidArgumentError(absl::StrCat("OpenCASCADE cannot convert it: ", failure.DynamicType()->Name(),
                                                     what == nullptr || *what == '\0' ? "" : ": ", what == nullptr ? "" : what));
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("needs more memory than there is");
  } catch (const std::exception& error) {
    status = absl::InvalidArgumentError(absl::StrCat("OpenCASCADE cannot convert it: ", error.what()));
  }
  return Annotate(status, path.string());
}

std::string Cleaned(const Handle(TCollection_HAsciiString) & text) {
  if (text.IsNull()) return "";
  std::string out(text->ToCString());
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  out = std::string(absl::StripAsciiWhitespace(out));
  return out.substr(0, kMaxNameBytes);
}

/// The name that the file gives to what a shape was made of.
std::string NameOf(const Handle(XSControl_TransferReader) & reader, const TopoDS_Shape& shape) {
  for (const TopoDS_Shape& at : {shape, shape.Located(TopLoc_Location())}) {
    const Handle(Standard_Transient) entity = reader->EntityFromShapeResult(at, 1);
    if (const auto item = Handle(StepRepr_RepresentationItem)::DownCast(entity); !item.IsNull()) {
      const std::string name = Cleaned(item->Name());
      if (!name.empty() && name != "NONE") return name;
    }
    if (const auto item = Handle(IGESData_IGESEntity)::DownCast(entity); !item.IsNull() && item->HasName()) {
      const std::string name = Cleaned(item->NameValue());
      if (!name.empty()) return name;
    }
  }
  return "";
}

/// Of the faces in the order of an explorer: their own, else that of their shell or solid.
std::vector<std::string> NamesOf(const Handle(XSControl_TransferReader) & reader, const TopoDS_Shape& whole) {
  std::vector<std::string> names;
  const auto add_faces = [&](const TopoDS_Shape& part, const std::string& fallback) {
    for (TopExp_Explorer at(part, TopAbs_FACE); at.More() && names.size() <= kMaxNurbsPatches; at.Next()) {
      std::string name = NameOf(reader, at.Current());
      names.push_back(name.empty() ? fallback : std::move(name));
    }
  };
  const auto visit = [&](const auto& self, const TopoDS_Shape& shape) -> void {
    if (shape.ShapeType() == TopAbs_COMPOUND || shape.ShapeType() == TopAbs_COMPSOLID) {
      for (TopoDS_Iterator at(shape); at.More(); at.Next()) self(self, at.Value());
      return;
    }
    add_faces(shape, NameOf(reader, shape));
  };
  visit(visit, whole);
  return names;
}

/// How many faces a file describes.
size_t FacesOf(const Handle(Interface_InterfaceModel) & model) {
  constexpr int kTrimmedSurface = 144;  // numbers of IGES
  constexpr int kFace = 510;
  size_t count = 0;
  for (int i = 1; i <= model->NbEntities(); ++i) {
    const Handle(Standard_Transient)& entity = model->Value(i);
    if (entity.IsNull()) continue;
    const auto iges = Handle(IGESData_IGESEntity)::DownCast(entity);
    const bool is_face = iges.IsNull() ? entity->IsKind(STANDARD_TYPE(StepShape_FaceSurface))
                                       : iges->TypeNumber() == kTrimmedSurface || iges->TypeNumber() == kFace;
    count += is_face ? 1 : 0;
  }
  return count;
}

absl::StatusOr<NurbsObjectDescription> ReadWith(XSControl_Reader& reader, const fs::path& path, std::vector<std::string>* warnings) {
  // OpenCASCADE's own tolerances are made for millimetres.
  Interface_Static::SetCVal("xstep.cascade.unit", "MM");
  if (reader.ReadFile(path.c_str()) != IFSelect_RetDone) return absl::InvalidArgumentError("is no file of this format, or damaged");
  if (reader.NbRootsForTransfer() == 0 || reader.TransferRoots() == 0) return absl::InvalidArgumentError("has no shape, or is damaged");
  const TopoDS_Shape shape = reader.OneShape();
  if (shape.IsNull()) return absl::InvalidArgumentError("has no shape");
  size_t faces = 0;
  for (TopExp_Explorer at(shape, TopAbs_FACE); at.More(); at.Next()) ++faces;
  const size_t described = FacesOf(reader.Model());
  if (warnings != nullptr && faces < described) {
    warnings->push_back(absl::StrCat("of ", described, " faces in the file only ", faces, " could be read; the others are left out"));
  }
  PALPATE_ASSIGN_OR_RETURN(NurbsObjectDescription object, FromShape(shape, NamesOf(reader.WS()->TransferReader(), shape)));
  object.name = path.stem().string().substr(0, kMaxNameBytes);
  return object;
}

}  // namespace

absl::StatusOr<NurbsObjectDescription> ReadCadFile(const fs::path& path, std::vector<std::string>* warnings) {
  return Guarded(path, [&]() -> absl::StatusOr<NurbsObjectDescription> {
    PALPATE_ASSIGN_OR_RETURN(const Format format, FormatOf(path));
    PALPATE_RETURN_IF_ERROR(CheckFile(path));
    if (format == Format::kStep) {
      STEPControl_Reader reader;
      return ReadWith(reader, path, warnings);
    }
    IGESControl_Reader reader;
    return ReadWith(reader, path, warnings);
  });
}

absl::Status WriteCadFile(const NurbsObject& object, const fs::path& path) {
  return Guarded(path, [&]() -> absl::Status {
    PALPATE_ASSIGN_OR_RETURN(const Format format, FormatOf(path));
    PALPATE_ASSIGN_OR_RETURN(const TopoDS_Shape shape, ToShape(object));
    // Whole or not at all.
    fs::path part = path;
    part.replace_filename(absl::StrCat(".", path.stem().string(), ".part", path.extension().string()));
    bool is_written = false;
    if (format == Format::kStep) {
      STEPControl_Controller::Init();  // units are taken where the writer is made
      Interface_Static::SetCVal("xstep.cascade.unit", "MM");
      Interface_Static::SetCVal("write.step.unit", "MM");
      Interface_Static::SetCVal("write.step.product.name", object.name().empty() ? "object" : object.name().c_str());
      STEPControl_Writer writer;
      is_written = writer.Transfer(shape, STEPControl_AsIs) == IFSelect_RetDone && writer.Write(part.c_str()) == IFSelect_RetDone;
    } else {
      IGESControl_Writer writer("MM", 1);  // with the topology of solids
      is_written = writer.AddShape(shape);
      writer.ComputeModel();
      is_written = is_written && writer.Write(part.c_str());
    }
    std::error_code error;
    if (!is_written) {
      fs::remove(part, error);
      return absl::FailedPreconditionError("OpenCASCADE cannot write it");
    }
    fs::rename(part, path, error);
    if (error) return absl::ErrnoToStatus(error.value(), "cannot be written");
    return absl::OkStatus();
  });
}

}  // namespace palpate::sim
