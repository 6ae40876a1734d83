# CUDNN_INCLUDE_DIR: the headers of cuDNN's backend API (9.13 or newer). The library is opened at run time, never linked.
# Looks in CUDNN_ROOT (variable or environment), beside the CUDA Toolkit, and in the layout of the Python wheel.
find_path(CUDNN_INCLUDE_DIR cudnn_backend.h
  HINTS ${CUDNN_ROOT} $ENV{CUDNN_ROOT} ${CUDAToolkit_INCLUDE_DIRS}
  PATH_SUFFIXES include nvidia/cudnn/include)
mark_as_advanced(CUDNN_INCLUDE_DIR)

include(HeaderVersion)
if(CUDNN_INCLUDE_DIR AND EXISTS "${CUDNN_INCLUDE_DIR}/cudnn_version.h")
  header_version(CUDNN_VERSION "${CUDNN_INCLUDE_DIR}/cudnn_version.h" CUDNN MAJOR MINOR PATCHLEVEL)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_INCLUDE_DIR VERSION_VAR CUDNN_VERSION)
