# cmake -D SOURCES=... -D OUT=... -P commit.cmake: writes OUT, a source with the commit that SOURCES are of, if that has changed. git
# knows it, or commit.txt in a source tarball. Empty: neither does.
execute_process(COMMAND git -C ${SOURCES} describe --always --dirty --abbrev=8 --exclude=* OUTPUT_VARIABLE commit ERROR_QUIET
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT EXISTS ${SOURCES}/.git)  # else git may know another project, in a folder above
  file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/commit.txt commit LIMIT_COUNT 1)
  string(SUBSTRING "${commit}" 0 8 commit)
endif()
if(NOT commit MATCHES "^[0-9a-f]+(-dirty)?$")
  set(commit "")
endif()
set(text "#include \"cli/version.h\"\nconst char* const windlass::cli::kCommit = \"${commit}\";\n")
set(before "")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()
