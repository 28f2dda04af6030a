#include "gpu/runtime/kernel.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "gpu/runtime/cl_status.h"

namespace palpate::gpu {
namespace {

std::string Describe(AddressSpace space, std::string_view type) {
  if (space == AddressSpace::kLocal) return "local memory";
  if (space == AddressSpace::kPrivate) return absl::StrCat("a value of type ", std::string(type));
  return type.empty() ? "a buffer" : absl::StrCat("a buffer of ", std::string(type));
}

std::string NamesOf(const KernelSignature& signature) {
  std::string names;
  for (const KernelParameter& parameter : signature) absl::StrAppend(&names, names.empty() ? "" : ", ", parameter.name);
  return names;
}

}  // namespace

absl::Status Kernel::Bind(std::initializer_list<Arg> args) {
  if (kernel_ == nullptr) return absl::FailedPreconditionError("Bind: no kernel");
  const auto place = [&](std::string_view argument) { return absl::StrCat("kernel ", name_, ", argument '", std::string(argument), "'"); };
  const auto error = [&](std::string_view argument, const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(place(argument), ": ", what));
  };
  uint64_t seen = 0;
  size_t next = 0;  // most lists have the order of the text
  for (const auto& [name, value] : args) {
    const size_t i = FindParameter(*signature_, name, next);
    if (i == signature_->size()) return error(name, "there is none; its arguments are " + NamesOf(*signature_));
    const uint64_t bit = uint64_t{1} << i;
    if ((seen & bit) != 0) return error(name, "bound twice in one call");
    seen |= bit;
    next = i + 1;
    const KernelParameter& parameter = (*signature_)[i];
    if (value.space_ != parameter.space || (!value.type_.empty() && value.type_ != parameter.type)) {
      return error(name,
                   absl::StrCat("is ", Describe(parameter.space, parameter.type), ", bound to ", Describe(value.space_, value.type_)));
    }
    const cl_int code = clSetKernelArg(kernel_, static_cast<cl_uint>(i), value.size_bytes_, value.data());
    if (code != CL_SUCCESS) return ClStatus(code, "clSetKernelArg", place(name));
    unbound_ &= ~bit;
  }
  return absl::OkStatus();
}

absl::Status Kernel::CheckAllBound() const {
  if (unbound_ == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("kernel ", name_, ", argument '", (*signature_)[std::countr_zero(unbound_)].name,
                                                    "': not bound when the kernel was enqueued"));
}

}  // namespace palpate::gpu
