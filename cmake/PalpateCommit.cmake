# PALPATE_COMMIT: short hash of the sources when the build was configured, "-dirty" if changed; "unknown" without git.
set(PALPATE_COMMIT "unknown")
find_package(Git QUIET)
if(Git_FOUND)
  execute_process(COMMAND "${GIT_EXECUTABLE}" describe --always --dirty --abbrev=12
    WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}" OUTPUT_VARIABLE described RESULT_VARIABLE result OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(result EQUAL 0 AND described)
    set(PALPATE_COMMIT "${described}")
  endif()
endif()
