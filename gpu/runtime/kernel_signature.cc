#include "gpu/runtime/kernel_signature.h"

#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gpu/base/status.h"
#include "gpu/runtime/cl_status.h"

namespace palpate::gpu {
namespace {

constexpr std::array<std::pair<AddressSpace, std::string_view>, 3> kSpaces = {
    {{AddressSpace::kPrivate, "private"}, {AddressSpace::kGlobal, "global"}, {AddressSpace::kLocal, "local"}}};

// What `read(size, target, size_needed)` of OpenCL gives as text.
template <typename Read>
absl::StatusOr<std::string> ReadText(const Read& read, const char* call) {
  size_t size = 0;
  PALPATE_CL_RETURN_IF_ERROR(read(0, nullptr, &size), call, "");
  std::string text(size, '\0');
  if (size > 0) PALPATE_CL_RETURN_IF_ERROR(read(size, text.data(), nullptr), call, "");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

absl::StatusOr<KernelSignature> ReadSignature(cl_kernel kernel) {
  cl_uint count = 0;
  PALPATE_CL_RETURN_IF_ERROR(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(count), &count, nullptr), "clGetKernelInfo", "");
  KernelSignature signature(count);
  for (cl_uint i = 0; i < count; ++i) {
    const auto text = [&](cl_kernel_arg_info what) {
      return ReadText([&](size_t size, char* target, size_t* needed) { return clGetKernelArgInfo(kernel, i, what, size, target, needed); },
                      "clGetKernelArgInfo");
    };
    PALPATE_ASSIGN_OR_RETURN(signature[i].name, text(CL_KERNEL_ARG_NAME));
    PALPATE_ASSIGN_OR_RETURN(const std::string type, text(CL_KERNEL_ARG_TYPE_NAME));
    signature[i].type = DeviceSpelling(type);
    cl_kernel_arg_address_qualifier space = CL_KERNEL_ARG_ADDRESS_PRIVATE;
    PALPATE_CL_RETURN_IF_ERROR(clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof(space), &space, nullptr),
                               "clGetKernelArgInfo", signature[i].name);
    signature[i].space = space == CL_KERNEL_ARG_ADDRESS_PRIVATE ? AddressSpace::kPrivate
                         : space == CL_KERNEL_ARG_ADDRESS_LOCAL ? AddressSpace::kLocal
                                                                : AddressSpace::kGlobal;
  }
  return signature;
}

}  // namespace

size_t FindParameter(const KernelSignature& signature, std::string_view name, size_t hint) {
  const size_t count = signature.size();
  for (size_t k = 0; k < count; ++k) {
    const size_t i = hint + k < count ? hint + k : hint + k - count;
    if (signature[i].name == name) return i;
  }
  return count;
}

absl::StatusOr<ProgramSignatures> ReadSignatures(cl_program program) {
  PALPATE_ASSIGN_OR_RETURN(const std::string names, ReadText(
                                                        [&](size_t size, char* target, size_t* needed) {
                                                          return clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, size, target, needed);
                                                        },
                                                        "clGetProgramInfo"));
  ProgramSignatures signatures;
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(names, ';', absl::SkipEmpty()))) {
    cl_int code = CL_SUCCESS;
    cl_kernel kernel = clCreateKernel(program, name.c_str(), &code);
    PALPATE_CL_RETURN_IF_ERROR(code, "clCreateKernel", name);
    absl::StatusOr<KernelSignature> signature = ReadSignature(kernel);
    clReleaseKernel(kernel);
    if (!signature.ok()) return Annotate(signature.status(), name);
    signatures[name] = *std::move(signature);
  }
  return signatures;
}

std::string ToText(const ProgramSignatures& signatures) {
  std::string text;
  for (const auto& [kernel, signature] : signatures) {
    absl::StrAppend(&text, kernel, "\n");
    for (const KernelParameter& parameter : signature) {
      absl::StrAppend(&text, " ", std::string(kSpaces[static_cast<size_t>(parameter.space)].second), " ", parameter.name, " ",
                      parameter.type, "\n");
    }
  }
  return text;
}

std::optional<ProgramSignatures> ParseSignatures(std::string_view text) {
  ProgramSignatures signatures;
  KernelSignature* signature = nullptr;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line.empty()) return std::nullopt;
    if (line[0] != ' ') {
      signature = &signatures[std::string(line)];
      continue;
    }
    if (signature == nullptr) return std::nullopt;
    line.remove_prefix(1);
    KernelParameter parameter;
    const size_t after_space = line.find(' ');
    const size_t after_name = after_space == std::string_view::npos ? after_space : line.find(' ', after_space + 1);
    if (after_name == std::string_view::npos || after_name + 1 >= line.size()) return std::nullopt;
    bool is_known = false;
    for (const auto& [space, name] : kSpaces) {
      if (line.substr(0, after_space) != name) continue;
      parameter.space = space;
      is_known = true;
    }
    if (!is_known) return std::nullopt;
    parameter.name = line.substr(after_space + 1, after_name - after_space - 1);
    parameter.type = line.substr(after_name + 1);
    signature->push_back(std::move(parameter));
  }
  return signatures;
}

}  // namespace palpate::gpu
