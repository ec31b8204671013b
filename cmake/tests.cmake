# Tests of the core. Each layer is one binary, so that an edit links only one. Each test is one ctest case, so that the
# name of a test that hangs is known.
if(CMAKE_CROSSCOMPILING)  # for another processor, Debian has only the sources
  add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
  target_compile_options(gtest PRIVATE -w)
  target_compile_options(gtest_main PRIVATE -w)
else()
  find_package(GTest REQUIRED)
endif()
include(GoogleTest)
set(test_options)
if(PCCL_SANITIZE OR PCCL_UNITY)  # built from scratch each time and run only once
  list(APPEND test_options -O0 -g0)  # takes a third of the time that -O1 takes
  # In a large unit, a name of one file can hide a name of the next. The ordinary build checks each file for this.
  list(APPEND test_options -Wno-shadow)
endif()
set(test_seconds 120)  # longest time of a test
if(PCCL_SANITIZE)
  set(test_seconds 360)
elseif(CMAKE_CROSSCOMPILING)
  set(test_seconds 1800)
endif()
if(PCCL_SANITIZE)
  list(APPEND test_options -DPCCL_SANITIZED)
endif()
if(PCCL_SANITIZE MATCHES undefined)
  # This sanitizer checks the core only. In the tests it would cost a minute of compilation.
  list(APPEND test_options -fno-sanitize=undefined)
endif()
if(PCCL_SANITIZE STREQUAL thread)
  list(APPEND test_options -DPCCL_TSAN)
endif()

# Those of torch, below it, are compiled with the Python module.
file(GLOB doubles_sources CONFIGURE_DEPENDS tests/doubles/*.cc)
add_library(doubles STATIC ${doubles_sources})
target_link_libraries(doubles PUBLIC pccl_core)

# Excluded from unity builds: if its operator new is inlined, the compiler reports that it does not match the delete.
set_source_files_properties(tests/cpp/ring/allocations.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
file(GLOB layers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/tests/cpp tests/cpp/*)
if(PCCL_SANITIZE STREQUAL thread)
  list(REMOVE_ITEM layers cuda)  # all its fibers are on one thread, and the sanitizer does not follow them
endif()
foreach(layer ${layers})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS tests/cpp/${layer}/*.cc)
  if(NOT sources)
    continue()
  endif()
  # The core comes first: the linker takes the first copy of an inline function, and the core's copies are optimized.
  add_executable(test_${layer} $<TARGET_OBJECTS:pccl_core> ${sources})
  target_link_libraries(test_${layer} PRIVATE doubles pccl_core GTest::gtest_main)
  target_compile_options(test_${layer} PRIVATE ${test_options})
  if(PCCL_SANITIZE OR PCCL_UNITY)
    set_target_properties(test_${layer} PROPERTIES UNITY_BUILD ON)
  endif()
  gtest_discover_tests(test_${layer} TEST_PREFIX ${layer}. DISCOVERY_MODE PRE_TEST
    PROPERTIES LABELS unit TIMEOUT ${test_seconds})
endforeach()

# The kernels in cuda/ run as host code: the twin of CUDA's header stands in front of the real one.
if(TARGET test_cuda)
  target_include_directories(test_cuda BEFORE PRIVATE tests/cpp/cuda/twin)
  target_compile_options(test_cuda PRIVATE -O2 -Wno-unknown-pragmas)  # unroll
  set_target_properties(test_cuda PROPERTIES UNITY_BUILD OFF)  # two .cu files may have the same private names
endif()

# For tests/gpu, which runs on another machine: the CPU's hash.
add_library(pccl_host_hash SHARED EXCLUDE_FROM_ALL tests/gpu/host_hash.cc)
target_link_libraries(pccl_host_hash PRIVATE pccl_core)
target_link_options(pccl_host_hash PRIVATE -Wl,--as-needed,--exclude-libs,ALL)

# The simulator: a library with simulated peers and a simulated master, used by two programs.
set(sim_main ${PROJECT_SOURCE_DIR}/tests/sim/main.cc)
set(scenarios_main ${PROJECT_SOURCE_DIR}/tests/sim/scenarios_main.cc)
set(diagrams_main ${PROJECT_SOURCE_DIR}/tests/sim/diagrams_main.cc)
file(GLOB sim_sources CONFIGURE_DEPENDS tests/sim/*.cc)
list(REMOVE_ITEM sim_sources ${sim_main} ${scenarios_main} ${diagrams_main})
add_library(sim STATIC ${sim_sources})
target_link_libraries(sim PUBLIC doubles)
target_link_libraries(test_transport PRIVATE sim)  # its tests also run over simulated connections
if(PCCL_SANITIZE)
  set_target_properties(sim PROPERTIES UNITY_BUILD ON)
endif()
add_executable(pccl-sim ${sim_main})
target_link_libraries(pccl-sim PRIVATE sim)
add_executable(pccl-scenarios ${scenarios_main})
target_link_libraries(pccl-scenarios PRIVATE sim)
# The whole library: a linker takes only the files that it needs, and nobody calls a table.
add_executable(pccl-diagrams ${diagrams_main})
target_link_libraries(pccl-diagrams PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,pccl_core>)

add_test(NAME diagrams COMMAND pccl-diagrams ${PROJECT_SOURCE_DIR}/docs/state-machines.md)
set_tests_properties(diagrams PROPERTIES LABELS unit TIMEOUT 120)
add_executable(verdict_model ${PROJECT_SOURCE_DIR}/tests/model/verdict.cc)
add_test(NAME model.verdict COMMAND verdict_model --quick)
add_test(NAME scenarios COMMAND pccl-scenarios ${PROJECT_SOURCE_DIR}/tests/scenarios)
# Losses at each moment of a sync_shared_state. `--states 5` takes a minute.
add_test(NAME sim.states COMMAND pccl-sim --states 3)
# These tests check the simulator's own checks: if those found nothing, the protocol would seem to have no bugs.
foreach(bug early-commit no-restore foreign-size never-absent lost-answer told-too-early hasty-end
    hidden-return unasked unbound any-decision few-founders no-invitation)
  add_test(NAME sim.finds_planted_bug.${bug} COMMAND pccl-sim --seeds 500 --plant ${bug})
  list(APPEND plants sim.finds_planted_bug.${bug})
endforeach()
add_test(NAME sim.loss_at_every_step COMMAND pccl-sim --sweep 300)
set_tests_properties(scenarios ${plants} sim.loss_at_every_step sim.states
  PROPERTIES LABELS simulated TIMEOUT 300)

# The deadlock simulator, for benchmarks/deadlock_table and tests/python/test_deadlock_table.py.
file(GLOB deadlock_table_sources CONFIGURE_DEPENDS benchmarks/deadlock_table/*.cc)
add_executable(pccl-deadlock-table ${deadlock_table_sources})
target_link_libraries(pccl-deadlock-table PRIVATE pccl_core)
# For benchmarks/tours.py, which builds it.
add_executable(pccl-tours EXCLUDE_FROM_ALL benchmarks/tours.cc)
target_link_libraries(pccl-tours PRIVATE pccl_core)
# The speed of quantizing: see the head of the file.
add_executable(pccl-codec EXCLUDE_FROM_ALL benchmarks/codec.cc)
target_link_libraries(pccl-codec PRIVATE pccl_core)
# How much faster helpers make encryption: see the head of the file.
add_executable(pccl-record-pump EXCLUDE_FROM_ALL benchmarks/record_pump.cc)
target_link_libraries(pccl-record-pump PRIVATE pccl_core)
