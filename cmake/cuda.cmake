# libpccl_cuda.so: the CUDA kernels in cuda/. It is built if there is an nvcc; cuda/README.md says where it is looked for.
# CMake's own support for CUDA does not work with the wheels of tools/requirements-cuda.txt, since it expects another
# layout. So each .cu file has one command. The library needs neither torch nor Python.
set(PCCL_NVCC "" CACHE FILEPATH "The nvcc to use; empty: it is looked for")
find_program(nvcc nvcc NO_CACHE NO_DEFAULT_PATH
  PATHS ${PROJECT_SOURCE_DIR}/build/cuda-toolkit/nvidia/cu13/bin $ENV{CUDA_HOME}/bin ENV PATH)
if(PCCL_NVCC)
  set(nvcc ${PCCL_NVCC})
endif()
if(NOT nvcc)
  message(STATUS "No nvcc: libpccl_cuda.so is left out (make cuda installs an nvcc and builds it)")
  return()
endif()
file(REAL_PATH ${nvcc} nvcc_real)  # PATH may have a link
cmake_path(GET nvcc_real PARENT_PATH cuda_root)
cmake_path(GET cuda_root PARENT_PATH cuda_root)
find_file(cudart libcudart_static.a NO_CACHE NO_DEFAULT_PATH
  PATHS ${cuda_root}/lib ${cuda_root}/lib64 ${cuda_root}/targets/x86_64-linux/lib)
if(NOT cudart)
  message(FATAL_ERROR "${nvcc} has no libcudart_static.a below ${cuda_root}: set PCCL_NVCC to a complete toolkit")
endif()
message(STATUS "Building libpccl_cuda.so with ${nvcc}")

# Machine code for the data centre GPUs since Ampere and for Blackwell's desktop GPUs, and PTX for what comes later.
set(targets "")
foreach(arch 80 90 100)
  list(APPEND targets -gencode arch=compute_${arch},code=sm_${arch})
endforeach()
list(APPEND targets -gencode "arch=compute_120,code=[sm_120,compute_120]")

file(GLOB cuda_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} cuda/*.cu)
set(cuda_objects "")
foreach(source ${cuda_sources})
  set(object ${CMAKE_BINARY_DIR}/${source}.o)
  add_custom_command(OUTPUT ${object} DEPFILE ${object}.d DEPENDS ${source} VERBATIM
    COMMENT "Compiling ${source} with nvcc"
    COMMAND ${nvcc} -ccbin ${CMAKE_CXX_COMPILER} -std=c++20 -O2 -Werror all-warnings -I${PROJECT_SOURCE_DIR}
      -Xcompiler -fPIC,-fvisibility=hidden,-Wall ${targets} -MD -MF ${object}.d
      -c ${PROJECT_SOURCE_DIR}/${source} -o ${object})
  list(APPEND cuda_objects ${object})
endforeach()
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)

# CUDA's runtime is linked statically, and stays invisible: torch brings a runtime of its own.
add_library(pccl_cuda SHARED ${cuda_objects})
set_target_properties(pccl_cuda PROPERTIES LINKER_LANGUAGE CXX)
target_link_libraries(pccl_cuda PRIVATE ${cudart} dl rt Threads::Threads)
target_link_options(pccl_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,defs -s)
set(pccl_cuda_library libpccl_cuda.so)
