#pragma once

#include <CL/cl.h>

#include <string_view>

#include "gpu/base/status.h"

namespace palpate::gpu {

/// The symbolic name of an OpenCL error code, "CL_UNKNOWN(<code>)" if it has none.
std::string ClErrorName(cl_int code);

/// OK for CL_SUCCESS; else a status that names the call, `what` (a kernel, a buffer; may be empty) and the error. Out of memory maps to
/// ResourceExhausted, everything else to Internal.
absl::Status ClStatus(cl_int code, std::string_view call, std::string_view what = {});

}  // namespace palpate::gpu

#define PALPATE_CL_RETURN_IF_ERROR(code, call, what) PALPATE_RETURN_IF_ERROR(::palpate::gpu::ClStatus((code), (call), (what)))
