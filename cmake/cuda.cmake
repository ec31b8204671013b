# libpccl_cuda.so: the CUDA kernels in cuda/. It is built if there is an nvcc; cuda/README.md says where it is looked for.
# CMake's own support for CUDA does not work with the wheels of tools/requirements-cuda.txt, because their folders have
# other names. So each .cu file has one command. The library needs neither torch nor Python.
set(PCCL_NVCC "" CACHE STRING "The nvcc to use; OFF: build without CUDA kernels; empty: look for one")
set(nvcc_version_min 12.8)  # the first with code for sm_100 and sm_120

if(PCCL_NVCC)
  set(nvcc ${PCCL_NVCC})
elseif(PCCL_NVCC STREQUAL "")
  find_program(nvcc nvcc NO_CACHE NO_DEFAULT_PATH
    PATHS ${PROJECT_SOURCE_DIR}/build/cuda-toolkit/nvidia/cu13/bin $ENV{CUDA_HOME}/bin ENV PATH)
endif()
if(NOT nvcc)
  message(STATUS "No nvcc: libpccl_cuda.so is left out (make cuda installs an nvcc and builds it)")
  return()
endif()

execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE nvcc_text ERROR_VARIABLE nvcc_text)
string(REGEX MATCH "release ([0-9]+[.][0-9]+)" release "${nvcc_text}")
set(nvcc_version "${CMAKE_MATCH_1}")
file(REAL_PATH ${nvcc} nvcc_real)  # a folder of PATH may have a link
cmake_path(GET nvcc_real PARENT_PATH cuda_root)
cmake_path(GET cuda_root PARENT_PATH cuda_root)
find_file(cudart libcudart_static.a NO_CACHE NO_DEFAULT_PATH
  PATHS ${cuda_root}/lib ${cuda_root}/lib64 ${cuda_root}/targets/x86_64-linux/lib)
set(fault "")
if(NOT nvcc_version VERSION_GREATER_EQUAL nvcc_version_min)
  set(fault "${nvcc} has version \"${nvcc_version}\", and pccl needs ${nvcc_version_min} or newer")
elseif(NOT cudart)
  set(fault "${nvcc} has no libcudart_static.a in ${cuda_root}")
endif()
if(fault AND PCCL_NVCC)
  message(FATAL_ERROR "${fault}: set PCCL_NVCC to another nvcc, or to OFF")
elseif(fault)
  message(STATUS "${fault}: libpccl_cuda.so is left out (make cuda installs an nvcc and builds it)")
  return()
endif()
message(STATUS "Building libpccl_cuda.so with ${nvcc}, version ${nvcc_version}")

# Machine code for the GPUs of data centres since Ampere and for Blackwell's others, and PTX for what comes later.
set(targets "")
foreach(arch 80 90 100)
  list(APPEND targets -gencode arch=compute_${arch},code=sm_${arch})
endforeach()
list(APPEND targets -gencode "arch=compute_120,code=[sm_120,compute_120]")

file(GLOB cuda_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} cuda/*.cu)
set(cuda_objects "")
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
foreach(source ${cuda_sources})
  set(object ${CMAKE_BINARY_DIR}/${source}.o)
  add_custom_command(OUTPUT ${object} DEPENDS ${source} DEPFILE ${object}.d VERBATIM
    COMMENT "Compiling ${source} with nvcc"
    COMMAND ${nvcc} -ccbin ${CMAKE_CXX_COMPILER} -std=c++20 -O2 -Werror all-warnings -I${PROJECT_SOURCE_DIR}
      -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra ${targets} -MD -MF ${object}.d
      -c ${PROJECT_SOURCE_DIR}/${source} -o ${object})
  list(APPEND cuda_objects ${object})
endforeach()

# CUDA's runtime is linked statically and stays invisible: torch brings a runtime of its own.
add_library(pccl_cuda SHARED ${cuda_objects})
set_target_properties(pccl_cuda PROPERTIES LINKER_LANGUAGE CXX)
target_link_libraries(pccl_cuda PRIVATE ${cudart} dl rt Threads::Threads)
target_link_options(pccl_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,defs -s)
set(has_cuda true)
