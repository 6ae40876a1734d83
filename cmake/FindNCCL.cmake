# NCCL::nccl, NCCL_VERSION. Looks in NCCL_ROOT (variable or environment), beside the CUDA Toolkit, and in the layout of
# the Python wheel, which may hold only libnccl.so.2 without the development link.
find_path(NCCL_INCLUDE_DIR nccl.h
  HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} ${CUDAToolkit_INCLUDE_DIRS}
  PATH_SUFFIXES include nvidia/nccl/include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2
  HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} ${CUDAToolkit_LIBRARY_DIR}
  PATH_SUFFIXES lib lib64 nvidia/nccl/lib)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

include(HeaderVersion)
if(NCCL_INCLUDE_DIR)
  header_version(NCCL_VERSION "${NCCL_INCLUDE_DIR}/nccl.h" NCCL MAJOR MINOR PATCH)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES
    IMPORTED_LOCATION "${NCCL_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")
endif()
