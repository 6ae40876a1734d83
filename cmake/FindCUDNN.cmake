# CUDNN_INCLUDE_DIR: the headers of cuDNN's backend API (9.13 or newer). The library is opened at run time, never linked.
# Looks in CUDNN_ROOT (variable or environment), beside the CUDA Toolkit, and in the layout of the Python wheel.
find_path(CUDNN_INCLUDE_DIR cudnn_backend.h
  HINTS ${CUDNN_ROOT} $ENV{CUDNN_ROOT} ${CUDAToolkit_INCLUDE_DIRS}
  PATH_SUFFIXES include nvidia/cudnn/include)
mark_as_advanced(CUDNN_INCLUDE_DIR)

if(CUDNN_INCLUDE_DIR AND EXISTS "${CUDNN_INCLUDE_DIR}/cudnn_version.h")
  set(CUDNN_VERSION "")
  foreach(part MAJOR MINOR PATCHLEVEL)
    file(STRINGS "${CUDNN_INCLUDE_DIR}/cudnn_version.h" line REGEX "^#define CUDNN_${part} +[0-9]+")
    string(REGEX REPLACE "[^0-9]" "" number "${line}")
    list(APPEND CUDNN_VERSION ${number})
  endforeach()
  list(JOIN CUDNN_VERSION "." CUDNN_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_INCLUDE_DIR VERSION_VAR CUDNN_VERSION)
