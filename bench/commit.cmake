# Writes OUT (a header with the commit of SOURCE_DIR) when that has changed. Run at each build: a configure step would go stale.
find_package(Git QUIET)
set(commit "unknown")
if(GIT_FOUND)
  execute_process(
    COMMAND "${GIT_EXECUTABLE}" describe --always --dirty --abbrev=12 --exclude=*
    WORKING_DIRECTORY "${SOURCE_DIR}"
    OUTPUT_VARIABLE described
    OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_QUIET)
  if(described)
    set(commit "${described}")
  endif()
endif()
set(text "#pragma once\n\nnamespace palpate::bench {\ninline constexpr char kCommit[] = \"${commit}\";\n}\n")
set(old "")
if(EXISTS "${OUT}")
  file(READ "${OUT}" old)
endif()
if(NOT text STREQUAL old)
  file(WRITE "${OUT}" "${text}")
endif()
