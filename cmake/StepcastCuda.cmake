# STEPCAST_CUDA: AUTO builds the CUDA modules where nvcc, cuBLASLt and NCCL are found, ON insists on them, OFF leaves
# them out. Sets STEPCAST_HAVE_CUDA. The executable never links a CUDA library: everything CUDA is in modules that it
# loads at run time, so one executable serves machines with and without a GPU. Nothing links libcuda: a program that
# does cannot start without a driver.
set(STEPCAST_CUDA AUTO CACHE STRING "Build the CUDA modules: AUTO, ON or OFF")
set_property(CACHE STEPCAST_CUDA PROPERTY STRINGS AUTO ON OFF)
# Machine code for A100 and H100, and PTX that newer devices compile on first use. Each more costs build time.
set(STEPCAST_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "Devices to compile for, as CMAKE_CUDA_ARCHITECTURES")

set(STEPCAST_HAVE_CUDA OFF)
set(missing "")
if(NOT STEPCAST_CUDA)
  set(missing "switched off")
else()
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)  # often installed, yet not in PATH
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${STEPCAST_CUDA_ARCHITECTURES})  # before the language: its default is older
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(missing "nvcc")
  else()
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 20)
    if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 12 and newer take it
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
    find_package(CUDAToolkit 13.0)  # the profiler reads the records of its CUPTI
    find_package(NCCL 2.18)
    find_package(CUDNN 9.13 QUIET)  # a build without it has unfused attention only
    if(NOT CUDAToolkit_FOUND)
      list(APPEND missing "CUDA Toolkit 13.0 or newer")
    endif()
    if(NOT TARGET CUDA::cublasLt)
      list(APPEND missing "cuBLASLt")
    endif()
    if(NOT TARGET CUDA::cupti)
      list(APPEND missing "CUPTI")
    endif()
    if(NOT NCCL_FOUND)
      list(APPEND missing "NCCL 2.18 or newer (set NCCL_ROOT)")
    endif()
  endif()
endif()
list(JOIN missing ", " missing)
if(NOT missing)
  set(STEPCAST_HAVE_CUDA ON)
  set(cudnn "none")
  if(CUDNN_FOUND)
    set(cudnn ${CUDNN_VERSION})
  endif()
  message(STATUS "CUDA modules: CUDA ${CUDAToolkit_VERSION}, NCCL ${NCCL_VERSION}, cuDNN ${cudnn}, devices ${STEPCAST_CUDA_ARCHITECTURES}")
elseif(STEPCAST_CUDA STREQUAL "ON")
  message(FATAL_ERROR "STEPCAST_CUDA=ON, but missing: ${missing}")
else()
  message(STATUS "CUDA modules: none (${missing})")
endif()

# stepcast_module(NAME [COMPONENT C] SOURCES ... [LINK ...]): lib/libstepcast_NAME.so, which a program in bin/ loads at run time.
# It is packaged with component C: cuda unless named. Only
# what is marked for export is visible, and every symbol must be found when it is linked. Rooms it links are declared
# with PIC.
function(stepcast_module name)
  cmake_parse_arguments(ARG "" "COMPONENT" "SOURCES;LINK" ${ARGN})
  if(NOT ARG_COMPONENT)
    set(ARG_COMPONENT cuda)
  endif()
  set(target stepcast_${name})
  add_library(${target} MODULE ${ARG_SOURCES})
  stepcast_warnings(${target})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_link_libraries(${target} PRIVATE ${ARG_LINK})
  target_link_options(${target} PRIVATE -Wl,-z,defs -Wl,--exclude-libs,ALL)
  set_target_properties(${target} PROPERTIES
    PREFIX "lib" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib
    CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS ${target} LIBRARY DESTINATION lib COMPONENT ${ARG_COMPONENT})
endfunction()
