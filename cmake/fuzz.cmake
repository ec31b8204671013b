# The targets of tests/fuzz, one program each. Everything is compiled with coverage instrumentation. The
# protocol limits are a thousandth of the usual ones, so that a short input can exceed them.
find_package(GTest REQUIRED)
file(GLOB targets CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/tests/fuzz tests/fuzz/*.cc)
foreach(source ${targets})
  cmake_path(GET source STEM target)
  add_executable(fuzz_${target} tests/fuzz/${source})
  target_link_libraries(fuzz_${target} PRIVATE pccl_core GTest::gtest)
  target_link_options(fuzz_${target} PRIVATE -fsanitize=fuzzer)
endforeach()
