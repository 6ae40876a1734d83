#pragma once

// Index arithmetic that kernels and the tests without a GPU share.
#ifdef __CUDACC__
#define STEPCAST_HOST_DEVICE __host__ __device__
#else
#define STEPCAST_HOST_DEVICE
#endif
