// palpate-cad: converts files of CAD programs, for `palpate nurbs import` and `export`. A program of its own, since it alone is linked with
// OpenCASCADE, and since a damaged file may end it.
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "gpu/base/status.h"
#include "sim/cad/cad_file.h"
#include "sim/scene/nurbs_file.h"

namespace {

constexpr rlim_t kMaxMemoryBytes = rlim_t{8} << 30;
constexpr rlim_t kMaxSeconds = 600;  // of the processor

void Limit(int resource, rlim_t most) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_max, most);
  setrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
}

absl::Status Import(const std::string& from, const std::string& to) {
  std::vector<std::string> warnings;
  PALPATE_ASSIGN_OR_RETURN(const palpate::sim::NurbsObjectDescription description, palpate::sim::ReadCadFile(from, &warnings));
  const absl::StatusOr<palpate::sim::NurbsObject> object = palpate::sim::NurbsObject::Create(description);
  if (!object.ok()) return palpate::Annotate(object.status(), from);
  // What is there stays until all of the new file is.
  const std::string part = to + ".part";
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file << palpate::scene::FormatNurbsJson(description);
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(part, to, error);
  if (!file || error) {
    std::filesystem::remove(part, error);
    return absl::UnknownError(to + ": cannot be written");
  }
  for (const std::string& warning : warnings) std::cerr << "palpate-cad: warning: " << warning << '\n';
  return absl::OkStatus();
}

absl::Status Export(const std::string& from, const std::string& to) {
  std::ifstream file(from, std::ios::binary);
  if (!file) return absl::NotFoundError(from + ": cannot be read");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  PALPATE_ASSIGN_OR_RETURN(const palpate::sim::NurbsObject object, palpate::scene::ReadNurbs(text, from));
  return palpate::sim::WriteCadFile(object, to);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc == 4 ? argv[1] : "";
  if (verb != "import" && verb != "export") {
    std::cerr << "usage: palpate-cad import PART.step|iges OBJECT.nurbs.json\n"
                 "       palpate-cad export OBJECT.nurbs.json PART.step|iges\n"
                 "`palpate nurbs import` and `export` call it. Exit status: 0 done, 1 failed, 2 wrong usage.\n";
    return 2;
  }
  Limit(RLIMIT_AS, kMaxMemoryBytes);
  Limit(RLIMIT_CPU, kMaxSeconds);
  Limit(RLIMIT_CORE, 0);
  const absl::Status status = verb == "import" ? Import(argv[2], argv[3]) : Export(argv[2], argv[3]);
  if (status.ok()) return 0;
  std::cerr << "palpate-cad: " << status.message() << '\n';
  return 1;
}
