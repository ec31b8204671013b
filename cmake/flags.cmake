# The flags of all C++ code: the core, the tests, and the torch module.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")  # -g1: line numbers in a stack trace; PCCL_ASSERT stays on
set(CMAKE_CXX_FLAGS_SANITIZED "-O1 -g1 -fno-omit-frame-pointer")  # PCCL_DCHECK is on too
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Hidden, so that other libraries in the same process do not see our symbols. pybind11 asks for it too.
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

set(warnings -Wall -Wextra -Wshadow -Werror)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  list(APPEND warnings -Wthread-safety)
else()
  # GCC 12 wrongly reports the alternatives of a moved std::variant as uninitialized (GCC bug 105562).
  list(APPEND warnings -Wno-maybe-uninitialized)
  if(PCCL_UNITY)  # a unit includes files, and the compiler takes their private types for those of a header
    list(APPEND warnings -Wno-subobject-linkage)
  endif()
endif()
add_compile_options(${warnings})
add_compile_options(-ffp-contract=off)  # a fused multiply-add would make rounding differ between machines
if(PCCL_FLOOR)  # for a wheel
  add_link_options(-L${PCCL_FLOOR})
  cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH tree)
  add_compile_options(-fmacro-prefix-map=${tree}/=)  # an assertion names its file without the folder of the build
endif()
