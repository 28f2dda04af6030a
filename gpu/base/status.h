#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace palpate {

/// Puts `context` and a colon before the message of a failed status; an OK status passes through.
inline absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(absl::string_view(context.data(), context.size()), ": ", status.message()));
}

}  // namespace palpate

#define PALPATE_CONCAT_INNER(a, b) a##b
#define PALPATE_CONCAT(a, b) PALPATE_CONCAT_INNER(a, b)

/// Leaves the enclosing function with the status of `expr` if that is not OK.
#define PALPATE_RETURN_IF_ERROR(expr)                                 \
  do {                                                                \
    if (absl::Status palpate_status = (expr); !palpate_status.ok()) { \
      return palpate_status;                                          \
    }                                                                 \
  } while (false)

/// Assigns the value of the StatusOr `expr` to `lhs` (which may declare a variable), or leaves the enclosing function with its status.
#define PALPATE_ASSIGN_OR_RETURN(lhs, expr) PALPATE_ASSIGN_OR_RETURN_IMPL(PALPATE_CONCAT(palpate_or_, __LINE__), lhs, expr)
#define PALPATE_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                  \
  if (!tmp.ok()) return std::move(tmp).status();      \
  lhs = *std::move(tmp)
