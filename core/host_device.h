#pragma once

// Arithmetic that device kernels share with the host.
#ifdef __CUDACC__
#define STEPCAST_HOST_DEVICE __host__ __device__
#else
#define STEPCAST_HOST_DEVICE
#endif
